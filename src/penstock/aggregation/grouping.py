"""Entities of rows: each distinct combination of names once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.aggregation.columns import Texts, group_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.aggregation.accumulator import Accumulator

__all__ = ["entity_codes"]


def entity_codes(
    parts: Sequence[Texts], scope: str, into: Accumulator
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Number the entities that *parts* make up; return numbers per row, and the id of each.

    A part that is null is an empty name.
    """
    codes = np.zeros(len(parts[0].codes), dtype=np.int64)
    size = 1
    for part in parts:
        names = len(part.values) + 1
        # Numbered anew after each part, so that the product of all never overflows.
        codes, distinct = group_codes(codes * names + (part.codes + 1), size * names)
        size = len(distinct)
    some_row = np.zeros(size, dtype=np.int64)
    some_row[codes] = np.arange(len(codes))
    columns = [
        [part.values[code] if code >= 0 else "" for code in part.codes[some_row].tolist()]
        for part in parts
    ]
    ids = [into.entity(scope, names) for names in zip(*columns, strict=True)]
    return codes, np.array(ids, dtype=np.int64)
