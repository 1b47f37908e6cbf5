"""Exponential histograms as histograms with explicit bounds.

The bucket with index *i* of a histogram of scale *s* holds what is above 2^(i / 2^s) and at most
2^((i + 1) / 2^s); negative ones hold the same, mirrored. In between lies the bucket of what
counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.telemetry._columns import flatten, list_lengths, numbers, offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.telemetry._columns import Flags, Rows

__all__ = ["Buckets", "explicit_buckets"]

# Scales beyond these put all bounds at 1, or beyond all doubles. They only keep exponents small.
_LOWEST_SCALE, _HIGHEST_SCALE = -64, 128


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """For each histogram the upper *bounds* and the *counts* of its buckets, and one more count.

    Bounds that are not ascending have met at the end of what a double can hold or tell apart.
    """

    bounds: pa.ListArray
    counts: pa.ListArray
    is_ascending: Flags


def explicit_buckets(points: pa.StructArray) -> Buckets:
    """Return the buckets of ExponentialHistogramDataPoint messages."""
    negative, positive = points.field("negative"), points.field("positive")
    below = list_lengths(negative.field("bucket_counts"))
    above = list_lengths(positive.field("bucket_counts"))
    lengths = below + 1 + above
    starts = np.cumsum(lengths) - lengths
    zero = starts + below
    bounds = np.empty(int(lengths.sum()))
    counts = np.zeros(len(bounds) + len(points), dtype=np.uint64)
    point_of = np.repeat(np.arange(len(points)), lengths)
    # Each histogram has one count more than bounds, so counts move on by one for each before it.
    counted = np.arange(len(bounds)) + point_of
    bounds[zero] = numbers(points.field("zero_threshold"))
    counts[counted[zero]] = numbers(points.field("zero_count"))
    scale = numbers(points.field("scale"))
    for side, sign in ((negative, -1), (positive, 1)):
        values, point, position = _elements(side.field("bucket_counts"))
        index = numbers(side.field("offset")).astype(np.int64)[point] + position
        # Mirrored, the upper bound is the one that lies closer to zero, and the order is reversed.
        target = zero[point] + sign * (position + 1)
        bounds[target] = sign * _power(index + 1 if sign > 0 else index, scale[point])
        counts[counted[target]] = values
    return Buckets(
        pa.ListArray.from_arrays(offsets_of(lengths), pa.array(bounds)),
        pa.ListArray.from_arrays(offsets_of(lengths + 1), pa.array(counts)),
        _are_ascending(bounds, point_of, len(points)),
    )


def _elements(lists: pa.Array) -> tuple[NDArray[Any], Rows, Rows]:
    """Return the elements of all lists, the list of each and its position there."""
    values, parent = flatten(lists)
    lengths = list_lengths(lists)
    starts = np.cumsum(lengths) - lengths
    return numbers(values), parent, np.arange(len(parent)) - starts[parent]


def _power(index: Rows, scale: NDArray[Any]) -> NDArray[np.float64]:
    """Return 2 to the power of index / 2^scale.

    In extended precision where there is one: rounded from that, the bounds are the same on all
    machines, and points from different senders meet in the same buckets.
    """
    clipped = np.clip(scale, _LOWEST_SCALE, _HIGHEST_SCALE)
    with np.errstate(over="ignore", under="ignore"):
        exponent = np.ldexp(index.astype(np.longdouble), -clipped)
        powers: NDArray[np.float64] = np.exp2(exponent).astype(np.float64)
    return powers


def _are_ascending(bounds: NDArray[np.float64], point_of: Rows, points: int) -> Flags:
    """Return which points have only finite bounds, each above the one before."""
    result = np.ones(points, dtype=np.bool_)
    result[point_of[~np.isfinite(bounds)]] = False
    is_next = point_of[1:] == point_of[:-1]
    result[point_of[1:][is_next & ~(bounds[1:] > bounds[:-1])]] = False
    return result
