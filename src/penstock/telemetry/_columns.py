"""Arrow arrays as the native decoder handles them: flattened lists, masks, raw messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "INT64_MAX",
    "TEXT_MAP",
    "Flags",
    "Rows",
    "fixed_ids",
    "fixed_or_null",
    "flatten",
    "joined",
    "list_lengths",
    "numbers",
    "offsets_of",
    "one_by_one",
    "present",
    "small",
    "spread",
    "times",
    "unique_messages",
]

Rows: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"

INT64_MAX = 2**63 - 1
TEXT_MAP = pa.map_(pa.string(), pa.string())

# Offsets of texts have 32 bits: one array holds less than 2 GiB. Half of that leaves room for
# what is added to it later.
_CHUNK_BYTES = 1 << 30


def numbers(array: pa.Array) -> NDArray[Any]:
    """Return an array without nulls for NumPy."""
    return np.asarray(array.to_numpy(zero_copy_only=False))


def flatten(lists: pa.Array) -> tuple[pa.Array, Rows]:
    """Return the elements of all lists, and for each the position of its list."""
    parents = numbers(pc.list_parent_indices(lists)).astype(np.int64, copy=False)
    return pc.list_flatten(lists), parents


def list_lengths(lists: pa.Array) -> Rows:
    """Return how many elements each list has; none of them is null."""
    return numbers(pc.list_value_length(lists)).astype(np.int64, copy=False)


def offsets_of(lengths: Rows) -> pa.Array:
    """Return where each of the lists starts in their elements, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    return pa.array(starts)


def joined(raw: pa.Array) -> pa.Array:
    """Return the parts of each raw message (a list of bytes) as one; no parts are no bytes."""
    if np.all(list_lengths(raw) == 1):
        return pc.list_flatten(raw)
    return pc.binary_join(raw.cast(pa.list_(pa.binary())), b"")


def one_by_one(
    column: pa.Array, chosen: pa.Array, convert: Callable[[Any], str | None]
) -> pa.Array:
    """Return texts of the chosen values, each converted by itself; null for all others."""
    texts = np.full(len(column), None, dtype=object)
    texts[numbers(chosen)] = [convert(value) for value in column.filter(chosen).to_pylist()]
    return pa.array(texts, pa.string())


def unique_messages(raw: pa.Array) -> tuple[pa.Array, Rows]:
    """Return the distinct raw messages, and for each row which of them it has."""
    encoded = joined(raw).dictionary_encode()
    return encoded.dictionary, numbers(encoded.indices).astype(np.int64, copy=False)


def present(texts: pa.Array) -> pa.Array:
    """Return the texts with null for empty ones: OTLP does not tell absent from empty."""
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)


def small(values: pa.Array, most: int) -> pa.Array:
    """Return enumerated values; those outside of 0 to *most* are 0, "unspecified"."""
    plain = numbers(values)
    return pa.array(np.where((plain >= 0) & (plain <= most), plain, 0).astype(np.int8))


def times(values: pa.Array, *, zero_is_null: bool = False) -> pa.Array:
    """Return times that are known to fit into 64 bits with a sign."""
    plain = numbers(values).astype(np.int64)
    return pa.array(plain, mask=plain == 0) if zero_is_null else pa.array(plain)


def fixed_ids(ids: pa.Array, width: int) -> pa.Array:
    """Return ids that all have *width* bytes."""
    return pc.cast(ids, pa.binary(width))


def fixed_or_null(ids: pa.Array, width: int) -> pa.Array:
    """Return ids; null for those that are not of *width* bytes, or are all zeroes."""
    is_usable = pc.and_(
        pc.equal(pc.binary_length(ids), width), pc.not_equal(ids, pa.scalar(bytes(width)))
    )
    return pc.cast(pc.if_else(is_usable, ids, None), pa.binary(width))


def spread(maps: pa.Array, rows: Rows) -> pa.ChunkedArray:
    """Return the maps of the given rows, cut where one array could not hold all their texts."""
    sizes = _map_bytes(maps)
    total = np.cumsum(sizes[rows])
    if not len(rows) or total[-1] <= _CHUNK_BYTES:
        return pa.chunked_array([maps.take(pa.array(rows))], TEXT_MAP)
    cuts = np.flatnonzero(np.diff(total // _CHUNK_BYTES)) + 1
    return pa.chunked_array([maps.take(pa.array(part)) for part in np.split(rows, cuts)], TEXT_MAP)


def _map_bytes(maps: pa.MapArray) -> Rows:
    """Return how many bytes of text each map has."""
    lengths = np.zeros(len(maps.keys) + 1, dtype=np.int64)
    for texts in (maps.keys, maps.items):
        lengths[1:] += numbers(pc.binary_length(texts))
    sizes: Rows = np.diff(np.cumsum(lengths)[numbers(maps.offsets)])
    return sizes
