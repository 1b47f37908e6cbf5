"""Columns as L1 computes with them: texts by code, numbers with a mask, groups by number.

A column of texts is kept as codes into its distinct values. Whatever is asked of a text (a
comparison, a prefix, a name built from three columns) is then worked out once per distinct value
or combination, and a lookup table carries the answer to all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Flags", "Ints", "Numbers", "Rows", "Texts", "group_codes", "sums_by_group"]

Rows: TypeAlias = "NDArray[np.intp]"
Flags: TypeAlias = "NDArray[np.bool_]"
Ints: TypeAlias = "NDArray[np.int64]"

# Beyond this many possible codes per row, a table of all of them costs more than hashing.
_DENSE_FACTOR = 8
_DENSE_FLOOR = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Numbers of one type; *valid* is None when none is null."""

    values: NDArray[Any]
    valid: Flags | None = None

    @staticmethod
    def of(array: pa.Array) -> Numbers:
        """Take over an Arrow column of numbers."""
        if array.null_count == 0:
            return Numbers(array.to_numpy(zero_copy_only=False))
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        return Numbers(array.fill_null(0).to_numpy(zero_copy_only=False), valid)

    def take(self, rows: Rows) -> Numbers:
        """Return the numbers of *rows*."""
        return Numbers(self.values[rows], None if self.valid is None else self.valid[rows])

    def is_valid(self) -> Flags:
        """Return for each row whether it has a number."""
        if self.valid is not None:
            return self.valid
        return np.ones(len(self.values), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts as codes into *values*; -1 is null, and so is an empty text."""

    codes: NDArray[np.int32]
    values: Sequence[str]

    @staticmethod
    def of(array: pa.Array) -> Texts:
        """Take over an Arrow column of texts, dictionary-encoded or not."""
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        indices = encoded.indices if encoded.null_count == 0 else encoded.indices.fill_null(-1)
        codes = indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        values = encoded.dictionary.to_pylist()
        if "" in values or None in values:
            absent = np.array([value in {"", None} for value in values] + [True])
            codes = np.where(absent[codes], np.int32(-1), codes)
        return Texts(codes, values)

    @staticmethod
    def constant(value: str, rows: int) -> Texts:
        """Return the same text for every row."""
        return Texts(np.zeros(rows, dtype=np.int32), (value,))

    def take(self, rows: Rows) -> Texts:
        """Return the texts of *rows*."""
        return Texts(self.codes[rows], self.values)

    def is_valid(self) -> Flags:
        """Return for each row whether it has a text."""
        return self.codes >= 0

    def where(self, predicate: Callable[[str], bool]) -> Flags:
        """Return for each row whether it has a text that fulfils *predicate*."""
        # The extra entry is what code -1 finds.
        table = np.array([*(bool(predicate(value)) for value in self.values), False])
        return table[self.codes]

    def mapped(self, rename: Callable[[str], str | None]) -> Texts:
        """Return the texts under other names; None is null."""
        return _renumbered(self.codes, [rename(value) for value in self.values])

    def parsed(self, parse: Callable[[str], float | None], dtype: type[np.number[Any]]) -> Numbers:
        """Return the texts as numbers; what *parse* answers with None is null."""
        parsed = [parse(value) for value in self.values]
        numbers = np.array([*(0 if number is None else number for number in parsed), 0], dtype)
        valid = np.array([*(number is not None for number in parsed), False])
        return Numbers(numbers[self.codes], valid[self.codes])

    @staticmethod
    def joined(build: Callable[..., str | None], *columns: Texts) -> Texts:
        """Return what *build* makes of each row's texts (None for null), once per combination."""
        combined = np.zeros(len(columns[0].codes), dtype=np.int64)
        for column in columns:
            combined = combined * (len(column.values) + 1) + (column.codes + 1)
        size = int(np.prod([float(len(column.values) + 1) for column in columns]))
        codes, combinations = group_codes(combined, size)
        parts = []
        for column in reversed(columns):
            combinations, code = np.divmod(combinations, len(column.values) + 1)
            parts.append([column.values[c - 1] if c else None for c in code.tolist()])
        built = [build(*texts) for texts in zip(*reversed(parts), strict=True)]
        return _renumbered(codes, built)


def _renumbered(codes: NDArray[Any], names: Sequence[str | None]) -> Texts:
    """Return *codes* into *names* as texts whose values are distinct and present."""
    values = {name: None for name in names if name}
    number = {name: code for code, name in enumerate(values)}
    table = np.array([*(number.get(name or "", -1) for name in names), -1], dtype=np.int32)
    return Texts(table[codes], list(values))


def group_codes(keys: Ints, size: int) -> tuple[NDArray[Any], Ints]:
    """Number the distinct *keys* (all from 0 to *size* - 1); return numbers per row, and keys."""
    if size <= max(_DENSE_FLOOR, _DENSE_FACTOR * len(keys)):
        present = np.zeros(size, dtype=np.bool_)
        present[keys] = True
        distinct = np.flatnonzero(present)
        table = np.zeros(size, dtype=np.int64)
        table[distinct] = np.arange(len(distinct))
        return table[keys], distinct
    encoded = pc.dictionary_encode(pa.array(keys))
    return (
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        encoded.dictionary.to_numpy(zero_copy_only=False),
    )


def sums_by_group(groups: NDArray[Any], values: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the sum of *values* per group; whole numbers stay exact."""
    if values.dtype.kind == "f":
        return np.bincount(groups, weights=values, minlength=size)
    # bincount adds in float64, which is exact up to 2**53 and several times faster than add.at.
    if len(values) == 0 or float(np.abs(values).max()) * len(values) < 2.0**53:
        return np.bincount(groups, weights=values, minlength=size).astype(np.int64)
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, groups, values)
    return sums
