"""What every store does, and the values that go in and come out.

A store holds mergeable states per (metric, entity, bucket) for minutes, hours and days. All
that one micro-batch adds is one transaction together with its row in the ledger, so a batch is
in the store entirely or not at all, and once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from penstock.metrics.functions import State

__all__ = [
    "TOP_KINDS",
    "TOP_SIZE",
    "Catalogued",
    "Granularity",
    "LedgerEntry",
    "MetricStore",
    "Retention",
    "SeriesQuery",
    "SeriesRow",
    "TopQuery",
    "TopRow",
    "Transaction",
]

TOP_SIZE = 50  # statements kept per kind, entity and minute
TOP_KINDS = ("database_statement", "service_database_statement", "cache_read", "cache_write")


class Granularity(StrEnum):
    """How long a bucket is."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def minutes(self) -> int:
        """How many minutes a bucket covers."""
        return {"minute": 1, "hour": 60, "day": 1440}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many days are kept: of each granularity, of records (top lists and meter readings)."""

    minute: int = 7
    hour: int = 30
    day: int = 365
    records: int = 3

    def oldest(self, granularity: Granularity, now: float) -> int:
        """Return the oldest bucket that is kept at *now* (seconds since 1970)."""
        days = {"minute": self.minute, "hour": self.hour, "day": self.day}[granularity.value]
        return int((now - days * 86_400) // (granularity.minutes * 60))


@dataclass(frozen=True, slots=True)
class Catalogued:
    """A metric as the store knows it: one row of the catalogue."""

    metric: int
    name: str
    scope: str
    function: str
    definition: str  # of rules: the canonical line; of meters: ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What is remembered of a committed micro-batch."""

    checkpoint: str
    batch: int
    committed_at: float  # seconds since 1970
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """Which values to read. Buckets from *since* (included) to *until* (excluded)."""

    metric: str
    granularity: Granularity = Granularity.MINUTE
    since: int = 0
    until: int = 2**31 - 1
    entity: Sequence[str] = ()  # shell patterns for the entity's parts, from the first on
    limit: int = 1000  # rows; the newest ones


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """The state of one entity in one bucket."""

    entity: tuple[str, ...]
    bucket: int
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class TopQuery:
    """Which slow statements to read: of a kind, from minute *since* to before minute *until*."""

    kind: str
    since: int = 0
    until: int = 2**31 - 1
    entity: Sequence[str] = ()
    limit: int = 20


@dataclass(frozen=True, slots=True)
class TopRow:
    """One slow statement."""

    entity: tuple[str, ...]
    bucket: int
    latency: int
    statement: str
    trace_id: str
    span_id: str
    started_ns: int = field(default=0)


class Transaction(Protocol):
    """One micro-batch on its way into the store; all of it or nothing. See `MetricStore.begin`."""

    def new_entities(self, entities: pa.Table) -> None:
        """Add those of *entities* (ENTITIES) that are unknown."""
        ...

    def new_meters(self, meters: pa.Table) -> None:
        """Add those of *meters* (METERS) that the catalogue lacks."""
        ...

    def merge(self, granularity: Granularity, facts: pa.Table) -> None:
        """Merge states, one row per (metric, entity, bucket).

        *facts* has the columns of FACTS and two texts, ``slots`` and ``sums``: JSON objects that
        add up key by key, or null.
        """
        ...

    def rank(self, topn: pa.Table) -> None:
        """Merge slow statements (TOPN); the TOP_SIZE slowest of each (kind, entity, bucket) stay.

        Equal latencies: the smaller span id wins. The same (kind, entity, bucket, trace_id,
        span_id) twice is one.
        """
        ...

    def read_deltas(self, readings: pa.Table) -> pa.Table:
        """Add READINGS of cumulative series; return by how much each minute changes for it.

        The table returned has the columns metric, entity, bucket (minutes), slot, delta: a late
        reading moves part of an increase from a later minute to an earlier one. The minute of
        every reading is listed, with the delta 0 where nothing was added.
        """
        ...

    def record(self, entry: LedgerEntry) -> None:
        """Write the ledger row and the names of the files.

        Raises FilesMergedError if a file is in the ledger already, naming them all.
        """
        ...


class MetricStore(Protocol):
    """A place for metrics. One writer at a time, by lease; any number of readers."""

    @property
    def address(self) -> str:
        """Where the store is, for messages; never with a password."""
        ...

    def migrate(self) -> None:
        """Create what is missing, or bring an older store up to date."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...

    # --- the one writer -----------------------------------------------------------------------

    def acquire(self, holder: str, ttl: float) -> None:
        """Take the lease for *ttl* seconds or raise StoreBusyError that names its holder."""
        ...

    def renew(self, holder: str, ttl: float) -> None:
        """Prolong the lease or raise LeaseLostError."""
        ...

    def release(self, holder: str) -> None:
        """Give the lease back, if it is still held."""
        ...

    def job(self) -> str | None:
        """Return the id of the job that this store belongs to, if it has one."""
        ...

    def adopt_job(self, job: str) -> None:
        """Remember *job* as the store's."""
        ...

    def catalogue(self) -> Mapping[str, Catalogued]:
        """Return all known metrics by name."""
        ...

    def define(self, metrics: Iterable[Catalogued]) -> None:
        """Add or change catalogue entries; values under a changed definition are deleted."""
        ...

    def committed(self, checkpoint: str, batch: int) -> LedgerEntry | None:
        """Return the ledger's entry for a micro-batch, if it was committed."""
        ...

    def merged_files(self, names: Sequence[str]) -> Sequence[str]:
        """Return those of *names* that some committed batch has brought in already."""
        ...

    def entity_ids(self, scope: str) -> frozenset[int]:
        """Return the ids of all entities of a scope."""
        ...

    def begin(self, holder: str) -> AbstractContextManager[Transaction]:
        """Open a transaction that commits at the end of the block and rolls back on an error.

        Raises LeaseLostError if *holder* does not hold the lease when it commits.
        """
        ...

    def expire(self, now: float, retention: Retention) -> Mapping[str, int]:
        """Delete what is past its retention at *now* (seconds since 1970); return rows by table."""
        ...

    # --- readers ------------------------------------------------------------------------------

    def series(self, query: SeriesQuery) -> Sequence[SeriesRow]:
        """Return states in the order of (bucket, entity)."""
        ...

    def top(self, query: TopQuery) -> Sequence[TopRow]:
        """Return slow statements, the slowest first."""
        ...

    def entities(self, scope: str) -> Sequence[tuple[str, ...]]:
        """Return the entities of a scope, sorted."""
        ...
