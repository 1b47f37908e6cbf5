"""Cutting a stream of record batches into tables of a given length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["cut"]


def cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of *batches*, in their order, *rows* to a table; the last has the rest."""
    parts: list[pa.RecordBatch] = []
    room = rows
    for batch in batches:
        taken = 0
        while taken < batch.num_rows:
            part = batch.slice(taken, room)
            parts.append(part)
            taken += part.num_rows
            room -= part.num_rows
            if room == 0:
                yield pa.Table.from_batches(parts)
                parts, room = [], rows
    if parts:
        yield pa.Table.from_batches(parts)
