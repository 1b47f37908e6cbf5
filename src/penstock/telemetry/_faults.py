"""Why a record of a valid request cannot be kept."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["explicit_buckets", "log_fault", "point_fault", "span_fault"]

# A message of any class.
Message: TypeAlias = Any

_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_TOO_LARGE = 2**63  # for times and counts: they become 64-bit numbers with a sign


def span_fault(span: Message) -> str | None:
    """Return the field of a span that makes it useless, if one does."""
    if len(span.trace_id) != _TRACE_ID_BYTES:
        return "trace_id"
    if len(span.span_id) != _SPAN_ID_BYTES:
        return "span_id"
    if len(span.parent_span_id) not in {0, _SPAN_ID_BYTES}:
        return "parent_span_id"
    if span.start_time_unix_nano >= _TOO_LARGE or span.end_time_unix_nano >= _TOO_LARGE:
        return "time"
    return None


def log_fault(log: Message) -> str | None:
    """Return the field of a log record that makes it useless, if one does."""
    is_late = max(log.time_unix_nano, log.observed_time_unix_nano) >= _TOO_LARGE
    return "time" if is_late else None


def point_fault(kind: str, point: Message) -> str | None:
    """Return the field of a metric point of a *kind* that makes it useless, if one does."""
    if max(point.start_time_unix_nano, point.time_unix_nano) >= _TOO_LARGE:
        return "time"
    if kind == "summary":
        return "count" if point.count >= _TOO_LARGE else None
    if kind == "histogram":
        return "count" if max([point.count, *point.bucket_counts]) >= _TOO_LARGE else None
    if kind == "exponential_histogram":
        bounds, counts = explicit_buckets(point)
        if max([point.count, *counts]) >= _TOO_LARGE:
            return "count"
        return None if _is_ascending(bounds) else "bounds"
    return None


def explicit_buckets(point: Message) -> tuple[list[float], list[int]]:
    """Return upper bounds and counts of an exponential histogram's buckets."""
    below, above = point.negative, point.positive
    buckets = [
        (-_power(below.offset + position, point.scale), count)
        for position, count in enumerate(below.bucket_counts)
    ]
    buckets.reverse()  # the largest of the negative values first
    buckets.append((point.zero_threshold, point.zero_count))
    buckets.extend(
        (_power(above.offset + position + 1, point.scale), count)
        for position, count in enumerate(above.bucket_counts)
    )
    return [bound for bound, _ in buckets], [*(count for _, count in buckets), 0]


def _power(index: int, scale: int) -> float:
    exponent = index * 2.0 ** -min(max(scale, -64), 128)
    try:
        return float(2.0**exponent)
    except OverflowError:
        return math.inf


def _is_ascending(bounds: Sequence[float]) -> bool:
    is_finite = all(math.isfinite(bound) for bound in bounds)
    return is_finite and all(low < high for low, high in pairwise(bounds))
