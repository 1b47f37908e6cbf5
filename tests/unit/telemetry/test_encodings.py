"""Requests in unusual encodings, and in unusual amounts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.telemetry import _attributes, _columns, otlp, plain
from penstock.telemetry._envelope import Envelope
from penstock.telemetry.schema import SIGNALS, Signal
from tests.unit.telemetry.rig import rows_of, span_request

if TYPE_CHECKING:
    from collections.abc import Sequence


def field(number: int, content: bytes) -> bytes:
    """Return a field of the wire format that holds a message, text or bytes."""
    assert number < 16
    length, encoded = len(content), b""
    while length > 0x7F:
        encoded, length = encoded + bytes([length & 0x7F | 0x80]), length >> 7
    return bytes([number << 3 | 2]) + encoded + bytes([length]) + content


SPAN = field(1, b"t" * 16) + field(2, b"s" * 8)
INT_5 = b"\x18\x05"


def request_of(span: bytes, resource: bytes = b"", scope: bytes = b"") -> bytes:
    """Return a trace request around a span, resource and scope already encoded as fields."""
    return field(1, resource + field(2, scope + field(2, SPAN + span)))


def value_of(content: bytes) -> bytes:
    """Return an attribute "k" with the given encoded value."""
    return field(9, field(1, b"k") + field(2, content))


def pair(key: bytes, text: bytes) -> bytes:
    """Return an encoded KeyValue with a string."""
    return field(1, key) + field(2, field(1, text))


def same_rows(signal: Signal, payloads: Sequence[bytes]) -> list[dict[str, object]]:
    """Decode both ways; return the rows, which must be the same."""
    native, expected = otlp.decode(signal, payloads), plain.decode(signal, payloads)
    assert rows_of(native.table) == rows_of(expected.table)
    rows: list[dict[str, object]] = native.table.to_pylist()
    return rows


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (field(1, b"a") + INT_5, "5"),
        (INT_5 + field(1, b"a"), "a"),
        (INT_5 + field(5, field(1, INT_5)), "[5]"),
        (field(5, field(1, INT_5)) + field(1, b"a") + field(5, b""), "[]"),
        (field(5, field(1, INT_5)) + field(5, field(1, field(1, b"a"))), '[5,"a"]'),
        (field(7, b"a") + field(7, b"b"), "Yg=="),
        (field(1, b"a") + b"\x40\x01", ""),
    ],
    ids=["text,int", "int,text", "int,array", "array,text,array", "arrays", "bytes", "text,index"],
)
def test_of_several_alternatives_the_last_counts(content: bytes, text: str) -> None:
    """As protobuf has it: another alternative replaces a value, the same one is merged."""
    (row,) = same_rows(Signal.SPANS, [request_of(value_of(content))])
    assert row["attributes"] == [("k", text)]
    event = field(11, field(3, field(1, b"k") + field(2, content)))
    same_rows(Signal.SPANS, [request_of(event)])


AS_INT, AS_DOUBLE = b"\x31" + (7).to_bytes(8, "little"), b"\x21" + bytes(8)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (field(5, field(1, AS_INT)) + field(7, field(1, AS_INT)), ("sum", 7.0)),
        (field(7, field(1, AS_INT)) + field(5, field(1, AS_INT)), ("gauge", 7.0)),
        (field(5, field(1, AS_INT + AS_DOUBLE)), ("gauge", 0.0)),
        (field(5, field(1, AS_DOUBLE + AS_INT)), ("gauge", 7.0)),
    ],
    ids=["gauge,sum", "sum,gauge", "int,double", "double,int"],
)
def test_of_several_kinds_of_data_the_last_counts(data: bytes, expected: tuple[str, float]) -> None:
    """A metric that says that it is a gauge, and then that it is a sum, is a sum."""
    (row,) = same_rows(Signal.POINTS, [field(1, field(2, field(2, data)))])
    assert (row["kind"], row["value"]) == expected


def test_a_message_in_pieces_is_one_message() -> None:
    """Resource, scope, status and event may come in parts, which are merged."""
    resource = field(1, field(1, pair(b"service.name", b"old")))
    resource += field(1, field(1, pair(b"host.name", b"h")) + field(1, pair(b"service.name", b"a")))
    scope = field(1, field(1, b"first")) + field(1, field(2, b"version"))
    span = field(15, field(2, b"why")) + field(15, b"\x18\x02")
    (row,) = same_rows(Signal.SPANS, [request_of(span, resource, scope)])
    assert (row["service_name"], row["service_instance"]) == ("a", "h")
    assert (row["scope_name"], row["status_message"], row["status_code"]) == ("first", "why", 2)


def test_fields_that_nobody_knows_are_skipped() -> None:
    """Newer senders may send more than OTLP has today."""
    unknown = b"\xf8\x7f\x01" + b"\xfb\x7f\x08\x01\xfc\x7f" + b"\xfd\x7f\x00\x00\x00\x00"
    span = unknown + field(9, unknown + pair(b"k", b"v") + unknown)
    (row,) = same_rows(Signal.SPANS, [request_of(span) + unknown])
    assert row["attributes"] == [("k", "v")]


@pytest.mark.parametrize(
    "broken",
    [
        request_of(value_of(field(1, b"\xff"))),
        request_of(value_of(field(5, b"\x0a\x05"))),
        request_of(field(11, field(2, b"\xff"))),
        request_of(b"", resource=field(1, field(1, field(1, b"\xff")))),
        request_of(b"", scope=field(1, field(1, b"\xff"))),
    ],
    ids=["text", "array", "event", "resource", "scope"],
)
def test_what_is_read_is_checked(broken: bytes) -> None:
    """Also in the parts that are parsed in a second step."""
    with pytest.raises(otlp.MalformedError, match=r"^payloads\[1\]"):
        otlp.decode(Signal.SPANS, [request_of(b""), broken])


def test_only_odd_requests_are_parsed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What senders really send takes the fast way."""
    monkeypatch.setattr(otlp, "_normalized", None)
    payload = span_request({"k": "v", "i": 1, "d": 0.5, "b": True, "y": b"y", "n": None})
    assert otlp.decode(Signal.SPANS, [payload]).table.num_rows == 1


@pytest.mark.parametrize("limit", [1, 300, 1000, 1 << 20])
def test_requests_are_decoded_in_groups(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the groups end makes no difference; rejections of all of them are counted."""
    monkeypatch.setattr(otlp, "_GROUP_BYTES", limit)
    bad = span_request(trace_id=b"")
    payloads = [b"", *(span_request({"k": f"{n}"}, name=f"{n}") for n in range(20)), bad, b"", bad]
    decoded = otlp.decode(Signal.SPANS, payloads)
    assert decoded.table.column("name").to_pylist() == [f"{n}" for n in range(20)]
    assert decoded.reasons == {"trace_id": 2}
    chunks = decoded.table.column("name").num_chunks
    assert (chunks == 1) == (limit == 1 << 20)


def test_attributes_of_a_resource_may_be_more_than_one_array_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A small request can ask for gigabytes: a large resource, repeated for each span."""
    monkeypatch.setattr(_columns, "_CHUNK_BYTES", 100)
    small = span_request({}, {"k": "v"})
    large = span_request({}, {"service.name": "x" * 60})
    payloads = [small, large, large, small, small, large]
    table = otlp.decode(Signal.SPANS, payloads).table
    column = table.column("resource_attributes")
    assert [len(chunk) for chunk in column.chunks] == [2, 3, 1]
    assert table.equals(plain.decode(Signal.SPANS, payloads).table)


def test_an_array_is_cut_only_when_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the limit the rows are one chunk, which is what readers are fastest with."""
    payloads = [span_request({}, {"k": "v"})] * 10
    monkeypatch.setattr(_columns, "_CHUNK_BYTES", 20)
    table = otlp.decode(Signal.SPANS, payloads).table
    assert {column.num_chunks for column in table.columns} == {1}


def test_very_many_different_keys_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """More keys than the short codes have numbers for."""
    monkeypatch.setattr(_attributes, "_FEW", 10)
    attributes = {f"key {n}": n for n in range(300)}
    (row,) = same_rows(Signal.SPANS, [span_request({**attributes, "peer.service": "p"})])
    assert row["attributes"] == [(key, str(n)) for key, n in attributes.items()]
    assert row["peer_service"] == "p"


def test_threads_may_decode_at_the_same_time() -> None:
    """What is kept between calls is shared and never changes."""
    payloads = [span_request({"k": f"{n}"}) for n in range(50)]
    expected = otlp.decode(Signal.SPANS, payloads).table
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: otlp.decode(Signal.SPANS, payloads).table, range(16)))
    assert all(table.equals(expected) for table in tables)


@pytest.mark.parametrize("signal", Signal)
def test_an_empty_table_has_the_schema(signal: Signal) -> None:
    """Also when there are requests, but nothing in them."""
    for payloads in ([], [b""]):
        assert otlp.decode(signal, payloads).table.schema.equals(SIGNALS[signal])


def test_equal_resources_are_parsed_once() -> None:
    """Senders repeat theirs in every request."""
    resource = {"service.name": "a", "k": "v"}
    payloads = [span_request({}, resource), span_request({}, {}), span_request({}, resource)]
    envelope = Envelope.of(Signal.SPANS, payloads)
    assert envelope.resource.tolist() == [0, 1, 0]
    assert envelope.resources.service_name.equals(pa.array(["a", "unknown_service"]))
