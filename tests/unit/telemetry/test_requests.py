"""Serialized requests: counted if they are whole, refused if they are not."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
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

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import PenstockError
from penstock.telemetry import otlp, plain
from penstock.telemetry._faults import explicit_buckets
from penstock.telemetry.otlp import Counts, MalformedError, validate
from penstock.telemetry.requests import REQUESTS
from penstock.telemetry.schema import Signal
from tests.unit.telemetry.rig import EXAMPLES, PATIENT, requests, rows_of, span_request


@pytest.mark.parametrize("signal", Signal)
def test_an_empty_request_holds_nothing(signal: Signal) -> None:
    """No bytes are a valid message in protobuf."""
    assert validate(signal, b"") == Counts(resources=0, records=0)


def test_spans_and_log_records_are_counted() -> None:
    """Across all scopes and resources of the request."""
    spans = REQUESTS[Signal.SPANS]()
    logs = REQUESTS[Signal.LOGS]()
    for count in (2, 0, 3):
        scopes = spans.resource_spans.add().scope_spans
        scopes.add(spans=[{"name": "s"}] * count)
        scopes.add(spans=[{"name": "s"}])
        logs.resource_logs.add().scope_logs.add(log_records=[{}] * count)
    assert validate(Signal.SPANS, spans.SerializeToString()) == Counts(3, 8, {"trace_id": 8})
    assert validate(Signal.LOGS, logs.SerializeToString()) == Counts(3, 5)


def test_points_of_all_kinds_are_counted() -> None:
    """What counts are points, not metrics."""
    metrics = [
        Metric(gauge=Gauge(data_points=[NumberDataPoint()])),
        Metric(sum=Sum(data_points=[NumberDataPoint()] * 2)),
        Metric(histogram=Histogram(data_points=[HistogramDataPoint()] * 3)),
        Metric(
            exponential_histogram=ExponentialHistogram(
                data_points=[ExponentialHistogramDataPoint()] * 4
            )
        ),
        Metric(summary=Summary(data_points=[SummaryDataPoint()] * 5)),
        Metric(),
    ]
    request = REQUESTS[Signal.POINTS]()
    request.resource_metrics.add().scope_metrics.add(metrics=metrics)
    assert validate(Signal.POINTS, request.SerializeToString()) == Counts(1, 15)


def test_a_malformed_request_is_refused_with_what_it_should_be() -> None:
    """The error is penstock's own, and names the message."""
    payload = span_request()[:-1]
    with pytest.raises(MalformedError, match="are not a serialized ExportTraceServiceRequest"):
        validate(Signal.SPANS, payload)
    assert issubclass(MalformedError, PenstockError)


@pytest.mark.parametrize("decode", [otlp.decode, plain.decode])
def test_a_malformed_request_is_not_decoded(decode: Any) -> None:  # noqa: ANN401 - either decoder
    """Nor are those that come with it."""
    with pytest.raises(MalformedError, match="not a serialized"):
        decode(Signal.SPANS, [span_request(), b"\xff", span_request()])


def test_the_malformed_one_of_many_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its position among all of them, however they are grouped."""
    monkeypatch.setattr(otlp, "_GROUP_BYTES", 1)
    with pytest.raises(MalformedError, match=r"^payloads\[2\]: 1 bytes are not"):
        otlp.decode(Signal.SPANS, [span_request(), span_request(), b"\xff", b"\xfe"])


def mutated(payload: bytes, rng: random.Random) -> bytes:
    """Return the payload with a few of its bytes changed, cut out or doubled."""
    changed = bytearray(payload)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        action = rng.randrange(4)
        if action == 0:
            changed[at : at + 1] = rng.randbytes(1)
        elif action == 1:
            del changed[at : at + rng.randint(1, 8)]
        elif action == 2:
            changed[at:at] = changed[at : at + rng.randint(1, 30)]
        else:
            del changed[at:]
    return bytes(changed)


@pytest.mark.parametrize("signal", Signal)
@settings(PATIENT, max_examples=25 * EXAMPLES, phases=[Phase.generate])
@given(data=st.data())
def test_damaged_requests_are_malformed_or_decoded(signal: Signal, data: st.DataObject) -> None:
    """Nothing but MalformedError is raised; and what protobuf accepts, both decode alike."""
    payload = data.draw(requests(signal)).SerializeToString()
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(40):
        damaged = mutated(payload, rng)
        try:
            counts = validate(signal, damaged)
        except MalformedError:
            # What nobody reads, the native decoder does not look at: it need not find out.
            with suppress(MalformedError):
                otlp.decode(signal, [damaged])
            continue
        native, expected = (one.decode(signal, [damaged]) for one in (otlp, plain))
        assert native.rejected <= counts.records
        assert (rows_of(native.table), native.reasons) == (
            rows_of(expected.table),
            expected.reasons,
        )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"trace_id": b"short"}, "trace_id"),
        ({"span_id": b""}, "span_id"),
        ({"parent_span_id": b"1234567"}, "parent_span_id"),
        ({"start_time_unix_nano": 2**63}, "time"),
        ({"end_time_unix_nano": 2**64 - 1}, "time"),
    ],
)
def test_a_span_that_cannot_be_kept_is_counted_by_its_fault(
    fields: dict[str, Any], reason: str
) -> None:
    """The client is told how many, and why, before anything is decoded."""
    assert validate(Signal.SPANS, span_request(**fields)) == Counts(1, 1, {reason: 1})


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (Metric(gauge=Gauge(data_points=[NumberDataPoint(time_unix_nano=2**63)])), "time"),
        (Metric(sum=Sum(data_points=[NumberDataPoint(start_time_unix_nano=2**63)])), "time"),
        (Metric(summary=Summary(data_points=[SummaryDataPoint(count=2**63)])), "count"),
        (
            Metric(histogram=Histogram(data_points=[HistogramDataPoint(bucket_counts=[2**63])])),
            "count",
        ),
        (
            Metric(
                exponential_histogram=ExponentialHistogram(
                    data_points=[ExponentialHistogramDataPoint(zero_count=2**63)]
                )
            ),
            "count",
        ),
        (
            Metric(
                exponential_histogram=ExponentialHistogram(
                    data_points=[ExponentialHistogramDataPoint(zero_threshold=math.inf)]
                )
            ),
            "bounds",
        ),
    ],
)
def test_a_point_that_cannot_be_kept_is_counted_by_its_fault(metric: Metric, reason: str) -> None:
    """Whatever kind of point it is."""
    request = REQUESTS[Signal.POINTS]()
    request.resource_metrics.add().scope_metrics.add(metrics=[metric])
    assert validate(Signal.POINTS, request.SerializeToString()) == Counts(1, 1, {reason: 1})


@pytest.mark.parametrize("field", ["time_unix_nano", "observed_time_unix_nano"])
def test_a_log_record_that_cannot_be_kept_is_counted_by_its_fault(field: str) -> None:
    """Only a time can make it useless."""
    request = REQUESTS[Signal.LOGS]()
    request.resource_logs.add().scope_logs.add(log_records=[{field: 2**63}, {field: 1}])
    assert validate(Signal.LOGS, request.SerializeToString()) == Counts(1, 2, {"time": 1})


@pytest.mark.parametrize("signal", Signal)
@settings(parent=PATIENT, max_examples=15 * EXAMPLES)
@given(data=st.data())
def test_what_is_said_to_be_rejected_is_what_decoding_leaves_out(
    signal: Signal, data: st.DataObject
) -> None:
    """The answer to a client agrees with what lands."""
    payload = data.draw(requests(signal)).SerializeToString()
    counts = validate(signal, payload)
    decoded = plain.decode(signal, [payload])
    assert counts.rejected == decoded.reasons


def test_the_buckets_of_an_exponential_histogram_ascend() -> None:
    """From the most negative value over zero to the largest, each with its count."""
    point = ExponentialHistogramDataPoint(scale=0, zero_count=5, zero_threshold=0.5)
    point.negative.bucket_counts.extend([1, 2])
    point.positive.bucket_counts.extend([3, 4])
    assert explicit_buckets(point) == ([-2.0, -1.0, 0.5, 2.0, 4.0], [2, 1, 5, 3, 4, 0])


def test_a_request_with_very_many_buckets_is_checked_in_linear_time() -> None:
    """A few hundred kilobytes must not keep a receiver busy for half a minute."""
    request = REQUESTS[Signal.POINTS]()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    point = metric.exponential_histogram.data_points.add(scale=20)
    point.negative.bucket_counts.extend([0] * 300_000)
    payload = request.SerializeToString()
    began = SYSTEM_CLOCK.now()
    validate(Signal.POINTS, payload)
    assert SYSTEM_CLOCK.now() - began < 10.0
