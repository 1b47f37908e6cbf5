"""What L1 hands on: tables of partial states, and how such tables add up.

Facts and slots are keyed by (metric, entity, bucket); every other column is one part of a
:class:`penstock.metrics.functions.State`. Tables of any two batches, tasks or granularities
combine in any order with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.columns import group_codes, sums_by_group
from penstock.store.schemas import (
    COUNTS,
    ENTITIES,
    FACTS,
    FILES,
    KEY,
    METER_ROWS,
    METERS,
    READINGS,
    SLOTS,
    TOPN,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "COUNTS",
    "ENTITIES",
    "FACTS",
    "FILES",
    "KEY",
    "METERS",
    "METER_ROWS",
    "READINGS",
    "SLOTS",
    "TOPN",
    "KeyGroups",
    "Partials",
    "combine_facts",
    "combine_slots",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partials:
    """All that L1 makes of some telemetry."""

    facts: pa.Table
    slots: pa.Table
    entities: pa.Table
    meters: pa.Table
    meter_rows: pa.Table
    topn: pa.Table
    readings: pa.Table
    counts: pa.Table

    @staticmethod
    def concatenated(parts: list[Partials]) -> Partials:
        """Return several partials as one; rows with the same key are added up."""
        tables = {
            field.name: pa.concat_tables([getattr(part, field.name) for part in parts])
            for field in fields(Partials)
        }
        tables["facts"] = combine_facts(tables["facts"])
        tables["slots"] = combine_slots(tables["slots"])
        tables["entities"] = _first_of_each(tables["entities"], "entity")
        tables["meters"] = _first_of_each(tables["meters"], "metric")
        return Partials(**tables)

    def to_bytes(self) -> list[bytes]:
        """Return each table as an Arrow stream, in the order of the fields."""
        return [_to_stream(getattr(self, field.name)) for field in fields(Partials)]

    @staticmethod
    def from_bytes(streams: list[bytes]) -> Partials:
        """Return what :meth:`to_bytes` was called on."""
        names = [field.name for field in fields(Partials)]
        tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
        return Partials(**dict(zip(names, tables, strict=True)))


def combine_facts(facts: pa.Table) -> pa.Table:
    """Add up facts with the same key."""
    groups = KeyGroups.of(facts, KEY)
    columns: dict[str, Any] = groups.keys()
    for name in ("count", "total", "base", "real"):
        columns[name] = sums_by_group(groups.number, facts[name].to_numpy(), groups.size)
    for name, choose in (("low", np.fmin), ("high", np.fmax)):
        columns[name] = _extremes(groups, facts[name], choose)
    columns["last"], columns["last_at"] = _newest(groups, facts)
    return pa.table(columns, schema=FACTS)


def combine_slots(slots: pa.Table) -> pa.Table:
    """Add up slots with the same key and name."""
    groups = KeyGroups.of(slots, (*KEY, "slot"))
    columns: dict[str, Any] = groups.keys()
    for name in ("count", "real"):
        columns[name] = sums_by_group(groups.number, slots[name].to_numpy(), groups.size)
    return pa.table(columns, schema=SLOTS)


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """Rows by key: a number per row, and the key columns of each number.

    Several times faster than grouping by the columns themselves: they become one whole number.
    """

    number: NDArray[Any]
    columns: dict[str, pa.Array]

    @staticmethod
    def of(table: pa.Table, names: tuple[str, ...]) -> KeyGroups:
        """Group the rows of *table* by the columns *names*."""
        number = np.zeros(table.num_rows, dtype=np.int64)
        size = 1
        codes: list[NDArray[Any]] = []
        for name in names:
            encoded = pc.dictionary_encode(table[name].combine_chunks())
            values = len(encoded.dictionary)
            code = encoded.indices.to_numpy(zero_copy_only=False)
            # Numbered anew after each column, so that the product of all never overflows.
            number, distinct = group_codes(number * values + code, size * max(values, 1))
            codes = [previous[distinct // values] for previous in codes] if values else codes
            codes.append(distinct % values if values else distinct)
            size = len(distinct)
        dictionaries = [pc.unique(table[name].combine_chunks()) for name in names]
        return KeyGroups(
            number,
            {
                name: values.take(pa.array(code))
                for name, values, code in zip(names, dictionaries, codes, strict=True)
            },
        )

    @property
    def size(self) -> int:
        """How many different keys there are."""
        return len(next(iter(self.columns.values())))

    def keys(self) -> dict[str, pa.Array]:
        """Return the key columns, a row per number."""
        return dict(self.columns)


def _extremes(groups: KeyGroups, column: pa.ChunkedArray, choose: np.ufunc) -> pa.Array:
    """Return the extreme of each group; null where it has none."""
    found = np.full(groups.size, np.nan)
    rows = np.flatnonzero(column.is_valid().to_numpy())
    choose.at(found, groups.number[rows], column.to_numpy()[rows])
    return pa.array(found, from_pandas=True)


def _newest(groups: KeyGroups, facts: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return last and last_at of each group: the newest, of equally new ones the largest."""
    rows = np.flatnonzero(facts["last_at"].is_valid().to_numpy())
    taken = facts.select(["last", "last_at"]).take(pa.array(rows))
    last, last_at = taken["last"].to_numpy(), taken["last_at"].to_numpy()
    order = np.lexsort((last, last_at))
    # Of several assignments to one place the last one stands.
    winner = np.full(groups.size, -1)
    winner[groups.number[rows][order]] = order
    chosen = pa.array(winner, mask=winner < 0)
    return (pa.array(last, pa.float64()).take(chosen), pa.array(last_at, pa.int64()).take(chosen))


def _first_of_each(table: pa.Table, key: str) -> pa.Table:
    position = pa.array(range(table.num_rows), pa.int64())
    numbered = table.select([key]).append_column("position", position)
    first = numbered.group_by(key).aggregate([("position", "min")])
    return table.take(first["position_min"])


def _to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
