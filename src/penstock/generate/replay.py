"""Generated spans, sent as a program would: through the OpenTelemetry SDK and its exporter."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from penstock.generate.spans import generate_spans
from penstock.telemetry.schema import PROMOTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer

    from penstock.generate.settings import GeneratorSettings

__all__ = ["replay_spans", "send_spans"]

# OTLP's numbers begin with "unspecified", the SDK's do not.
_KINDS = dict(enumerate(SpanKind, start=1))
_STATUSES = {0: StatusCode.UNSET, 1: StatusCode.OK, 2: StatusCode.ERROR}
_PATIENCE_MS = 60_000
_BATCH = 512  # spans in a request, as the SDK has it


def send_spans(
    settings: GeneratorSettings, endpoint: str, progress: Callable[[int], object] = lambda _: None
) -> int:
    """Send the spans of *settings* to *endpoint* by gRPC; return how many were acknowledged."""
    # To this machine, whatever proxy there is for others.
    options: Any = (("grpc.enable_http_proxy", 0),)
    inner = OTLPSpanExporter(endpoint=endpoint, insecure=True, channel_options=options)
    exporter = _Counting(inner, progress)
    try:
        replay_spans(settings, exporter)
    except BaseException:
        exporter.give_up()
        raise
    return exporter.acknowledged


def replay_spans(settings: GeneratorSettings, exporter: SpanExporter) -> None:
    """Give the spans of *settings* to *exporter*, as the SDK batches them."""
    # Room for all: the processor would silently drop what finds it full.
    processor = BatchSpanProcessor(
        exporter,
        max_queue_size=max(settings.spans, _BATCH),
        schedule_delay_millis=200,
        max_export_batch_size=_BATCH,
    )
    tracers = _Tracers(processor)
    for table in generate_spans(settings):
        for row in table.to_pylist():
            _send(tracers.of(row), row)
    processor.force_flush(_PATIENCE_MS)
    processor.shutdown()  # type: ignore[no-untyped-call] # the SDK's has no annotations


class _Counting(SpanExporter):
    """Counts what the receiver has acknowledged."""

    def __init__(self, inner: SpanExporter, progress: Callable[[int], object]) -> None:
        self._inner = inner
        self._progress = progress
        self.acknowledged = 0
        self._is_given_up = False

    def give_up(self) -> None:
        """Send nothing any more; the SDK would try again and again, and say so."""
        self._is_given_up = True
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._inner.shutdown()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans on."""
        if self._is_given_up:
            return SpanExportResult.FAILURE
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.acknowledged += len(spans)
            self._progress(self.acknowledged)
        return result

    def shutdown(self) -> None:
        """End the exporter."""
        self._inner.shutdown()


class _Ids(IdGenerator):
    """Gives out the ids that the generated span has."""

    def __init__(self) -> None:
        self._next = threading.local()

    def set(self, trace_id: bytes, span_id: bytes) -> None:
        self._next.trace = int.from_bytes(trace_id, "big")
        self._next.span = int.from_bytes(span_id, "big")

    def generate_trace_id(self) -> int:
        return int(self._next.trace)

    def generate_span_id(self) -> int:
        return int(self._next.span)


class _Tracers:
    """One provider for each instance of a service, all with the same processor."""

    def __init__(self, processor: BatchSpanProcessor) -> None:
        self._processor = processor
        self._tracers: dict[tuple[str, str], Tracer] = {}
        self._ids = _Ids()

    def of(self, row: Mapping[str, Any]) -> Tracer:
        self._ids.set(row["trace_id"], row["span_id"])
        key = (row["service_name"], row["service_instance"])
        tracer = self._tracers.get(key)
        if tracer is None:
            resource = Resource({"service.name": key[0], "service.instance.id": key[1]})
            provider = TracerProvider(
                sampler=ALWAYS_ON,
                resource=resource,
                shutdown_on_exit=False,  # the processor is shut down when all is sent
                id_generator=self._ids,
            )
            provider.add_span_processor(self._processor)
            tracer = self._tracers[key] = provider.get_tracer("penstock.demo")
        return tracer


def _send(tracer: Tracer, row: Mapping[str, Any]) -> None:
    attributes = {name: row[column] for name, column in PROMOTED.items() if row[column] is not None}
    attributes |= dict(row["attributes"] or ())
    span = tracer.start_span(
        row["name"],
        context=_parent(row),
        kind=_KINDS.get(row["kind"], SpanKind.INTERNAL),
        attributes=attributes,
        start_time=row["start_ns"],
    )
    span.set_status(Status(_STATUSES[row["status_code"]]))
    span.end(row["end_ns"])


def _parent(row: Mapping[str, Any]) -> Context | None:
    if row["parent_span_id"] is None:
        return None
    context = SpanContext(
        int.from_bytes(row["trace_id"], "big"),
        int.from_bytes(row["parent_span_id"], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(context))
