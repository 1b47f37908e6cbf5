"""Metric points of the plain decoder: a row for each, and several for a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.telemetry._faults import explicit_buckets, point_fault
from penstock.telemetry._plain_values import (
    RejectedError,
    attributes_of,
    known,
    number_text,
)
from penstock.telemetry.schema import Temporality

if TYPE_CHECKING:
    from penstock.telemetry._plain_values import Message, Row

__all__ = ["point_rows"]

_NO_RECORDED_VALUE = 1
_OPTIONAL = ("sum", "min", "max")


def point_rows(metric: Message, point: Message) -> list[Row]:
    """Return the rows of a point, or raise RejectedError."""
    kind = metric.WhichOneof("data")
    fault = point_fault(kind, point)
    if fault is not None:
        raise RejectedError(fault)
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
        bounds, counts = explicit_buckets(point)
    if not _is_recorded(point):
        return {}
    row = {"count": point.count, "bounds": bounds, "bucket_counts": counts}
    return row | {name: getattr(point, name) for name in _OPTIONAL if point.HasField(name)}


def _summary(row: Row, point: Message) -> list[Row]:
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
