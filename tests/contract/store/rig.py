"""Small tables for the tests of the stores, written as rows."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.metrics.definitions import stable_id
from penstock.metrics.functions import State
from penstock.store import open_store
from penstock.store._tables import as_json
from penstock.store.contract import (
    Catalogued,
    Granularity,
    LedgerEntry,
    MetricStore,
    SeriesQuery,
)
from penstock.store.schemas import ENTITIES, FACTS, METERS, READINGS, TOPN

HOLDER = "the tests"
SCOPE = "Service"
MINUTE_NS = 60_000_000_000
DAY = 86_400.0

WIDE = pa.schema([*FACTS, ("slots", pa.string()), ("sums", pa.string())])


@dataclass
class Wall:
    """A wall clock that a test moves."""

    seconds: float = 1_000_000.0

    def __call__(self) -> float:
        """Return seconds since 1970."""
        return self.seconds


@dataclass
class Opener:
    """Opens stores at one address, and closes them all in the end."""

    url: str
    wall: Wall
    stores: list[MetricStore] = field(default_factory=list)

    def __call__(self) -> MetricStore:
        """Return another store object on the same database."""
        store = open_store(self.url, now=self.wall)
        self.stores.append(store)
        return store

    def close(self) -> None:
        """Close every store that was opened."""
        for store in self.stores:
            with closing(store):
                pass


def metric(name: str, function: str = "longAvg", definition: str = "as it was") -> Catalogued:
    """Return a catalogue entry."""
    return Catalogued(stable_id("metric", name), name, SCOPE, function, definition, "ms")


def entity(*parts: str, scope: str = SCOPE) -> int:
    """Return the id of an entity."""
    return stable_id(scope, *parts)


def entities(*parts: Sequence[str], scope: str = SCOPE) -> pa.Table:
    """Return entities as ENTITIES."""
    ids = [entity(*one, scope=scope) for one in parts]
    return pa.table([ids, [scope] * len(ids), [list(one) for one in parts]], schema=ENTITIES)


def meters(*rows: tuple[str, str, str]) -> pa.Table:
    """Return (name, function, unit) as METERS."""
    full = [(stable_id("metric", row[0]), *row) for row in rows]
    return _table(full, METERS)


def facts(rows: Iterable[tuple[int, int, int, State]]) -> pa.Table:
    """Return (metric, entity, bucket, state) as the facts that a store merges."""
    return _table(
        [
            (
                *key,
                *(state.count, state.total, state.base, state.real, state.low, state.high),
                *(state.last, state.last_at),
                as_json(dict(state.slots)) if state.slots else None,
                as_json(dict(state.sums)) if state.sums else None,
            )
            for *key, state in rows
        ],
        WIDE,
    )


def topn(*rows: tuple[str, int, int, int, str, str, int, str]) -> pa.Table:
    """Return rows as TOPN."""
    return _table(rows, TOPN)


def readings(*rows: tuple[int, int, str, int, int, float]) -> pa.Table:
    """Return rows as READINGS."""
    return _table(rows, READINGS)


def entry(batch: int = 1, *files: str, at: float = 1_000_000.0) -> LedgerEntry:
    """Return an entry of the ledger."""
    return LedgerEntry("checkpoint", batch, at, files)


def states(
    store: MetricStore, name: str, granularity: Granularity = Granularity.MINUTE
) -> dict[tuple[tuple[str, ...], int], State]:
    """Return all states of a metric by entity and bucket."""
    query = SeriesQuery(metric=name, granularity=granularity, limit=1_000_000, since=-(2**31))
    return {(row.entity, row.bucket): row.state for row in store.series(query)}


def merge(
    store: MetricStore,
    rows: Iterable[tuple[int, int, int, State]],
    granularity: Granularity = Granularity.MINUTE,
) -> None:
    """Merge states in a transaction of their own."""
    with store.begin(HOLDER) as transaction:
        transaction.merge(granularity, facts(rows))


def _table(rows: Iterable[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(columns or [[] for _ in schema], schema=schema)
