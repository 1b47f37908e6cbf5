"""Spans of OTLP requests: what becomes of each field."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from penstock.telemetry.requests import REQUESTS, Decoded
from penstock.telemetry.schema import ALIASES, PROMOTED, SPANS, Signal
from tests.unit.telemetry.rig import DECODERS, attribute, only_row, span_request

if TYPE_CHECKING:
    from collections.abc import Callable

Decode: TypeAlias = "Callable[[Signal, list[bytes]], Decoded]"


def row_of(decode: Decode, *arguments: Any, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a span has
    """Return the row of a request with one span."""
    return only_row(decode(Signal.SPANS, [span_request(*arguments, **fields)]))


@DECODERS
def test_no_requests_are_an_empty_table(decode: Decode) -> None:
    """The schema is there, even if nothing else is."""
    for payloads in ([], [b""], [b"", b""]):
        decoded = decode(Signal.SPANS, payloads)
        assert decoded.table.schema.equals(SPANS)
        assert decoded.table.num_rows == decoded.rejected == 0


@DECODERS
def test_a_bare_span_has_only_what_every_span_has(decode: Decode) -> None:
    """Whatever is missing is null where it may be, and says "unknown" where it may not."""
    row = row_of(decode)
    assert row["trace_id"] == bytes(range(16))
    assert row["service_name"] == "unknown_service"
    assert (row["service_instance"], row["kind"], row["status_code"]) == ("", 0, 0)
    assert (row["attributes"], row["resource_attributes"]) == ({}, {})
    absent = {name for name, value in row.items() if value is None}
    assert absent == {field.name for field in SPANS if field.nullable} - {
        "attributes",
        "resource_attributes",
    }


@DECODERS
def test_nanoseconds_are_kept(decode: Decode) -> None:
    """Times are whole numbers all the way; a double would lose the last three digits."""
    start, end = 1_700_000_000_123_456_789, 2**63 - 1
    row = row_of(decode, start_time_unix_nano=start, end_time_unix_nano=end)
    assert (row["start_ns"], row["end_ns"]) == (start, end)


@DECODERS
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"trace_id": b""}, "trace_id"),
        ({"trace_id": bytes(15)}, "trace_id"),
        ({"span_id": bytes(9)}, "span_id"),
        ({"parent_span_id": bytes(7)}, "parent_span_id"),
        ({"start_time_unix_nano": 2**63}, "time"),
        ({"end_time_unix_nano": 2**64 - 1}, "time"),
        ({"trace_id": b"", "span_id": b"", "end_time_unix_nano": 2**63}, "trace_id"),
    ],
)
def test_a_span_that_no_table_can_hold_is_rejected(
    decode: Decode, fields: dict[str, Any], reason: str
) -> None:
    """It is counted once, under the first reason; the spans beside it are kept."""
    decoded = decode(Signal.SPANS, [span_request(name="kept"), span_request(**fields)])
    assert decoded.table.column("name").to_pylist() == ["kept"]
    assert (decoded.rejected, decoded.reasons) == (1, {reason: 1})


@DECODERS
@pytest.mark.parametrize(
    ("sent", "expected"), [(b"", None), (bytes(8), None), (b"12345678", b"12345678")]
)
def test_a_span_without_a_parent_has_none(
    decode: Decode, sent: bytes, expected: bytes | None
) -> None:
    """No id, and the id that means none, are null."""
    assert row_of(decode, parent_span_id=sent)["parent_span_id"] == expected


@DECODERS
@pytest.mark.parametrize(("sent", "expected"), [(0, 0), (5, 5), (6, 0), (-1, 0), (2**31 - 1, 0)])
def test_an_unknown_kind_is_unspecified(decode: Decode, sent: int, expected: int) -> None:
    """Only the kinds that OTLP has are kept."""
    assert row_of(decode, kind=sent)["kind"] == expected


@DECODERS
def test_status_is_code_and_message(decode: Decode) -> None:
    """An empty message is no message, an unknown code is UNSET."""
    row = row_of(decode, status=Status(code=Status.STATUS_CODE_ERROR, message="timed out"))
    assert (row["status_code"], row["status_message"]) == (2, "timed out")
    row = row_of(decode, status={"code": 7})
    assert (row["status_code"], row["status_message"]) == (0, None)


@DECODERS
@pytest.mark.parametrize(
    ("resource", "name", "instance"),
    [
        ({"service.name": "cart", "service.instance.id": "1", "host.name": "h"}, "cart", "1"),
        ({"service.name": "cart", "host.name": "h"}, "cart", "h"),
        ({"service.name": "", "service.instance.id": ""}, "unknown_service", ""),
        ({"service.name": 7, "service.instance.id": "", "host.name": "h"}, "7", "h"),
        ({"service.name": None}, "unknown_service", ""),
    ],
)
def test_a_resource_names_service_and_instance(
    decode: Decode, resource: dict[str, object], name: str, instance: str
) -> None:
    """The first that is there and not empty; all of the resource's attributes are kept."""
    row = row_of(decode, {}, resource)
    assert (row["service_name"], row["service_instance"]) == (name, instance)
    assert list(row["resource_attributes"]) == list(resource)


@DECODERS
def test_spans_have_their_own_resource_and_scope(decode: Decode) -> None:
    """Requests with several resources and scopes keep them apart."""
    parts = []
    for service in ("a", "b", "a"):
        part = ResourceSpans()
        part.resource.attributes.append(attribute("service.name", service))
        for scope in ("x", "", "y"):
            name = f"{service}{scope}"
            spans = [Span(trace_id=bytes(16), span_id=bytes(8), name=name) for _ in range(2)]
            added = part.scope_spans.add(spans=spans)
            added.scope.name = scope
        parts.append(part)
    parts.insert(1, ResourceSpans(scope_spans=[ScopeSpans()]))
    request = REQUESTS[Signal.SPANS](resource_spans=parts).SerializeToString()
    table = decode(Signal.SPANS, [request, b"", request]).table
    rows = table.select(["name", "service_name", "scope_name"]).to_pylist()
    assert len(rows) == 36
    assert all(r["name"] == r["service_name"] + (r["scope_name"] or "") for r in rows)
    assert {r["scope_name"] for r in rows} == {"x", "y", None}


@DECODERS
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", ""),
        ("naïve 😀", "naïve 😀"),
        (True, "true"),
        (False, "false"),
        (-(2**63), "-9223372036854775808"),
        (1.5, "1.5"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e30, "1e+30"),
        (1e10, "10000000000.0"),
        (1e-5, "1e-05"),
        (5e-324, "5e-324"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (b"\xff\x00", "/wA="),
        (b"", ""),
        (None, ""),
        (AnyValue(), ""),
        (AnyValue(string_value_strindex=3), ""),
        (AnyValue(array_value=ArrayValue()), "[]"),
        (AnyValue(kvlist_value=KeyValueList()), "{}"),
    ],
)
def test_values_become_text(decode: Decode, value: object, text: str) -> None:
    """Strings stay as they are, everything else is written as JSON, bytes in base64."""
    row = row_of(decode, {"k": value, "other": "o"})
    assert row["attributes"] == {"k": text, "other": "o"}


@DECODERS
def test_nested_values_are_compact_json(decode: Decode) -> None:
    """Arrays and lists of pairs may hold each other, and what JSON has no word for."""
    inner = KeyValueList(
        values=[
            attribute("a", "first"),
            attribute("b", b"\x01"),
            attribute("a", math.inf),
            attribute("ü", None),
        ]
    )
    values = [AnyValue(int_value=1), AnyValue(double_value=2.0), AnyValue(kvlist_value=inner)]
    values.append(AnyValue(array_value=ArrayValue(values=[AnyValue(bool_value=True)])))
    row = row_of(decode, {"k": AnyValue(array_value=ArrayValue(values=values))})
    assert row["attributes"]["k"] == '[1,2.0,{"a":"Infinity","b":"AQ==","ü":null},[true]]'


@DECODERS
def test_of_equal_keys_the_last_counts(decode: Decode) -> None:
    """Also for promoted attributes and those of resources."""
    span = Span(trace_id=bytes(16), span_id=bytes(8))
    pairs = [("k", "1"), ("server.port", 1), ("x", "x"), ("k", "2"), ("server.port", 2), ("k", "3")]
    span.attributes.extend(attribute(*pair) for pair in pairs)
    part = ResourceSpans(scope_spans=[ScopeSpans(spans=[span, span])])
    part.resource.attributes.extend(attribute("service.name", name) for name in ("old", "new"))
    request = REQUESTS[Signal.SPANS](resource_spans=[part]).SerializeToString()
    for row in decode(Signal.SPANS, [request]).table.to_pylist():
        assert row["attributes"] == [("x", "x"), ("k", "3")]
        assert row["resource_attributes"] == [("service.name", "new")]
        assert (row["server_port"], row["service_name"]) == (2, "new")


@DECODERS
@pytest.mark.parametrize("name", PROMOTED)
def test_a_promoted_attribute_is_a_column_and_not_in_the_map(decode: Decode, name: str) -> None:
    """Each of them; a span beside it that has none of them is null there."""
    expected = "7" if SPANS.field(PROMOTED[name]).type == "string" else 7
    payloads = [span_request({"k": "v", name: "7"}), span_request({"k": "v"})]
    rows = decode(Signal.SPANS, payloads).table.to_pylist()
    assert [row[PROMOTED[name]] for row in rows] == [expected, None]
    assert [row["attributes"] for row in rows] == [[("k", "v")]] * 2


@DECODERS
@pytest.mark.parametrize(
    ("name", "alias"), [(name, alias) for name, found in ALIASES.items() for alias in found]
)
def test_an_alias_is_promoted_and_stays_in_the_map(decode: Decode, name: str, alias: str) -> None:
    """What the attribute is called today comes first; only then do its other names count."""
    expected = "8" if SPANS.field(PROMOTED[name]).type == "string" else 8
    row = row_of(decode, {alias: "8"})
    assert row[PROMOTED[name]] == expected
    assert row["attributes"] == {alias: "8"}
    row = row_of(decode, {alias: "9", name: "8"})
    assert row[PROMOTED[name]] == expected
    assert row["attributes"] == {alias: "9"}


@DECODERS
def test_the_first_alias_is_preferred(decode: Decode) -> None:
    """Aliases count in the order in which they are listed, not in the order sent."""
    sent = {"network.peer.address": "c", "net.sock.peer.addr": "b", "net.peer.name": "a"}
    row = row_of(decode, sent)
    assert (row["server_address"], row["client_address"]) == ("a", "b")
    assert row["attributes"] == sent


@DECODERS
@pytest.mark.parametrize(
    ("value", "port"),
    [
        (8080, 8080),
        ("8080", 8080),
        ("+8080", 8080),
        ("-1", -1),
        ("0080", 80),
        (2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31)),
        (2**31, None),
        ("2147483648", None),
        ("1" * 19, None),
        (" 80", None),
        ("80\n", None),
        ("", None),
        ("http", None),
        ("٣", None),
        (80.0, None),
        (True, None),
        (None, None),
        (b"80", None),
    ],
)
def test_a_number_column_takes_whole_numbers_only(
    decode: Decode, value: object, port: int | None
) -> None:
    """Whole numbers, also as text; whatever else was sent stays in the map."""
    row = row_of(decode, {"server.port": value, "net.peer.port": 1})
    assert row["server_port"] == port
    assert ("server.port" in row["attributes"]) == (port is None)


@DECODERS
def test_the_widest_number_column_takes_all_of_64_bits(decode: Decode) -> None:
    """Whole numbers are not limited to the 18 digits that a text may have."""
    sent = [2**63 - 1, "9" * 18, "-" + "9" * 18, "1" * 19]
    payloads = [span_request({"transmission.latency": value}) for value in sent]
    column = decode(Signal.SPANS, payloads).table.column("transmission_latency")
    assert column.to_pylist() == [2**63 - 1, 10**18 - 1, 1 - 10**18, None]


@DECODERS
def test_equal_doubles_that_are_not_the_same_are_kept_apart(decode: Decode) -> None:
    """There are two zeroes."""
    row = row_of(decode, {"a": 0.0, "b": -0.0, "c": 0.0})
    assert row["attributes"] == {"a": "0.0", "b": "-0.0", "c": "0.0"}


@DECODERS
def test_events_are_otlp_json(decode: Decode) -> None:
    """Ids in hexadecimal, 64-bit numbers as text, members with default values left out."""
    attributes = [
        attribute("s", 'a"\\\n\t\x01/é'),
        attribute("q", '"\\n" \r\n\t'),
        attribute("i", 2**53 + 1),
        attribute("d", math.nan),
        attribute("e", 0.5),
        attribute("b", value=False),
        attribute("y", b"\xff"),
        attribute("n", None),
        attribute("l", AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1)]))),
    ]
    event = Span.Event(
        name="exception",
        time_unix_nano=5,
        attributes=attributes,
        dropped_attributes_count=1,
    )
    latest = Span.Event(time_unix_nano=2**64 - 1)
    row = row_of(decode, events=[event, Span.Event(), latest])
    assert json.loads(row["events"]) == [
        {
            "timeUnixNano": "5",
            "name": "exception",
            "attributes": [
                {"key": "s", "value": {"stringValue": 'a"\\\n\t\x01/é'}},
                {"key": "q", "value": {"stringValue": '"\\n" \r\n\t'}},
                {"key": "i", "value": {"intValue": "9007199254740993"}},
                {"key": "d", "value": {"doubleValue": "NaN"}},
                {"key": "e", "value": {"doubleValue": 0.5}},
                {"key": "b", "value": {"boolValue": False}},
                {"key": "y", "value": {"bytesValue": "/w=="}},
                {"key": "n"},
                {"key": "l", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}},
            ],
            "droppedAttributesCount": 1,
        },
        {},
        {"timeUnixNano": "18446744073709551615"},
    ]


@DECODERS
def test_links_are_otlp_json(decode: Decode) -> None:
    """A span without any has null, not an empty list."""
    link = Span.Link(trace_id=b"\x0f" * 16, span_id=b"\xf0" * 8, trace_state="a=b", flags=1)
    linked, bare = span_request(links=[link]), span_request()
    texts = decode(Signal.SPANS, [bare, linked, bare]).table.column("links").to_pylist()
    expected = {"traceId": "0f" * 16, "spanId": "f0" * 8, "traceState": "a=b", "flags": 1}
    assert texts[0] is texts[2] is None
    assert json.loads(texts[1]) == [expected]
