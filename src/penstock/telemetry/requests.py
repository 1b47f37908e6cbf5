"""OTLP requests as messages: parsed, checked and counted.

A receiver asks :func:`validate` before it accepts a request; what passes here can be decoded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.errors import PenstockError
from penstock.telemetry._faults import log_fault, point_fault, span_fault
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["REQUESTS", "Counts", "Decoded", "MalformedError", "parse", "validate"]

REQUESTS: Mapping[Signal, Any] = {
    Signal.SPANS: ExportTraceServiceRequest,
    Signal.POINTS: ExportMetricsServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
}


class MalformedError(PenstockError, ValueError):
    """A request is not what its signal and encoding promise; the message says where."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a request holds: *records* are its spans, metric points or log records.

    Of these, decoding leaves out the *rejected* ones, by reason.
    """

    resources: int
    records: int
    rejected: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The table of some requests, and how many of their records are not in it, by reason."""

    table: pa.Table
    rejected: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)


def parse(signal: Signal, payload: bytes) -> Any:  # noqa: ANN401 - the message class is chosen at run time
    """Return the request as a message."""
    kind = REQUESTS[signal]
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise MalformedError(
            f"{len(payload)} bytes are not a serialized {kind.DESCRIPTOR.name}: {error}; "
            "send the request of this signal in protobuf encoding"
        ) from error


def validate(signal: Signal, payload: bytes) -> Counts:
    """Return what the serialized request holds; MalformedError if it is not one."""
    request = parse(signal, payload)
    if signal is Signal.SPANS:
        resources = request.resource_spans
        faults = [span_fault(s) for r in resources for g in r.scope_spans for s in g.spans]
    elif signal is Signal.LOGS:
        resources = request.resource_logs
        faults = [log_fault(one) for r in resources for g in r.scope_logs for one in g.log_records]
    else:
        resources = request.resource_metrics
        faults = [
            fault
            for part in resources
            for scope in part.scope_metrics
            for metric in scope.metrics
            for fault in _point_faults(metric)
        ]
    rejected = Counter(fault for fault in faults if fault is not None)
    return Counts(len(resources), len(faults), dict(rejected))


def _point_faults(metric: Any) -> list[str | None]:  # noqa: ANN401 - a message of any class
    kind = metric.WhichOneof("data")
    if kind is None:
        return []
    return [point_fault(kind, point) for point in getattr(metric, kind).data_points]
