"""Where partial states gather: of many batches of rows, until a task hands them on."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.aggregation.partials import (
    COUNTS,
    ENTITIES,
    FACTS,
    METER_ROWS,
    METERS,
    READINGS,
    SLOTS,
    TOPN,
    Partials,
    combine_facts,
    combine_slots,
)
from penstock.metrics.definitions import stable_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Accumulator"]

# Beyond this many rows, what has gathered is added up before more comes.
_COMPACT_AT = 2_000_000
_ZERO = ("total", "base", "real")


class Accumulator:
    """Gathers facts, slots and what belongs to them; adds up what has the same key."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, tuple[str, ...]], int] = {}
        self._meters: dict[int, tuple[str, str, str]] = {}
        self._meter_rows: Counter[int] = Counter()
        self._facts: list[pa.Table] = []
        self._slots: list[pa.Table] = []
        self._tops: list[pa.Table] = []
        self._readings: list[pa.Table] = []
        self._left_out: Counter[str] = Counter()
        self._pending: defaultdict[str, list[NDArray[Any]]] = defaultdict(list)
        self._rows = 0

    def entity(self, scope: str, parts: tuple[str, ...]) -> int:
        """Return the id of an entity, and remember that it was seen."""
        key = (scope, parts)
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = stable_id(scope, *parts)
        return known

    def meter(self, name: str, function: str, unit: str, rows: int) -> int:
        """Return the id of a metric that arrived as *rows* points, and remember it.

        The same name as another function is another metric here; which of them may have the name
        is settled where the store is known.
        """
        metric = stable_id("meter", function, name)
        self._meters.setdefault(metric, (name, function, unit))
        self._meter_rows[metric] += rows
        return metric

    def facts(self, metric: int | NDArray[np.int64], **parts: NDArray[Any]) -> None:
        """Add rows of FACTS; the parts of the state that are not given are empty."""
        rows = len(parts["entity"])
        parts["metric"] = np.broadcast_to(np.asarray(metric, dtype=np.int64), (rows,))
        for field in FACTS:
            empty = 0 if field.name in _ZERO else np.nan
            part = parts.get(field.name)
            self._pending[field.name].append(np.full(rows, empty) if part is None else part)
        self._rows += rows
        if self._rows > _COMPACT_AT:
            self._compact()

    def slots(
        self, metric: int, *, slot: NDArray[Any], names: list[str], **parts: NDArray[Any]
    ) -> None:
        """Add rows of SLOTS; *slot* are codes into *names*."""
        rows = len(slot)
        columns = {
            **{name: pa.array(part) for name, part in parts.items()},
            "metric": pa.array(np.full(rows, metric, dtype=np.int64)),
            "slot": pa.array(names, pa.string()).take(pa.array(slot)),
        }
        if "real" not in columns:
            columns["real"] = pa.array(np.zeros(rows))
        self._slots.append(_table(columns, SLOTS))
        self._rows += rows

    def tops(self, table: pa.Table) -> None:
        """Add rows of TOPN."""
        self._tops.append(table)

    def readings(self, table: pa.Table) -> None:
        """Add rows of READINGS."""
        self._readings.append(table)

    def leave_out(self, cause: str, rows: int) -> None:
        """Count rows that are in no metric."""
        if rows:
            self._left_out[cause] += rows

    def finish(self) -> Partials:
        """Return all that has gathered; a key may have several rows."""
        self._gather()
        entities = [(key, *names) for names, key in self._ids.items()]
        meters = [(metric, *texts) for metric, texts in self._meters.items()]
        return Partials(
            facts=_concatenated(self._facts, FACTS),
            slots=_concatenated(self._slots, SLOTS),
            entities=_from_rows(entities, ENTITIES),
            meters=_from_rows(meters, METERS),
            meter_rows=_from_rows(list(self._meter_rows.items()), METER_ROWS),
            topn=_concatenated(self._tops, TOPN),
            readings=_concatenated(self._readings, READINGS),
            counts=_from_rows(list(self._left_out.items()), COUNTS),
        )

    def _compact(self) -> None:
        self._gather()
        self._facts = [combine_facts(_concatenated(self._facts, FACTS))]
        self._slots = [combine_slots(_concatenated(self._slots, SLOTS))]
        self._rows = 0

    def _gather(self) -> None:
        if self._pending:
            columns = {name: np.concatenate(parts) for name, parts in self._pending.items()}
            self._pending.clear()
            arrays = {
                name: pa.array(column, FACTS.field(name).type, from_pandas=True)
                if name in {"low", "high", "last"}
                else _whole_or_real(column, FACTS.field(name).type)
                for name, column in columns.items()
            }
            self._facts.append(_table(arrays, FACTS))


def _whole_or_real(column: NDArray[Any], kind: pa.DataType) -> pa.Array:
    if column.dtype.kind == "f" and pa.types.is_integer(kind):
        missing = np.isnan(column)  # only last_at, of facts that have no last value
        return pa.array(np.where(missing, 0, column).astype(np.int64), kind, mask=missing)
    return pa.array(column.astype(kind.to_pandas_dtype(), copy=False), kind)


def _table(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.Table:
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _concatenated(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _from_rows(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
