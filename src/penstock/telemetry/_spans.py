"""Spans of OTLP requests as columns of :data:`penstock.telemetry.SPANS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry._attributes import Attributes
from penstock.telemetry._columns import (
    INT64_MAX,
    fixed_ids,
    fixed_or_null,
    numbers,
    present,
    small,
    times,
)
from penstock.telemetry._envelope import Envelope
from penstock.telemetry._json import events_json, links_json
from penstock.telemetry.schema import SPANS, Signal, SpanKind, StatusCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.telemetry._columns import Flags
    from penstock.telemetry._envelope import Rejections

__all__ = ["decode_spans"]

_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8


def decode_spans(payloads: Sequence[bytes], rejections: Rejections) -> pa.Table:
    """Return the spans of serialized requests."""
    envelope = Envelope.of(Signal.SPANS, payloads)
    envelope = envelope.filtered(rejections.usable(_faults(envelope.records)))
    spans = envelope.records
    promoted, attributes = Attributes.of(spans.field("attributes")).promoted()
    status = spans.field("status")
    columns = {
        "trace_id": fixed_ids(spans.field("trace_id"), _TRACE_ID_BYTES),
        "span_id": fixed_ids(spans.field("span_id"), _SPAN_ID_BYTES),
        "parent_span_id": fixed_or_null(spans.field("parent_span_id"), _SPAN_ID_BYTES),
        "name": spans.field("name"),
        "kind": small(spans.field("kind"), max(SpanKind)),
        "start_ns": times(spans.field("start_time_unix_nano")),
        "end_ns": times(spans.field("end_time_unix_nano")),
        "status_code": small(status.field("code"), max(StatusCode)),
        "status_message": present(status.field("message")),
        **promoted,
        "attributes": attributes,
        "events": events_json(spans.field("events")),
        "links": links_json(spans.field("links")),
        **envelope.columns(),
    }
    return pa.table([columns[name] for name in SPANS.names], schema=SPANS)


def _faults(spans: pa.StructArray) -> Mapping[str, Flags]:
    """Return why spans cannot be kept."""
    lengths = {
        name: numbers(pc.binary_length(spans.field(name)))
        for name in ("trace_id", "span_id", "parent_span_id")
    }
    start = numbers(spans.field("start_time_unix_nano"))
    end = numbers(spans.field("end_time_unix_nano"))
    return {
        "trace_id": lengths["trace_id"] != _TRACE_ID_BYTES,
        "span_id": lengths["span_id"] != _SPAN_ID_BYTES,
        "parent_span_id": (lengths["parent_span_id"] != _SPAN_ID_BYTES)
        & (lengths["parent_span_id"] != 0),
        "time": (start > INT64_MAX) | (end > INT64_MAX),
    }
