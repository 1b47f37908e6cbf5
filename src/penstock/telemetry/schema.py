"""Arrow schemas of what lands: spans, metric points and logs.

Span attributes that the semantic conventions give a meaning to, and that the metrics therefore
read for every span, are columns of their own (:data:`PROMOTED`); the rest stays in a map. A
promoted attribute is not repeated in the map. Reading a column costs a tenth of looking a key up
in every row's map, and Parquet does not even load the map when no rule asks for it.

All attribute values are text here: strings as they are, everything else as JSON.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import pyarrow as pa

__all__ = [
    "ALIASES",
    "LOGS",
    "POINTS",
    "PROMOTED",
    "SIGNALS",
    "SPANS",
    "Signal",
    "SpanKind",
    "StatusCode",
    "Temporality",
]


class Signal(StrEnum):
    """The kinds of telemetry; also the names of their folders below the landing folder."""

    SPANS = "spans"
    POINTS = "points"
    LOGS = "logs"


class SpanKind(IntEnum):
    """OTLP's numbers for the kinds of spans."""

    UNSPECIFIED = 0
    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


class StatusCode(IntEnum):
    """OTLP's numbers for the outcome of a span."""

    UNSET = 0
    OK = 1
    ERROR = 2


class Temporality(IntEnum):
    """OTLP's numbers for how the points of a sum or histogram relate to each other."""

    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


# Attribute (by its current name in the semantic conventions) -> column of SPANS.
PROMOTED = {
    "peer.service": "peer_service",
    "peer.instance": "peer_instance",
    "peer.endpoint": "peer_endpoint",
    "server.address": "server_address",
    "server.port": "server_port",
    "client.address": "client_address",
    "http.request.method": "http_method",
    "http.route": "http_route",
    "url.path": "url_path",
    "http.response.status_code": "http_status_code",
    "rpc.system": "rpc_system",
    "rpc.service": "rpc_service",
    "rpc.method": "rpc_method",
    "rpc.grpc.status_code": "rpc_status_code",
    "db.system.name": "db_system",
    "db.namespace": "db_namespace",
    "db.operation.name": "db_operation",
    "db.query.text": "db_statement",
    "messaging.system": "messaging_system",
    "messaging.destination.name": "messaging_destination",
    "messaging.operation.type": "messaging_operation",
    "transmission.latency": "transmission_latency",
}

# Other names of the same things, in order of preference: a span without the current name is
# promoted from the first of these that it has. The alias itself also stays in the map.
ALIASES = {
    "peer.service": ("service.peer.name",),
    "peer.instance": ("service.peer.instance.id",),
    "peer.endpoint": ("client.endpoint",),
    "server.address": ("net.peer.name", "net.sock.peer.addr", "network.peer.address"),
    "server.port": ("net.peer.port", "net.sock.peer.port", "network.peer.port"),
    "client.address": ("http.client_ip", "net.sock.peer.addr", "network.peer.address"),
    "http.request.method": ("http.method",),
    "url.path": ("http.target",),
    "http.response.status_code": ("http.status_code",),
    "rpc.system": ("rpc.system.name",),
    "rpc.grpc.status_code": ("rpc.response.status_code",),
    "db.system.name": ("db.system",),
    "db.namespace": ("db.name",),
    "db.operation.name": ("db.operation",),
    "db.query.text": ("db.statement",),
    "messaging.operation.type": ("messaging.operation",),
}

_WHOLE_NUMBERS = {
    "server_port": pa.int32(),
    "http_status_code": pa.int32(),
    "rpc_status_code": pa.int32(),
    "transmission_latency": pa.int64(),  # milliseconds between sending and receiving a message
}
_TEXT_MAP = pa.map_(pa.string(), pa.string())

SPANS = pa.schema(
    [
        pa.field("trace_id", pa.binary(16), nullable=False),
        pa.field("span_id", pa.binary(8), nullable=False),
        pa.field("parent_span_id", pa.binary(8)),
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("end_ns", pa.int64(), nullable=False),
        pa.field("status_code", pa.int8(), nullable=False),
        pa.field("status_message", pa.string()),
        pa.field("service_name", pa.string(), nullable=False),
        pa.field("service_instance", pa.string(), nullable=False),
        pa.field("scope_name", pa.string()),
        *(pa.field(name, _WHOLE_NUMBERS.get(name, pa.string())) for name in PROMOTED.values()),
        pa.field("attributes", _TEXT_MAP),
        pa.field("resource_attributes", _TEXT_MAP),
        pa.field("events", pa.string()),  # JSON, as OTLP/JSON has them
        pa.field("links", pa.string()),  # JSON, as OTLP/JSON has them
    ]
)

POINTS = pa.schema(
    [
        pa.field("metric_name", pa.string(), nullable=False),
        pa.field("unit", pa.string()),
        pa.field("kind", pa.string(), nullable=False),  # "gauge", "sum" or "histogram"
        pa.field("temporality", pa.int8(), nullable=False),
        pa.field("monotonic", pa.bool_(), nullable=False),
        pa.field("service_name", pa.string(), nullable=False),
        pa.field("service_instance", pa.string(), nullable=False),
        pa.field("scope_name", pa.string()),
        pa.field("attributes", _TEXT_MAP),
        pa.field("resource_attributes", _TEXT_MAP),
        pa.field("start_ns", pa.int64()),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("value", pa.float64()),  # of a gauge or a sum
        pa.field("count", pa.int64()),  # of a histogram, as the rest
        pa.field("sum", pa.float64()),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("bounds", pa.list_(pa.float64())),
        pa.field("bucket_counts", pa.list_(pa.int64())),
    ]
)

LOGS = pa.schema(
    [
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("observed_ns", pa.int64()),
        pa.field("severity_number", pa.int8(), nullable=False),
        pa.field("severity_text", pa.string()),
        pa.field("body", pa.string()),
        pa.field("service_name", pa.string(), nullable=False),
        pa.field("service_instance", pa.string(), nullable=False),
        pa.field("scope_name", pa.string()),
        pa.field("trace_id", pa.binary(16)),
        pa.field("span_id", pa.binary(8)),
        pa.field("attributes", _TEXT_MAP),
        pa.field("resource_attributes", _TEXT_MAP),
    ]
)

SIGNALS = {Signal.SPANS: SPANS, Signal.POINTS: POINTS, Signal.LOGS: LOGS}
