"""OTLP's wire format as the native decoder reads it.

The decoder does not need every field of OTLP, and some it needs rarely: those are declared here
as raw bytes, and are parsed when there are any. On the wire an embedded message and bytes look
the same. All raw fields are *repeated*, although most of them are single in OTLP: the parts of a
message that was sent in pieces, joined, are the whole message.

Numbers and types of the fields come from OpenTelemetry's own descriptors.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from ptars import HandlerPool

from penstock.telemetry.requests import REQUESTS
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["WireError", "read_messages", "read_requests"]

_FILE = "penstock/otlp.proto"
_PACKAGE = "penstock.otlp"

_NUMBER_POINT = "attributes start_time_unix_nano time_unix_nano as_double as_int flags"
_HISTOGRAM_POINT = "attributes start_time_unix_nano time_unix_nano count sum min max flags"

# Message -> the fields that are read; those after the bar are raw.
_READ: Sequence[tuple[Any, str]] = (
    (REQUESTS[Signal.SPANS], "resource_spans"),
    (REQUESTS[Signal.POINTS], "resource_metrics"),
    (REQUESTS[Signal.LOGS], "resource_logs"),
    (trace_pb2.ResourceSpans, "scope_spans | resource"),
    (metrics_pb2.ResourceMetrics, "scope_metrics | resource"),
    (logs_pb2.ResourceLogs, "scope_logs | resource"),
    (trace_pb2.ScopeSpans, "spans | scope"),
    (metrics_pb2.ScopeMetrics, "metrics | scope"),
    (logs_pb2.ScopeLogs, "log_records | scope"),
    (resource_pb2.Resource, "attributes"),
    (common_pb2.InstrumentationScope, "name"),
    (common_pb2.KeyValue, "key value"),
    (
        common_pb2.AnyValue,
        (
            "string_value bool_value int_value double_value bytes_value string_value_strindex"
            " | array_value kvlist_value"
        ),
    ),
    (
        trace_pb2.Span,
        (
            "trace_id span_id parent_span_id name kind start_time_unix_nano end_time_unix_nano"
            " attributes status | events links"
        ),
    ),
    (trace_pb2.Status, "message code"),
    (trace_pb2.Span.Event, "time_unix_nano name attributes dropped_attributes_count"),
    (
        trace_pb2.Span.Link,
        "trace_id span_id trace_state attributes dropped_attributes_count flags",
    ),
    (metrics_pb2.Metric, "name unit gauge sum histogram exponential_histogram summary"),
    (metrics_pb2.Gauge, "data_points"),
    (metrics_pb2.Sum, "data_points aggregation_temporality is_monotonic"),
    (metrics_pb2.Histogram, "data_points aggregation_temporality"),
    (metrics_pb2.ExponentialHistogram, "data_points aggregation_temporality"),
    (metrics_pb2.Summary, "data_points"),
    (metrics_pb2.NumberDataPoint, _NUMBER_POINT),
    (metrics_pb2.HistogramDataPoint, f"{_HISTOGRAM_POINT} bucket_counts explicit_bounds"),
    (
        metrics_pb2.ExponentialHistogramDataPoint,
        f"{_HISTOGRAM_POINT} scale zero_count positive negative zero_threshold",
    ),
    (metrics_pb2.ExponentialHistogramDataPoint.Buckets, "offset bucket_counts"),
    (
        metrics_pb2.SummaryDataPoint,
        "attributes start_time_unix_nano time_unix_nano count sum quantile_values flags",
    ),
    (metrics_pb2.SummaryDataPoint.ValueAtQuantile, "quantile value"),
    (
        logs_pb2.LogRecord,
        (
            "time_unix_nano observed_time_unix_nano severity_number severity_text body attributes"
            " trace_id span_id"
        ),
    ),
)


class WireError(Exception):
    """What was to be parsed is malformed, or encoded in a way that only protobuf itself reads."""


def read_requests(signal: Signal, payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Return serialized requests as one row each."""
    try:
        return _handler(REQUESTS[signal].DESCRIPTOR.name).list_to_record_batch(list(payloads))
    except ValueError as error:
        raise WireError(str(error)) from error


def read_messages(name: str, serialized: pa.Array) -> pa.RecordBatch:
    """Return messages that were left raw as one row each."""
    try:
        return _handler(name).array_to_record_batch(serialized)
    except ValueError as error:
        raise WireError(str(error)) from error


@cache
def _handler(name: str) -> Any:  # noqa: ANN401 - ptars does not annotate its handlers
    pool, file = _handlers()
    return pool.get_for_message(file.message_types_by_name[name])


@cache
def _handlers() -> tuple[HandlerPool, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3")
    for message, fields in _READ:
        parsed, _, raw = fields.partition("|")
        _declare(file.message_type.add(), message.DESCRIPTOR, parsed.split(), raw.split())
    # A pool of its own: the names must not meet those of another library in this process.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    declared = pool.FindFileByName(_FILE)
    return HandlerPool([declared]), declared


def _declare(message: Any, original: Any, parsed: Sequence[str], raw: Sequence[str]) -> None:  # noqa: ANN401 - descriptors have no annotations
    """Fill *message* with the named fields of *original*."""
    known = descriptor_pb2.DescriptorProto()
    original.CopyToProto(known)
    message.name = known.name
    fields = {field.name: field for field in known.field}
    for name in (*parsed, *raw):
        field = message.field.add(name=name, number=fields[name].number)
        if name in raw:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        else:
            field.type, field.label = fields[name].type, fields[name].label
            _refer(field, fields[name])
            _keep_presence(message, field, original.fields_by_name[name])


def _refer(field: Any, original: Any) -> None:  # noqa: ANN401 - descriptors have no annotations
    """Point a field that holds a message to the one declared here; take enums as numbers."""
    if original.type == descriptor_pb2.FieldDescriptorProto.TYPE_ENUM:
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
    elif original.type_name:
        field.type_name = f".{_PACKAGE}.{original.type_name.rpartition('.')[2]}"


def _keep_presence(message: Any, field: Any, original: Any) -> None:  # noqa: ANN401 - descriptors have no annotations
    """Let a field whose absence means something be null when it is absent.

    Being alone in a group of alternatives is the plainest way to say so. That only one of
    several alternatives may be set is for the decoder to look at.
    """
    if original.containing_oneof is not None:
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"has_{field.name}")
