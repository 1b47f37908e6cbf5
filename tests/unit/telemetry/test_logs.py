"""Log records of OTLP requests: what becomes of each field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from penstock.telemetry.requests import REQUESTS, Decoded
from penstock.telemetry.schema import LOGS, Signal
from tests.unit.telemetry.rig import DECODERS, attribute, only_row

if TYPE_CHECKING:
    from collections.abc import Callable

Decode: TypeAlias = "Callable[[Signal, list[bytes]], Decoded]"


def request_of(*records: LogRecord) -> bytes:
    """Return a serialized request with these records."""
    request = REQUESTS[Signal.LOGS]()
    part = request.resource_logs.add()
    part.resource.attributes.append(attribute("service.name", "cart"))
    part.scope_logs.add(log_records=records)
    payload: bytes = request.SerializeToString()
    return payload


def row_of(decode: Decode, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a record has
    """Return the row of a request with one record."""
    return only_row(decode(Signal.LOGS, [request_of(LogRecord(**fields))]))


@DECODERS
def test_a_record_has_time_severity_and_origin(decode: Decode) -> None:
    """The schema is the one of logs; attributes are texts and stay together."""
    row = row_of(
        decode,
        time_unix_nano=1_700_000_000_123_456_789,
        observed_time_unix_nano=5,
        severity_number=17,
        severity_text="ERROR",
        body=AnyValue(string_value="no room"),
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        attributes=[attribute("server.port", 1), attribute("k", "v")],
    )
    assert row == {
        "time_ns": 1_700_000_000_123_456_789,
        "observed_ns": 5,
        "severity_number": 17,
        "severity_text": "ERROR",
        "body": "no room",
        "service_name": "cart",
        "service_instance": "",
        "scope_name": None,
        "trace_id": b"t" * 16,
        "span_id": b"s" * 8,
        "attributes": {"server.port": "1", "k": "v"},
        "resource_attributes": {"service.name": "cart"},
    }
    assert list(row) == LOGS.names


@DECODERS
@pytest.mark.parametrize(
    ("time", "observed", "expected"),
    [(7, 9, (7, 9)), (0, 9, (9, 9)), (7, 0, (7, None)), (0, 0, (0, None))],
)
def test_a_record_without_a_time_has_the_time_it_was_observed(
    decode: Decode, time: int, observed: int, expected: tuple[int, int | None]
) -> None:
    """0 means that a time was not known."""
    row = row_of(decode, time_unix_nano=time, observed_time_unix_nano=observed)
    assert (row["time_ns"], row["observed_ns"]) == expected


@DECODERS
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, None),
        (AnyValue(), ""),
        (AnyValue(string_value=""), ""),
        (AnyValue(int_value=3), "3"),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="ä")])), '["ä"]'),
    ],
)
def test_a_body_is_text(decode: Decode, body: AnyValue | None, text: str | None) -> None:
    """By the rules for attributes; no body at all is null."""
    assert row_of(decode, body=body)["body"] == text


@DECODERS
@pytest.mark.parametrize("trace_id", [b"", b"short", bytes(16), b"t" * 17])
def test_an_id_that_is_none_is_null(decode: Decode, trace_id: bytes) -> None:
    """A record is worth keeping without its span; it is not rejected."""
    row = row_of(decode, trace_id=trace_id, span_id=trace_id[:7])
    assert (row["trace_id"], row["span_id"]) == (None, None)


@DECODERS
@pytest.mark.parametrize(("sent", "expected"), [(0, 0), (24, 24), (25, 0), (-1, 0), (300, 0)])
def test_an_unknown_severity_is_unspecified(decode: Decode, sent: int, expected: int) -> None:
    """OTLP's severities end at 24; an empty text is null."""
    row = row_of(decode, severity_number=sent)
    assert (row["severity_number"], row["severity_text"]) == (expected, None)


@DECODERS
@pytest.mark.parametrize("field", ["time_unix_nano", "observed_time_unix_nano"])
def test_a_time_beyond_64_bits_with_a_sign_is_rejected(decode: Decode, field: str) -> None:
    """Either of the two times; the record beside it is kept."""
    late, last = LogRecord(), LogRecord()
    setattr(late, field, 2**63)
    setattr(last, field, 2**63 - 1)
    decoded = decode(Signal.LOGS, [request_of(late, last)])
    assert decoded.table.column("time_ns").to_pylist() == [2**63 - 1]
    assert decoded.reasons == {"time": 1}
