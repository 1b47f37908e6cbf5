"""Metric points of OTLP requests as columns of :data:`penstock.telemetry.POINTS`.

Each kind of metric has points of its own shape and is decoded by itself, so the rows are ordered
by kind, and within a kind as they were sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry._attributes import Attributes
from penstock.telemetry._columns import INT64_MAX, flatten, numbers, present, small, times
from penstock.telemetry._envelope import Envelope
from penstock.telemetry._histograms import explicit_buckets
from penstock.telemetry._values import AmbiguousError, double_texts
from penstock.telemetry.schema import POINTS, Signal, Temporality

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.telemetry._columns import Flags, Rows
    from penstock.telemetry._envelope import Rejections

__all__ = ["decode_points"]

_KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
_NO_RECORDED_VALUE = 1


def decode_points(payloads: Sequence[bytes], rejections: Rejections) -> pa.Table:
    """Return the metric points of serialized requests."""
    envelope = Envelope.of(Signal.POINTS, payloads)
    _check(envelope.records)
    parts = [_Points.of(envelope, kind) for kind in _KINDS]
    tables = [
        table
        for points in parts
        if len(points.envelope.records)
        for table in _DECODERS[points.kind](points, rejections)
    ]
    return pa.concat_tables(tables) if tables else POINTS.empty_table()


def _check(metrics: pa.StructArray) -> None:
    sent = np.zeros(len(metrics), dtype=np.int8)
    for kind in _KINDS:
        sent += numbers(metrics.field(kind).is_valid())
    if np.any(sent > 1):
        raise AmbiguousError


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """The points of all metrics of one kind, with the metric (a row of *metrics*) of each."""

    kind: str
    envelope: Envelope
    metrics: pa.StructArray
    metric: Rows

    @staticmethod
    def of(envelope: Envelope, kind: str) -> _Points:
        metrics = envelope.records
        points, metric = flatten(metrics.field(kind).field("data_points"))
        return _Points(kind, envelope.taken(metric, points), metrics, metric)

    def __getitem__(self, name: str) -> pa.Array:
        return self.envelope.records.field(name)

    def without(
        self, rejections: Rejections, faults: Mapping[str, Flags]
    ) -> tuple[_Points, Flags | None]:
        """Return the points that have none of *faults*, and which those are (None: all)."""
        start, time = numbers(self["start_time_unix_nano"]), numbers(self["time_unix_nano"])
        late = (start > INT64_MAX) | (time > INT64_MAX)
        usable = rejections.usable({"time": late, **faults})
        if usable is None:
            return self, None
        envelope = self.envelope.filtered(usable)
        return _Points(self.kind, envelope, self.metrics, self.metric[usable]), usable

    def taken(self, rows: Rows) -> _Points:
        """Return the points of the given rows, some perhaps several times."""
        envelope = self.envelope.taken(rows, self.envelope.records.take(pa.array(rows)))
        return _Points(self.kind, envelope, self.metrics, self.metric[rows])

    def of_metric(self, name: str) -> pa.Array:
        """Return a field that the points have from their metric's data."""
        return self.metrics.field(self.kind).field(name).take(pa.array(self.metric))

    def temporality(self) -> pa.Array:
        return small(self.of_metric("aggregation_temporality"), max(Temporality))

    def is_recorded(self) -> pa.Array:
        return pa.array(numbers(self["flags"]) & _NO_RECORDED_VALUE == 0)

    def recorded(self, values: pa.Array) -> pa.Array:
        """Return the values; null for points that say that there was none."""
        return pc.if_else(self.is_recorded(), values, None)

    def columns(self) -> dict[str, Any]:
        """Return the columns that all kinds have."""
        metric = pa.array(self.metric)
        return {
            "metric_name": self.metrics.field("name").take(metric),
            "unit": present(self.metrics.field("unit").take(metric)),
            "attributes": Attributes.of(self["attributes"]).maps(),
            "start_ns": times(self["start_time_unix_nano"], zero_is_null=True),
            "time_ns": times(self["time_unix_nano"]),
            **self.envelope.columns(),
        }


def _table(rows: int, kind: str, columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of points; columns that are not given are null, or as a gauge has them."""
    given = {
        "kind": pa.repeat(pa.scalar(kind), rows),
        "temporality": pa.repeat(pa.scalar(0, pa.int8()), rows),
        "monotonic": pa.repeat(pa.scalar(value=False), rows),
        **columns,
    }
    arrays = [
        given[field.name] if field.name in given else pa.nulls(rows, field.type) for field in POINTS
    ]
    return pa.table(arrays, schema=POINTS)


def _numbers(points: _Points, rejections: Rejections) -> list[pa.Table]:
    points, _ = points.without(rejections, {})
    doubles, whole = points["as_double"], points["as_int"]
    if pc.any(pc.and_(doubles.is_valid(), whole.is_valid())).as_py():
        raise AmbiguousError
    values = pc.coalesce(doubles, pc.cast(whole, pa.float64(), safe=False))
    columns = {**points.columns(), "value": points.recorded(values)}
    if points.kind == "sum":
        columns["temporality"] = points.temporality()
        columns["monotonic"] = points.of_metric("is_monotonic")
    return [_table(len(values), points.kind, columns)]


def _histograms(points: _Points, rejections: Rejections) -> list[pa.Table]:
    counts = points["bucket_counts"]
    points, usable = points.without(rejections, {"count": _is_too_many(points, counts)})
    counts = counts if usable is None else counts.filter(pa.array(usable))
    return [_histogram_table(points, points["explicit_bounds"], _as_signed(counts))]


def _exponential_histograms(points: _Points, rejections: Rejections) -> list[pa.Table]:
    buckets = explicit_buckets(points.envelope.records)
    faults = {
        "count": _is_too_many(points, buckets.counts),
        "bounds": ~buckets.is_ascending,
    }
    points, usable = points.without(rejections, faults)
    bounds, counts = buckets.bounds, buckets.counts
    if usable is not None:
        bounds, counts = (one.filter(pa.array(usable)) for one in (bounds, counts))
    return [_histogram_table(points, bounds, _as_signed(counts))]


def _is_too_many(points: _Points, counts: pa.Array) -> Flags:
    """Return which points count more than a column can hold, in total or in a bucket."""
    flat, point = flatten(counts)
    result = numbers(points["count"]) > INT64_MAX
    result[point[numbers(flat) > INT64_MAX]] = True
    return result


def _as_signed(lists: pa.Array) -> pa.Array:
    return pc.cast(lists, pa.list_(pa.int64()))


def _histogram_table(points: _Points, bounds: pa.Array, counts: pa.Array) -> pa.Table:
    columns = {
        **points.columns(),
        "temporality": points.temporality(),
        "count": points.recorded(pc.cast(points["count"], pa.int64())),
        **{name: points.recorded(points[name]) for name in ("sum", "min", "max")},
        "bounds": _recorded_lists(points, pc.cast(bounds, pa.list_(pa.float64()))),
        "bucket_counts": _recorded_lists(points, counts),
    }
    return _table(len(counts), "histogram", columns)


def _recorded_lists(points: _Points, lists: pa.Array) -> pa.Array:
    is_recorded = numbers(points.is_recorded())
    if is_recorded.all():
        return lists
    return lists.take(pa.array(np.arange(len(lists)), mask=~is_recorded))


def _summaries(points: _Points, rejections: Rejections) -> list[pa.Table]:
    points, _ = points.without(rejections, {"count": numbers(points["count"]) > INT64_MAX})
    rows = len(points.metric)
    columns = {
        **points.columns(),
        "temporality": pa.repeat(pa.scalar(int(Temporality.CUMULATIVE), pa.int8()), rows),
        "monotonic": pa.repeat(pa.scalar(value=True), rows),
    }
    return [_quantiles(points), *(_total(points, name, columns) for name in ("count", "sum"))]


def _total(points: _Points, name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Return the count or the sum of each summary as a sum."""
    named = pc.binary_join_element_wise(columns["metric_name"], name, "_")
    values = points.recorded(pc.cast(points[name], pa.float64(), safe=False))
    return _table(len(values), "sum", {**columns, "metric_name": named, "value": values})


def _quantiles(points: _Points) -> pa.Table:
    """Return a gauge for each quantile of each summary."""
    quantiles, point = flatten(points["quantile_values"])
    points = points.taken(point)
    texts = double_texts(quantiles.field("quantile"))
    columns = {
        **points.columns(),
        "attributes": Attributes.of(points["attributes"]).maps_with("quantile", texts),
        "value": points.recorded(quantiles.field("value")),
    }
    return _table(len(point), "gauge", columns)


_DECODERS: Mapping[str, Callable[[_Points, Rejections], list[pa.Table]]] = {
    "gauge": _numbers,
    "sum": _numbers,
    "histogram": _histograms,
    "exponential_histogram": _exponential_histograms,
    "summary": _summaries,
}
