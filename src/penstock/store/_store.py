"""The metric store on a database: what is the same for all of them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import LeaseLostError, StoreBusyError
from penstock.store import _reads, _retention
from penstock.store._batch import SqlTransaction, find_files
from penstock.store.contract import Catalogued, Granularity, LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.store._engine import Engine, Session
    from penstock.store.contract import Retention, SeriesQuery, SeriesRow, TopQuery, TopRow

__all__ = ["SqlStore"]


class SqlStore:
    """A `MetricStore` on an engine. *now* returns seconds since 1970."""

    def __init__(self, engine: Engine, now: Callable[[], float]) -> None:
        self._engine = engine
        self._now = now

    def __repr__(self) -> str:
        return f"<SqlStore {self.address}>"

    @property
    def address(self) -> str:
        """Where the store is, for messages; never with a password."""
        return self._engine.address

    def migrate(self) -> None:
        """Create what is missing, or bring an older store up to date."""
        self._engine.migrate()

    def close(self) -> None:
        """Release the connections."""
        self._engine.close()

    # --- the lease ----------------------------------------------------------------------------

    def acquire(self, holder: str, ttl: float) -> None:
        """Take the lease for *ttl* seconds or raise StoreBusyError that names its holder."""
        with self._engine.writing() as session:
            now = self._now()  # after a wait for the writer, if there was one
            if session.run("lease_take", holder=holder, now=now, expires_at=now + ttl):
                return
            other, expires_at = session.rows("lease_lock")[0]
        raise StoreBusyError(
            f"{self.address} is held by {other!r} for {expires_at - now:.0f} more seconds: stop "
            "that job, or wait until it has ended",
            other,
            expires_at - now,
        )

    def renew(self, holder: str, ttl: float) -> None:
        """Prolong the lease or raise LeaseLostError."""
        with self._engine.writing() as session:
            if not session.run("lease_renew", holder=holder, expires_at=self._now() + ttl):
                self._check_holder(session, holder)

    def release(self, holder: str) -> None:
        """Give the lease back, if it is still held."""
        with self._engine.writing() as session:
            session.run("lease_release", holder=holder)

    def _check_holder(self, session: Session, holder: str) -> None:
        """Lock the lease until the transaction ends, and raise if it is not *holder*'s.

        A lease that has run out but that nobody took is still the holder's: it cannot be taken
        before the transaction ends.
        """
        other, _ = session.rows("lease_lock")[0]
        if other != holder:
            whose = "nobody" if other is None else repr(other)
            raise LeaseLostError(
                f"{self.address} is held by {whose}, not by {holder!r} any more: this job must "
                "stop writing; acquire the lease to go on"
            )

    # --- the job and what it defines ----------------------------------------------------------

    def job(self) -> str | None:
        """Return the id of the job that this store belongs to, if it has one."""
        with self._engine.reading() as session:
            found = session.rows("job_get")
        return str(found[0][0]) if found else None

    def adopt_job(self, job: str) -> None:
        """Remember *job* as the store's."""
        with self._engine.writing() as session:
            session.run("job_set", job=job)

    def catalogue(self) -> Mapping[str, Catalogued]:
        """Return all known metrics by name."""
        with self._engine.reading() as session:
            return _reads.catalogue(session)

    def define(self, metrics: Iterable[Catalogued]) -> None:
        """Add or change catalogue entries; values under a changed definition are deleted."""
        with self._engine.writing() as session:
            session.rows("lease_lock")  # no batch is being merged meanwhile
            known = _reads.catalogue(session)
            for metric in metrics:
                self._define(session, metric, known.get(metric.name))

    @staticmethod
    def _define(session: Session, metric: Catalogued, known: Catalogued | None) -> None:
        if known == metric:
            return
        if known is not None and _meaning(known) != _meaning(metric):
            for granularity in Granularity:
                session.run(f"values_delete.{granularity}", metric=known.metric)
        session.run(
            "metric_set",
            metric=metric.metric,
            name=metric.name,
            scope=metric.scope,
            function=metric.function,
            definition=metric.definition,
            unit=metric.unit,
        )

    # --- batches ------------------------------------------------------------------------------

    def committed(self, checkpoint: str, batch: int) -> LedgerEntry | None:
        """Return the ledger's entry for a micro-batch, if it was committed."""
        with self._engine.reading() as session:
            found = session.rows("ledger_get", checkpoint=checkpoint, batch=batch)
        if not found:
            return None
        committed_at, files = found[0]
        return LedgerEntry(checkpoint, batch, committed_at, tuple(json.loads(files)))

    def merged_files(self, names: Sequence[str]) -> Sequence[str]:
        """Return those of *names* that some committed batch has brought in already."""
        with self._engine.reading() as session:
            return find_files(session, list(names))

    def entity_ids(self, scope: str) -> frozenset[int]:
        """Return the ids of all entities of a scope."""
        with self._engine.reading() as session:
            return frozenset(entity for (entity,) in session.rows("entity_ids", scope=scope))

    @contextmanager
    def begin(self, holder: str) -> Iterator[SqlTransaction]:
        """Open a transaction that commits at the end of the block and rolls back on an error."""
        with self._engine.writing() as session:
            self._check_holder(session, holder)
            yield SqlTransaction(session, self.address)

    def expire(self, now: float, retention: Retention) -> Mapping[str, int]:
        """Delete what is past its retention at *now*; return the deleted rows by table."""
        return _retention.expire(self._engine, now, retention)

    # --- readers ------------------------------------------------------------------------------

    def series(self, query: SeriesQuery) -> Sequence[SeriesRow]:
        """Return states in the order of (bucket, entity)."""
        with self._engine.reading() as session:
            return _reads.series(session, query, self.address)

    def top(self, query: TopQuery) -> Sequence[TopRow]:
        """Return slow statements, the slowest first."""
        with self._engine.reading() as session:
            return _reads.top(session, query)

    def entities(self, scope: str) -> Sequence[tuple[str, ...]]:
        """Return the entities of a scope, sorted."""
        with self._engine.reading() as session:
            return sorted(parts for _, parts in _reads.entities(session, "entities", scope=scope))


def _meaning(metric: Catalogued) -> tuple[object, ...]:
    """Return what decides whether stored values are still the metric's values."""
    return (metric.metric, metric.scope, metric.function, metric.definition)
