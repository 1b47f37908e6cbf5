"""Lists of attributes as maps of texts, and as columns of their own."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry._columns import TEXT_MAP, flatten, numbers, offsets_of
from penstock.telemetry._values import Values
from penstock.telemetry.schema import ALIASES, PROMOTED, SPANS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.telemetry._columns import Flags, Rows

__all__ = ["Attributes"]

# Codes of this size are sorted by their digits, in one pass over them.
_FEW = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class Attributes:
    """The attributes of some rows, one after the other; of equal keys of a row the last counts.

    *order* sorts them by key, and *runs* is where the attributes of each key lie in that order.
    """

    row: Rows
    keys: pa.Array
    values: Values
    texts: pa.Array
    rows: int
    order: NDArray[Any]
    runs: dict[str, slice]
    kept: Flags

    @staticmethod
    def of(lists: pa.Array) -> Attributes:
        """Take over a column of lists of KeyValue messages."""
        pairs, row = flatten(lists)
        keys, values = pairs.field("key"), Values.of(pairs.field("value"))
        encoded = keys.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = numbers(encoded.indices)
        codes = codes.astype(np.int16) if len(names) < _FEW else codes
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
        runs = {name: slice(*span) for name, span in zip(names, pairwise([0, *ends]), strict=True)}
        kept = _last_ones(codes, row, order)
        return Attributes(row, keys, values, values.filled(), len(lists), order, runs, kept)

    def maps(self, dropped: Flags | None = None) -> pa.MapArray:
        """Return each row's attributes, without those that are dropped."""
        kept = self.kept if dropped is None else self.kept & ~dropped
        row, keys, texts = self.row, self.keys, self.texts
        if not kept.all():
            chosen = pa.array(np.flatnonzero(kept))
            row, keys, texts = row[kept], keys.take(chosen), texts.take(chosen)
        offsets = offsets_of(np.bincount(row, minlength=self.rows))
        return pa.MapArray.from_arrays(offsets, keys, texts, type=TEXT_MAP)

    def maps_with(self, name: str, texts: pa.Array) -> pa.MapArray:
        """Return each row's attributes, with its one of *texts* as the last, under *name*."""
        dropped = np.zeros(len(self.row), dtype=np.bool_)
        dropped[self.order[self.runs.get(name, slice(0))]] = True
        maps = self.maps(dropped)
        # Everything that is there already, and then all that is added, sorted into the rows.
        row = np.repeat(np.arange(self.rows), np.diff(numbers(maps.offsets)))
        order = pa.array(np.argsort(np.append(row, np.arange(self.rows)), kind="stable"))
        keys = pa.concat_arrays([maps.keys, pa.repeat(pa.scalar(name), self.rows)])
        items = pa.concat_arrays([maps.items, texts])
        offsets = offsets_of(np.diff(numbers(maps.offsets)) + 1)
        return pa.MapArray.from_arrays(offsets, keys.take(order), items.take(order), type=TEXT_MAP)

    def positions(self, names: Sequence[str]) -> Rows:
        """Return where each row has the first of *names* that it has; -1 if it has none."""
        found = np.full(self.rows, -1, dtype=np.int64)
        for name in reversed(names):
            run = self.runs.get(name)
            if run is not None:
                where = self.order[run]
                # Of equal keys the last is assigned last.
                found[self.row[where]] = where
        return found

    def first_text(self, names: Sequence[str], default: str) -> pa.Array:
        """Return each row's text of the first of *names* that is there and not empty."""
        result = pa.nulls(self.rows, pa.string())
        for name in names:
            texts = self.texts.take(_or_null(self.positions((name,))))
            result = pc.coalesce(result, pc.if_else(pc.equal(texts, ""), None, texts))
        return pc.fill_null(result, default)

    def promoted(self) -> tuple[dict[str, pa.Array], pa.MapArray]:
        """Return the columns of promoted attributes, and the maps of the rest."""
        dropped = np.zeros(len(self.row), dtype=np.bool_)
        columns = {}
        for name, column in PROMOTED.items():
            kind = SPANS.field(column).type
            names = (name, *ALIASES.get(name, ()))
            if not any(one in self.runs for one in names):
                columns[column] = pa.nulls(self.rows, kind)
                continue
            where = self.positions(names)
            columns[column] = self._column(where, kind)
            self._mark(dropped, name, where, columns[column])
        return columns, self.maps(dropped)

    def _column(self, where: Rows, kind: pa.DataType) -> pa.Array:
        if pa.types.is_string(kind):
            return self.texts.take(_or_null(where))
        return self.values.whole_numbers(_or_null(where), kind)

    def _mark(self, dropped: Flags, name: str, where: Rows, column: pa.Array) -> None:
        """Mark the attributes called *name* that have become part of *column*."""
        if name in self.runs:
            mine = self.positions((name,))
            taken = (mine >= 0) & (mine == where) & numbers(column.is_valid())
            dropped[mine[taken]] = True


def _or_null(positions: Rows) -> pa.Array:
    return pa.array(positions, mask=positions < 0)


def _last_ones(codes: NDArray[Any], row: Rows, order: NDArray[Any]) -> Flags:
    """Return for each attribute whether no later one of its row has the same key."""
    kept = np.ones(len(codes), dtype=np.bool_)
    code, owner = codes[order], row[order]
    is_repeated = (code[1:] == code[:-1]) & (owner[1:] == owner[:-1])
    kept[order[:-1][is_repeated]] = False
    return kept
