"""Metric points of OTLP requests: what becomes of each kind."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE as CUMULATIVE,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA as DELTA,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
    Summary,
    SummaryDataPoint,
)

from penstock.telemetry.requests import REQUESTS, Decoded
from penstock.telemetry.schema import POINTS, Signal
from tests.unit.telemetry.rig import DECODERS, attribute

if TYPE_CHECKING:
    from collections.abc import Callable

Decode: TypeAlias = "Callable[[Signal, list[bytes]], Decoded]"
Buckets = ExponentialHistogramDataPoint.Buckets
Quantile = SummaryDataPoint.ValueAtQuantile

NO_RECORDED_VALUE = 1


def request_of(*metrics: Metric) -> bytes:
    """Return a serialized request with these metrics."""
    request = REQUESTS[Signal.POINTS]()
    part = request.resource_metrics.add()
    part.resource.attributes.append(attribute("service.name", "cart"))
    scope = part.scope_metrics.add(metrics=metrics)
    scope.scope.name = "meter"
    payload: bytes = request.SerializeToString()
    return payload


def rows_of(decode: Decode, *metrics: Metric) -> list[dict[str, Any]]:
    """Return the rows of a request with these metrics; none is rejected."""
    decoded = decode(Signal.POINTS, [request_of(*metrics)])
    assert decoded.table.schema.equals(POINTS)
    assert decoded.rejected == 0
    rows: list[dict[str, Any]] = decoded.table.to_pylist()
    return rows


def chosen(row: dict[str, Any], names: str) -> list[Any]:
    """Return some columns of a row."""
    return [row[name] for name in names.split()]


@DECODERS
def test_a_gauge_has_the_value_and_nothing_of_a_sum(decode: Decode) -> None:
    """Whole numbers and doubles are doubles in the table; a start of 0 is no start."""
    points = [
        NumberDataPoint(as_int=3, time_unix_nano=9, attributes=[attribute("k", 1)]),
        NumberDataPoint(as_double=0.5, time_unix_nano=2**63 - 1, start_time_unix_nano=1),
        NumberDataPoint(as_int=2**63 - 1),
        NumberDataPoint(),
    ]
    metric = Metric(name="m", unit="By", gauge=Gauge(data_points=points))
    rows = rows_of(decode, metric)
    assert [row["value"] for row in rows] == [3.0, 0.5, 2.0**63, None]
    assert [row["start_ns"] for row in rows] == [None, 1, None, None]
    assert [row["time_ns"] for row in rows] == [9, 2**63 - 1, 0, 0]
    assert [row["attributes"] for row in rows] == [[("k", "1")], [], [], []]
    common = chosen(rows[0], "metric_name unit kind temporality monotonic service_name scope_name")
    assert common == ["m", "By", "gauge", 0, False, "cart", "meter"]
    assert chosen(rows[0], "count sum min max bounds bucket_counts") == [None] * 6


@DECODERS
def test_a_sum_has_temporality_and_monotonicity(decode: Decode) -> None:
    """An unknown temporality is unspecified; a missing unit is null."""
    temporalities: tuple[Any, ...] = (0, 1, 2, 3)
    metrics = []
    for temporality in temporalities:
        data = Sum(data_points=[NumberDataPoint(as_int=1)], is_monotonic=temporality == 2)
        data.aggregation_temporality = temporality
        metrics.append(Metric(name=f"m{temporality}", sum=data))
    rows = rows_of(decode, *metrics)
    assert [chosen(row, "temporality monotonic kind unit") for row in rows] == [
        [0, False, "sum", None],
        [1, False, "sum", None],
        [2, True, "sum", None],
        [0, False, "sum", None],
    ]


@DECODERS
def test_a_histogram_is_kept_as_it_is(decode: Decode) -> None:
    """Sum, lowest and highest are null when they were not sent, and 0 when that was sent."""
    points = [
        HistogramDataPoint(
            count=6, sum=0.0, min=-1.0, max=9.0, explicit_bounds=[0, 5], bucket_counts=[1, 2, 3]
        ),
        HistogramDataPoint(count=4),
    ]
    metric = Metric(
        name="m", histogram=Histogram(data_points=points, aggregation_temporality=DELTA)
    )
    rows = rows_of(decode, metric)
    names = "kind temporality count sum min max bounds bucket_counts value"
    assert chosen(rows[0], names) == [
        "histogram", 1, 6, 0.0, -1.0, 9.0, [0.0, 5.0], [1, 2, 3], None,
    ]  # fmt: skip
    assert chosen(rows[1], names) == ["histogram", 1, 4, None, None, None, [], [], None]


def exponential(**fields: Any) -> Metric:  # noqa: ANN401 - whatever a point has
    """Return a metric with one exponential histogram."""
    points = [ExponentialHistogramDataPoint(**fields)]
    data = ExponentialHistogram(data_points=points, aggregation_temporality=CUMULATIVE)
    return Metric(name="m", exponential_histogram=data)


@DECODERS
def test_an_exponential_histogram_gets_explicit_bounds(decode: Decode) -> None:
    """Negative buckets, the zero bucket and positive ones, each with its upper bound."""
    metric = exponential(
        count=21,
        sum=3.5,
        scale=0,
        zero_count=6,
        zero_threshold=0.25,
        negative=Buckets(offset=0, bucket_counts=[1, 2, 3]),
        positive=Buckets(offset=1, bucket_counts=[4, 5]),
    )
    (row,) = rows_of(decode, metric)
    # Index i holds what is above 2^i, up to 2^(i+1); below zero the same, mirrored.
    assert row["bounds"] == [-4.0, -2.0, -1.0, 0.25, 4.0, 8.0]
    assert row["bucket_counts"] == [3, 2, 1, 6, 4, 5, 0]
    assert chosen(row, "kind temporality count sum") == ["histogram", 2, 21, 3.5]


@DECODERS
@pytest.mark.parametrize(
    ("scale", "expected"), [(3, 2 ** (1 / 8)), (-2, 2.0**4), (20, 2 ** (2.0**-20))]
)
def test_the_scale_says_how_wide_buckets_are(decode: Decode, scale: int, expected: float) -> None:
    """The first positive bucket of offset 0 ends at two to the power of one over two to it."""
    (row,) = rows_of(decode, exponential(scale=scale, positive=Buckets(bucket_counts=[1])))
    assert row["bounds"] == [0.0, pytest.approx(expected, rel=1e-15)]
    assert row["bucket_counts"] == [0, 1, 0]


@DECODERS
def test_an_exponential_histogram_without_buckets_has_the_zero_bucket(decode: Decode) -> None:
    """There are always one count more than bounds."""
    (row,) = rows_of(decode, exponential(count=2, zero_count=2))
    assert chosen(row, "bounds bucket_counts") == [[0.0], [2, 0]]


@DECODERS
@pytest.mark.parametrize(
    "fields",
    [
        {"scale": 60, "positive": Buckets(bucket_counts=[1, 1])},
        {"scale": -20, "positive": Buckets(offset=1, bucket_counts=[1])},
        {"scale": 0, "negative": Buckets(offset=2000, bucket_counts=[1])},
        {"scale": 0, "positive": Buckets(offset=-2000, bucket_counts=[1])},
        {"zero_threshold": math.nan},
        {"zero_threshold": 9.0, "positive": Buckets(bucket_counts=[1])},
    ],
)
def test_bounds_that_a_double_cannot_tell_apart_are_rejected(
    decode: Decode, fields: dict[str, Any]
) -> None:
    """Such buckets could not be merged with any others."""
    decoded = decode(Signal.POINTS, [request_of(exponential(**fields), exponential())])
    assert decoded.reasons == {"bounds": 1}
    assert decoded.table.num_rows == 1


@DECODERS
def test_a_summary_becomes_gauges_and_two_sums(decode: Decode) -> None:
    """A gauge for each quantile, and count and sum as cumulative sums of their own name."""
    quantiles = [Quantile(quantile=0.5, value=7.0), Quantile(quantile=1.0, value=9.5)]
    attributes = [attribute("quantile", "mine"), attribute("k", "v")]
    point = SummaryDataPoint(
        count=3, sum=20.5, quantile_values=quantiles, attributes=attributes, time_unix_nano=8
    )
    rows = rows_of(decode, Metric(name="m", unit="s", summary=Summary(data_points=[point])))
    names = "metric_name kind temporality monotonic value attributes"
    assert [chosen(row, names) for row in rows] == [
        ["m", "gauge", 0, False, 7.0, [("k", "v"), ("quantile", "0.5")]],
        ["m", "gauge", 0, False, 9.5, [("k", "v"), ("quantile", "1.0")]],
        ["m_count", "sum", 2, True, 3.0, [("quantile", "mine"), ("k", "v")]],
        ["m_sum", "sum", 2, True, 20.5, [("quantile", "mine"), ("k", "v")]],
    ]
    assert {(row["unit"], row["time_ns"], row["service_name"]) for row in rows} == {
        ("s", 8, "cart")
    }


@DECODERS
def test_a_point_without_a_recorded_value_has_none(decode: Decode) -> None:
    """The flag says that the series has ended; whatever else the point says is no value."""
    number = NumberDataPoint(as_int=1, flags=NO_RECORDED_VALUE)
    histogram = HistogramDataPoint(
        count=1, sum=1, min=1, max=1, bucket_counts=[1], flags=NO_RECORDED_VALUE
    )
    summary = SummaryDataPoint(
        count=1, quantile_values=[Quantile(quantile=0.5)], flags=NO_RECORDED_VALUE
    )
    rows = rows_of(
        decode,
        Metric(name="m", gauge=Gauge(data_points=[number])),
        Metric(name="m", sum=Sum(data_points=[number])),
        Metric(name="m", histogram=Histogram(data_points=[histogram])),
        exponential(count=1, flags=NO_RECORDED_VALUE),
        Metric(name="m", summary=Summary(data_points=[summary])),
    )
    assert len(rows) == 7
    for row in rows:
        assert chosen(row, "value count sum min max bounds bucket_counts") == [None] * 7


@DECODERS
@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (Metric(gauge=Gauge(data_points=[NumberDataPoint(time_unix_nano=2**63)])), "time"),
        (Metric(sum=Sum(data_points=[NumberDataPoint(start_time_unix_nano=2**63)])), "time"),
        (Metric(histogram=Histogram(data_points=[HistogramDataPoint(count=2**63)])), "count"),
        (
            Metric(histogram=Histogram(data_points=[HistogramDataPoint(bucket_counts=[2**63])])),
            "count",
        ),
        (exponential(zero_count=2**63), "count"),
        (exponential(positive=Buckets(bucket_counts=[2**63])), "count"),
        (Metric(summary=Summary(data_points=[SummaryDataPoint(count=2**63)])), "count"),
    ],
)
def test_a_point_that_no_table_can_hold_is_rejected(
    decode: Decode, metric: Metric, reason: str
) -> None:
    """It counts as one point, however many rows it would have been."""
    kept = Metric(name="kept", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)]))
    decoded = decode(Signal.POINTS, [request_of(kept, metric)])
    assert decoded.table.column("metric_name").to_pylist() == ["kept"]
    assert (decoded.rejected, decoded.reasons) == (1, {reason: 1})


@DECODERS
def test_metrics_without_points_are_nothing(decode: Decode) -> None:
    """Also a metric that does not say what it is."""
    assert rows_of(decode, Metric(name="m"), Metric(name="n", gauge=Gauge())) == []
