"""OTLP requests as Arrow tables, one record after the other in plain Python.

The same result as :mod:`penstock.telemetry.otlp` gives, but for the order of metric points, by the
shortest way there is to say it: tests take it for the truth, and benchmarks for the peer.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf.json_format import MessageToDict

from penstock.telemetry._faults import log_fault, span_fault
from penstock.telemetry._plain_points import point_rows
from penstock.telemetry._plain_values import (
    RejectedError,
    attributes_of,
    json_of,
    known,
    text_of,
)
from penstock.telemetry.requests import Decoded, parse
from penstock.telemetry.schema import ALIASES, PROMOTED, SIGNALS, SPANS, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.telemetry._plain_values import Message, Row

__all__ = ["decode"]

_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_PATHS = {
    Signal.SPANS: ("resource_spans", "scope_spans", "spans"),
    Signal.POINTS: ("resource_metrics", "scope_metrics", "metrics"),
    Signal.LOGS: ("resource_logs", "scope_logs", "log_records"),
}
# Attribute, all names of it, column, and the column's bits if it holds whole numbers.
_PROMOTED = [
    (
        name,
        (name, *ALIASES.get(name, ())),
        column,
        None if SPANS.field(column).type == pa.string() else SPANS.field(column).type.bit_width,
    )
    for name, column in PROMOTED.items()
]


def decode(signal: Signal, payloads: Sequence[bytes]) -> Decoded:
    """Return the records of serialized requests, with the schema of their signal."""
    rows: list[Row] = []
    reasons: Counter[str] = Counter()
    for payload in payloads:
        for common, record in _records(signal, parse(signal, payload)):
            try:
                rows += [common | row for row in _rows(signal, record)]
            except RejectedError as rejected:
                reasons[str(rejected)] += 1
    return Decoded(_table(rows, SIGNALS[signal]), reasons.total(), dict(reasons))


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _records(signal: Signal, request: Message) -> Iterator[tuple[Row, Message]]:
    """Yield each record with what it has from its resource and scope; a point with its metric."""
    resources, scopes, records = _PATHS[signal]
    for part in getattr(request, resources):
        for scope in getattr(part, scopes):
            common = _common(part.resource, scope.scope)
            for record in getattr(scope, records):
                if signal is not Signal.POINTS:
                    yield common, record
                elif (kind := record.WhichOneof("data")) is not None:
                    for point in getattr(record, kind).data_points:
                        yield common, (record, point)


def _rows(signal: Signal, record: Message) -> list[Row]:
    if signal is Signal.POINTS:
        return point_rows(*record)
    return [_span(record) if signal is Signal.SPANS else _log(record)]


def _common(resource: Message, scope: Message) -> Row:
    attributes = attributes_of(resource.attributes)
    return {
        "service_name": attributes.get("service.name") or "unknown_service",
        "service_instance": attributes.get("service.instance.id")
        or attributes.get("host.name")
        or "",
        "scope_name": scope.name or None,
        "resource_attributes": list(attributes.items()),
    }


def _span(span: Message) -> Row:
    fault = span_fault(span)
    if fault is not None:
        raise RejectedError(fault)
    attributes = attributes_of(span.attributes)
    promoted = _promoted(attributes, span.attributes)
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": _id(span.parent_span_id, _SPAN_ID_BYTES),
        "name": span.name,
        "kind": known(span.kind, 5),
        "start_ns": span.start_time_unix_nano,
        "end_ns": span.end_time_unix_nano,
        "status_code": known(span.status.code, 2),
        "status_message": span.status.message or None,
        **promoted,
        "attributes": list(attributes.items()),
        "events": json_of(_otlp_json(span.events)) if span.events else None,
        "links": json_of(_otlp_json(span.links)) if span.links else None,
    }


def _promoted(attributes: dict[str, str], pairs: Sequence[Message]) -> Row:
    """Return the promoted attributes, and take those out of *attributes*."""
    columns: Row = {}
    taken = []
    for name, names, column, bits in _PROMOTED:
        source = next((one for one in names if one in attributes), None)
        if source is None:
            continue
        value: str | int | None = attributes[source]
        if bits is not None:
            sent = [pair.value for pair in pairs if pair.key == source]
            value = _whole(sent[-1], bits)
        columns[column] = value
        if source == name and value is not None:
            taken.append(name)
    for name in taken:
        del attributes[name]
    return columns


def _whole(value: Message, bits: int) -> int | None:
    kind = value.WhichOneof("value")
    if kind == "int_value":
        number = int(value.int_value)
    elif kind == "string_value" and re.fullmatch("[+-]?[0-9]{1,18}", value.string_value):
        number = int(value.string_value)
    else:
        return None
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def _otlp_json(messages: Sequence[Message]) -> Any:  # noqa: ANN401 - whatever JSON can say
    return [_adapted(MessageToDict(message)) for message in messages]


def _adapted(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return ProtoJSON with OTLP's ids, and without what only profiles have."""
    if isinstance(value, list):
        return [_adapted(element) for element in value]
    if not isinstance(value, dict):
        return value
    result = {
        name: _adapted(member)
        for name, member in value.items()
        if name not in {"keyStrindex", "stringValueStrindex"}
    }
    for name in ("traceId", "spanId"):
        if name in result:
            result[name] = base64.b64decode(result[name]).hex()
    return result


def _log(log: Message) -> Row:
    fault = log_fault(log)
    if fault is not None:
        raise RejectedError(fault)
    return {
        "time_ns": log.time_unix_nano or log.observed_time_unix_nano,
        "observed_ns": log.observed_time_unix_nano or None,
        "severity_number": known(log.severity_number, 24),
        "severity_text": log.severity_text or None,
        "body": text_of(log.body) if log.HasField("body") else None,
        "trace_id": _id(log.trace_id, _TRACE_ID_BYTES),
        "span_id": _id(log.span_id, _SPAN_ID_BYTES),
        "attributes": list(attributes_of(log.attributes).items()),
    }


def _id(sent: bytes, length: int) -> bytes | None:
    return sent if len(sent) == length and any(sent) else None
