"""One micro-batch on its way into a store, on any database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import FilesMergedError, StoreError
from penstock.store import _tables
from penstock.store.contract import TOP_SIZE

if TYPE_CHECKING:
    from penstock.store._engine import Session
    from penstock.store.contract import Granularity, LedgerEntry

__all__ = ["SqlTransaction", "find_files"]

# A first reading counts in full if the series began at most this long before it.
_FRESH_NS = 5 * 60 * 1_000_000_000
_NAMED_FILES = 3  # in a message


class SqlTransaction:
    """The writing half of the contract (see `Transaction`), in terms of a session."""

    def __init__(self, session: Session, address: str) -> None:
        self._session = session
        self._address = address

    def new_entities(self, entities: pa.Table) -> None:
        """Add those of *entities* that are unknown."""
        if entities.num_rows:
            self._session.stage("entity", _tables.entity_rows(entities))
            self._session.run("entities_add")

    def new_meters(self, meters: pa.Table) -> None:
        """Add those of *meters* that the catalogue lacks."""
        if meters.num_rows:
            self._session.stage("metric", _tables.meter_rows(meters))
            self._session.run("metrics_add")

    def merge(self, granularity: Granularity, facts: pa.Table) -> None:
        """Merge states, one row per (metric, entity, bucket)."""
        if facts.num_rows:
            self._session.merge(granularity, facts)

    def rank(self, topn: pa.Table) -> None:
        """Merge slow statements; the slowest of each (kind, entity, bucket) stay."""
        if topn.num_rows:
            self._session.stage("topn", _tables.topn_rows(topn))
            self._session.run("rank_add")
            self._session.run("rank_trim", size=TOP_SIZE)

    def read_deltas(self, readings: pa.Table) -> pa.Table:
        """Add readings of cumulative series; return by how much each minute changes for it."""
        if not readings.num_rows:
            return _tables.CHANGES.empty_table()
        self._session.stage("reading", _tables.reading_rows(readings))
        self._session.stage("change", pa.table({}))
        self._session.run("readings_compare", fresh_ns=_FRESH_NS)
        self._session.run("readings_write")
        changes = self._session.rows("readings_changes")
        columns = zip(*changes, strict=True) if changes else ([],) * len(_tables.CHANGES)
        return pa.table([list(column) for column in columns], schema=_tables.CHANGES)

    def record(self, entry: LedgerEntry) -> None:
        """Write the ledger row and the names of the files."""
        names = list(dict.fromkeys(entry.files))
        known = find_files(self._session, names)
        if known:
            shown = ", ".join(known[:_NAMED_FILES])
            more = f" and {len(known) - _NAMED_FILES} more" if len(known) > _NAMED_FILES else ""
            raise FilesMergedError(
                f"{self._address} has these files in its ledger already: {shown}{more}; leave "
                "them out of the batch",
                tuple(known),
            )
        added = self._session.run(
            "ledger_add",
            checkpoint=entry.checkpoint,
            batch=entry.batch,
            committed_at=entry.committed_at,
            files=_tables.as_json(names),
        )
        if not added:
            raise StoreError(
                f"{self._address} has batch {entry.batch} of checkpoint {entry.checkpoint!r} in "
                "its ledger already: ask `committed` before merging"
            )
        self._session.run(
            "files_add",
            checkpoint=entry.checkpoint,
            batch=entry.batch,
            at=entry.committed_at,
            names=self._session.listed(names),
        )


def find_files(session: Session, names: list[str]) -> list[str]:
    """Return those of *names* that are in the ledger, in their order."""
    found = {name for (name,) in session.rows("files_known", names=session.listed(names))}
    return [name for name in names if name in found]
