"""What the real OpenTelemetry SDK encodes is decoded to what was recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from penstock.telemetry import otlp, plain
from penstock.telemetry.schema import Signal
from tests.unit.telemetry.rig import rows_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

RESOURCE = Resource({"service.name": "cart", "service.instance.id": "pod-1", "process.pid": 42})


def decoded(signal: Signal, request: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a message class
    """Decode what the SDK made, both ways; return the rows."""
    payload = request.SerializeToString()
    native = otlp.decode(signal, [payload])
    assert native.rejected == 0
    assert rows_of(native.table) == rows_of(plain.decode(signal, [payload]).table)
    assert otlp.validate(signal, payload).resources == 1
    rows: list[dict[str, Any]] = native.table.to_pylist()
    return rows


def recorded() -> tuple[ReadableSpan, ...]:
    """Return two spans, the second of them the child of the first."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("shop.http", "1.0")
    attributes: dict[str, Any] = {"http.request.method": "GET", "ratio": 0.25}
    with tracer.start_as_current_span("GET /cart", kind=SpanKind.SERVER) as parent:
        parent.set_attributes({**attributes, "http.response.status_code": 500, "tags": ["a", "b"]})
        parent.set_status(Status(StatusCode.ERROR, "no stock"))
        parent.add_event("retry", {"attempt": 2}, timestamp=17)
        link = Link(parent.get_span_context(), {"why": "same"})
        with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT, links=[link]) as child:
            child.set_attributes({"db.system": "postgresql", "server.port": 5432})
    provider.shutdown()
    child_span, parent_span = exporter.get_finished_spans()
    return parent_span, child_span


def test_spans_of_the_sdk_are_decoded() -> None:
    """Ids, kinds, times to the nanosecond, status, attributes, events and links."""
    spans = recorded()
    parent, child = decoded(Signal.SPANS, encode_spans(spans))
    for span, row in zip(spans, (parent, child), strict=True):
        context = span.get_span_context()
        assert context is not None
        assert row["trace_id"] == context.trace_id.to_bytes(16, "big")
        assert row["span_id"] == context.span_id.to_bytes(8, "big")
        assert (row["start_ns"], row["end_ns"]) == (span.start_time, span.end_time)
        assert (row["service_name"], row["service_instance"]) == ("cart", "pod-1")
        assert dict(row["resource_attributes"])["process.pid"] == "42"
        assert row["scope_name"] == "shop.http"
    assert (parent["parent_span_id"], child["parent_span_id"]) == (None, parent["span_id"])
    assert (parent["kind"], child["kind"]) == (2, 3)
    assert (parent["status_code"], parent["status_message"]) == (2, "no stock")
    assert (parent["http_method"], parent["http_status_code"]) == ("GET", 500)
    assert dict(parent["attributes"]) == {"ratio": "0.25", "tags": '["a","b"]'}
    assert (child["db_system"], child["server_port"]) == ("postgresql", 5432)
    assert json.loads(parent["events"])[0]["timeUnixNano"] == "17"
    assert json.loads(child["links"])[0]["spanId"] == parent["span_id"].hex()


def test_metrics_of_the_sdk_are_decoded() -> None:
    """A counter, a gauge, and histograms of both kinds."""
    reader = InMemoryMetricReader()
    view = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider([reader], RESOURCE, shutdown_on_exit=False, views=[view])
    meter = provider.get_meter("shop")
    meter.create_counter("orders", unit="1").add(3, {"kind": "new"})
    meter.create_gauge("load").set(0.5)
    for name in ("explicit", "exponential"):
        histogram = meter.create_histogram(name, unit="ms")
        for value in (0.0, 1.5, 40.0, 20_000.0):
            histogram.record(value)
    data = reader.get_metrics_data()
    assert data is not None
    rows = {row["metric_name"]: row for row in decoded(Signal.POINTS, encode_metrics(data))}
    provider.shutdown()
    assert (rows["orders"]["value"], rows["orders"]["attributes"]) == (3.0, [("kind", "new")])
    assert (rows["orders"]["monotonic"], rows["orders"]["temporality"]) == (True, 2)
    assert (rows["load"]["kind"], rows["load"]["value"]) == ("gauge", 0.5)
    for name in ("explicit", "exponential"):
        row = rows[name]
        assert (row["kind"], row["count"], row["sum"]) == ("histogram", 4, 20_041.5)
        assert (row["min"], row["max"], row["unit"]) == (0.0, 20_000.0, "ms")
        assert sum(row["bucket_counts"]) == 4
        assert len(row["bucket_counts"]) == len(row["bounds"]) + 1
        # Each value lies where a histogram with these bounds would have put it.
        for value in (0.0, 1.5, 40.0, 20_000.0):
            bucket = sum(bound < value for bound in row["bounds"])
            assert row["bucket_counts"][bucket] >= 1


def test_logs_of_the_sdk_are_decoded() -> None:
    """Body, severity, and the span that they belong to."""
    record = LogRecord(
        timestamp=1_700_000_000_123_456_789,
        observed_timestamp=1_700_000_000_123_456_999,
        trace_id=0xABC,
        span_id=0xDEF,
        severity_text="WARN",
        severity_number=SeverityNumber.WARN,
        body={"message": "low stock", "left": 2},
        attributes={"sku": "x-1"},
    )
    readable = ReadableLogRecord(
        log_record=record, resource=RESOURCE, instrumentation_scope=InstrumentationScope("shop")
    )
    (row,) = decoded(Signal.LOGS, encode_logs([readable]))
    assert row["time_ns"] == 1_700_000_000_123_456_789
    assert row["observed_ns"] == 1_700_000_000_123_456_999
    assert (row["severity_number"], row["severity_text"]) == (13, "WARN")
    assert json.loads(row["body"]) == {"message": "low stock", "left": 2}
    assert (row["trace_id"], row["span_id"]) == (
        0xABC.to_bytes(16, "big"),
        0xDEF.to_bytes(8, "big"),
    )
    assert (row["attributes"], row["scope_name"]) == ([("sku", "x-1")], "shop")
