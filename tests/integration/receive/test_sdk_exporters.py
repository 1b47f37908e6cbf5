"""The exporters of the OpenTelemetry SDK, as programs use them, against a receiver."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcMetrics,
)
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpMetrics,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind

from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from tests.integration.receive.rig import Server

KINDS = {
    ("grpc", "spans"): GrpcSpans,
    ("grpc", "points"): GrpcMetrics,
    ("grpc", "logs"): GrpcLogs,
    ("http", "spans"): HttpSpans,
    ("http", "points"): HttpMetrics,
    ("http", "logs"): HttpLogs,
}
PATHS = {"spans": "traces", "points": "metrics", "logs": "logs"}
TRANSPORTS = pytest.mark.parametrize("transport", ["grpc", "http", "http-gzip"])


def exporter(server: Server, transport: str, signal: str) -> Any:  # noqa: ANN401 - six classes
    """Return an exporter that sends to *server*."""
    if transport == "grpc":
        return KINDS["grpc", signal](
            endpoint=f"http://localhost:{server.receiver.grpc_port}", insecure=True, timeout=20
        )
    compression = Compression.Gzip if transport == "http-gzip" else Compression.NoCompression
    url = f"http://localhost:{server.receiver.http_port}/v1/{PATHS[signal]}"
    return KINDS["http", signal](endpoint=url, compression=compression, timeout=20)


@pytest.fixture(autouse=True)
def no_complaints(caplog: pytest.LogCaptureFixture) -> Any:  # noqa: ANN401 - a generator
    """Fail if an exporter has logged that something was not sent."""
    yield
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []


@TRANSPORTS
def test_spans_of_the_sdk_land(server: Server, transport: str) -> None:
    """With their names, kinds, parents and attributes."""
    service = f"sdk-spans-{transport}"
    provider = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter(server, transport, "spans")))
    tracer = provider.get_tracer("shop")
    with tracer.start_as_current_span("GET /cart", kind=SpanKind.SERVER) as parent:
        parent.set_attribute("http.request.method", "GET")
        with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT):
            pass
    provider.shutdown()
    rows = {row["name"]: row for row in server.landed(Signal.SPANS, service, 2)}
    assert rows["SELECT"]["parent_span_id"] == rows["GET /cart"]["span_id"]
    assert rows["GET /cart"]["http_method"] == "GET"
    assert (rows["GET /cart"]["kind"], rows["SELECT"]["kind"]) == (2, 3)


@TRANSPORTS
def test_metrics_of_the_sdk_land(server: Server, transport: str) -> None:
    """A counter, a gauge and a histogram."""
    service = f"sdk-points-{transport}"
    reader = PeriodicExportingMetricReader(
        exporter(server, transport, "points"), export_interval_millis=float("inf")
    )
    provider = MeterProvider(
        [reader], resource=Resource({"service.name": service}), shutdown_on_exit=False
    )
    meter = provider.get_meter("shop")
    meter.create_counter("orders").add(3)
    meter.create_gauge("stock").set(7)
    meter.create_histogram("latency").record(12.5)
    assert provider.force_flush()
    provider.shutdown()
    rows = {row["metric_name"]: row for row in server.landed(Signal.POINTS, service, 3)}
    assert (rows["orders"]["value"], rows["orders"]["monotonic"]) == (3.0, True)
    assert (rows["stock"]["value"], rows["stock"]["kind"]) == (7.0, "gauge")
    assert (rows["latency"]["count"], rows["latency"]["sum"]) == (1, 12.5)


@TRANSPORTS
def test_logs_of_the_sdk_land(server: Server, transport: str) -> None:
    """With their bodies and severities."""
    service = f"sdk-logs-{transport}"
    provider = LoggerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter(server, transport, "logs")))
    provider.get_logger("shop").emit(body="out of stock", severity_number=SeverityNumber.WARN)
    provider.shutdown()
    (row,) = server.landed(Signal.LOGS, service, 1)
    assert (row["body"], row["severity_number"]) == ("out of stock", 13)
