"""Metric points of the plain decoder: a row for each, and several for a summary."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.telemetry._plain_values import (
    TOO_LARGE,
    RejectedError,
    attributes_of,
    known,
    number_text,
)
from penstock.telemetry.schema import Temporality

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.telemetry._plain_values import Message, Row

__all__ = ["point_rows"]

_NO_RECORDED_VALUE = 1
_OPTIONAL = ("sum", "min", "max")


def point_rows(metric: Message, point: Message) -> list[Row]:
    """Return the rows of a point, or raise RejectedError."""
    if max(point.start_time_unix_nano, point.time_unix_nano) >= TOO_LARGE:
        raise RejectedError("time")
    row: Row = {
        "metric_name": metric.name,
        "unit": metric.unit or None,
        "kind": "gauge",
        "temporality": 0,
        "monotonic": False,
        "attributes": list(attributes_of(point.attributes).items()),
        "start_ns": point.start_time_unix_nano or None,
        "time_ns": point.time_unix_nano,
    }
    kind = metric.WhichOneof("data")
    if kind == "summary":
        return _summary(row, point)
    if kind == "gauge":
        return [row | {"value": _value(point)}]
    data = getattr(metric, kind)
    row["temporality"] = known(data.aggregation_temporality, 2)
    if kind == "sum":
        return [row | {"kind": "sum", "monotonic": data.is_monotonic, "value": _value(point)}]
    return [row | {"kind": "histogram"} | _histogram(kind, point)]


def _is_recorded(point: Message) -> bool:
    return not point.flags & _NO_RECORDED_VALUE


def _value(point: Message) -> float | None:
    kind = point.WhichOneof("value")
    return float(getattr(point, kind)) if kind is not None and _is_recorded(point) else None


def _histogram(kind: str, point: Message) -> Row:
    if kind == "histogram":
        bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
    else:
        bounds, counts = _explicit(point)
    if max([point.count, *counts]) >= TOO_LARGE:
        raise RejectedError("count")
    if kind == "exponential_histogram" and not _is_ascending(bounds):
        raise RejectedError("bounds")
    if not _is_recorded(point):
        return {}
    row = {"count": point.count, "bounds": bounds, "bucket_counts": counts}
    return row | {name: getattr(point, name) for name in _OPTIONAL if point.HasField(name)}


def _explicit(point: Message) -> tuple[list[float], list[int]]:
    """Return upper bounds and counts of an exponential histogram's buckets."""
    buckets = [(point.zero_threshold, point.zero_count)]
    for position, count in enumerate(point.positive.bucket_counts):
        buckets.append((_power(point.positive.offset + position + 1, point.scale), count))
    for position, count in enumerate(point.negative.bucket_counts):
        buckets.insert(0, (-_power(point.negative.offset + position, point.scale), count))
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


def _summary(row: Row, point: Message) -> list[Row]:
    if point.count >= TOO_LARGE:
        raise RejectedError("count")
    is_recorded = _is_recorded(point)
    rows = []
    for quantile in point.quantile_values:
        attributes = [pair for pair in row["attributes"] if pair[0] != "quantile"]
        attributes.append(("quantile", number_text(quantile.quantile)))
        value = quantile.value if is_recorded else None
        rows.append(row | {"attributes": attributes, "value": value})
    for name, value in (("count", float(point.count)), ("sum", point.sum)):
        total: Row = {
            "metric_name": f"{row['metric_name']}_{name}",
            "kind": "sum",
            "temporality": int(Temporality.CUMULATIVE),
            "monotonic": True,
            "value": value if is_recorded else None,
        }
        rows.append(row | total)
    return rows
