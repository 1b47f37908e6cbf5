"""OTLP/JSON requests become the same messages as their protobuf twins."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry.otlp import MalformedError, from_json
from penstock.telemetry.requests import REQUESTS
from penstock.telemetry.schema import Signal
from tests.unit.telemetry.rig import EXAMPLES, PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the OpenTelemetry documentation shows, in its own notation.
SPANS: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {
                "attributes": [{"key": "service.name", "value": {"stringValue": "my.service"}}]
            },
            "scopeSpans": [
                {
                    "scope": {"name": "my.library", "version": "1.0.0"},
                    "spans": [
                        {
                            "traceId": "5B8EFFF798038103D269B633813FC60C",
                            "spanId": "eee19b7ec3c1b174",
                            "parentSpanId": "EEE19B7EC3C1B173",
                            "name": "I'm a server span",
                            "startTimeUnixNano": "1544712660000000001",
                            "endTimeUnixNano": 1544712661000000003,
                            "kind": 2,
                            "status": {"code": "STATUS_CODE_ERROR"},
                            "attributes": [
                                {"key": "i", "value": {"intValue": "9223372036854775807"}},
                                {"key": "n", "value": {"intValue": 9007199254740993}},
                                {"key": "d", "value": {"doubleValue": "-Infinity"}},
                                {"key": "e", "value": {"doubleValue": 3}},
                                {"key": "b", "value": {"boolValue": False}},
                                {"key": "y", "value": {"bytesValue": "_-8"}},
                                {
                                    "key": "a",
                                    "value": {"arrayValue": {"values": [{"stringValue": "x"}]}},
                                },
                                {"key": "z", "value": None},
                            ],
                            "madeUpTomorrow": {"x": [1]},
                            "events": None,
                        }
                    ],
                }
            ],
        }
    ]
}


def text_of(value: object) -> bytes:
    """Return JSON text in UTF-8."""
    return json.dumps(value, ensure_ascii=False).encode()


def span_of(**fields: object) -> bytes:
    """Return a request with one span that has only these members."""
    return text_of({"resourceSpans": [{"scopeSpans": [{"spans": [fields]}]}]})


def read(signal: Signal, text: bytes) -> Any:  # noqa: ANN401 - a message of any class
    """Return the request as a message."""
    return REQUESTS[signal].FromString(from_json(signal, text))


def test_a_trace_request_is_read() -> None:
    """Hexadecimal ids, numbers as text, names of enumerated values, unknown members, null."""
    (part,) = read(Signal.SPANS, text_of(SPANS)).resource_spans
    (span,) = part.scope_spans[0].spans
    assert part.resource.attributes[0].value.string_value == "my.service"
    assert part.scope_spans[0].scope.name == "my.library"
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert (span.span_id.hex(), span.parent_span_id.hex()) == (
        "eee19b7ec3c1b174",
        "eee19b7ec3c1b173",
    )
    assert (span.kind, span.status.code) == (2, 2)
    assert span.start_time_unix_nano == 1544712660000000001
    assert span.end_time_unix_nano == 1544712661000000003
    values = {pair.key: pair.value for pair in span.attributes}
    assert values["i"].int_value == 2**63 - 1
    assert values["n"].int_value == 9007199254740993
    assert values["d"].double_value == float("-inf")
    assert values["e"].double_value == 3.0
    assert values["b"].WhichOneof("value") == "bool_value"
    assert values["y"].bytes_value == b"\xff\xef"
    assert values["a"].array_value.values[0].string_value == "x"
    assert values["z"].WhichOneof("value") is None
    assert not span.events


def test_metrics_and_logs_are_read() -> None:
    """The other two signals, with the fields that only they have."""
    point = {"timeUnixNano": "5", "asInt": "-3", "exemplars": [{"traceId": "00ff", "asDouble": 1}]}
    total = {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [point]}
    metric = {"name": "m", "sum": total}
    request = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    data = read(Signal.POINTS, text_of(request)).resource_metrics[0].scope_metrics[0].metrics[0].sum
    assert (data.aggregation_temporality, data.is_monotonic) == (2, True)
    assert data.data_points[0].as_int == -3
    assert data.data_points[0].exemplars[0].trace_id == b"\x00\xff"
    log = {"severityNumber": "SEVERITY_NUMBER_INFO", "body": {"stringValue": "hi"}, "spanId": ""}
    request = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    record = read(Signal.LOGS, text_of(request)).resource_logs[0].scope_logs[0].log_records[0]
    assert (record.severity_number, record.body.string_value, record.span_id) == (9, "hi", b"")


@pytest.mark.parametrize("text", [b"{}", b" {}\n", b"\xef\xbb\xbf{}", b'{"resourceSpans": null}'])
def test_a_request_may_be_empty(text: bytes) -> None:
    """Nothing in JSON is nothing in protobuf."""
    assert from_json(Signal.SPANS, text) == b""


def test_empty_objects_count_as_sent() -> None:
    """A value that is there but empty differs from one that is missing."""
    attributes = [{"key": "k", "value": {}}, {"key": "k"}]
    (part,) = read(Signal.SPANS, span_of(attributes=attributes)).resource_spans
    there, missing = part.scope_spans[0].spans[0].attributes
    assert there.HasField("value")
    assert not missing.HasField("value")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON: Expecting value in line 1, column 1"),
        (b'{\n "a": 1,\n}', "^not JSON: .* in line 3, column 1"),
        (b'{"a": "\xff"}', "not JSON: byte 7 is not UTF-8"),
        (b'{"a": NaN}', '^not JSON: the bare word NaN; write "NaN", with quotes'),
        (b'{"a": ' + b"9" * 5000 + b"}", "not OTLP: .*digits"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", r"the request: expected an object, got \[\]"),
        (b'{"resourceSpans": {}}', "resourceSpans: expected an array, got {}"),
        (b'{"resourceSpans": [null]}', r"resourceSpans\[0\]: expected an object, got null"),
        (b'{"resourceSpans": [{"resource": []}]}', r"resourceSpans\[0\]\.resource: expected"),
    ],
)
def test_text_that_is_no_request_is_refused(text: bytes, message: str) -> None:
    """The error says where, by line and column or by the path of the member."""
    with pytest.raises(MalformedError, match=message):
        from_json(Signal.SPANS, text)


ATTRIBUTE = "attributes[0].value"


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ({"traceId": "xyz"}, "traceId", "hexadecimal digits"),
        ({"traceId": "abc"}, "traceId", "hexadecimal digits"),
        ({"traceId": "00 11"}, "traceId", "hexadecimal digits"),
        ({"spanId": 5}, "spanId", "a string, got 5"),
        ({"name": 5}, "name", "a string"),
        ({"name": "\ud800"}, "name", "half of a surrogate pair"),
        ({"kind": "SPAN_KIND_ODD"}, "kind", "a whole number from -2147483648"),
        ({"kind": 2**31}, "kind", "a whole number"),
        ({"startTimeUnixNano": "1.5"}, "startTimeUnixNano", "a whole number from 0 to 1844"),
        ({"startTimeUnixNano": "1_000"}, "startTimeUnixNano", "a whole number"),
        ({"startTimeUnixNano": "٣"}, "startTimeUnixNano", "a whole number"),
        ({"startTimeUnixNano": -1}, "startTimeUnixNano", "a whole number"),
        ({"startTimeUnixNano": True}, "startTimeUnixNano", "a whole number"),
        ({"startTimeUnixNano": 1.5}, "startTimeUnixNano", "a whole number"),
        ({"startTimeUnixNano": 1e400}, "", "the bare word Infinity"),
        ({"flags": 2**32}, "flags", "a whole number from 0 to 4294967295"),
        ({"attributes": [{"value": {"boolValue": 1}}]}, f"{ATTRIBUTE}.boolValue", "true or false"),
        ({"attributes": [{"value": {"doubleValue": "1,5"}}]}, f"{ATTRIBUTE}.doubleValue", "a num"),
        ({"attributes": [{"value": {"doubleValue": True}}]}, f"{ATTRIBUTE}.doubleValue", "a num"),
        ({"attributes": [{"value": {"doubleValue": 10**400}}]}, f"{ATTRIBUTE}.doubleValue", "a nu"),
        ({"attributes": [{"value": {"bytesValue": "a"}}]}, f"{ATTRIBUTE}.bytesValue", "base64"),
        ({"attributes": [{"value": {"bytesValue": "ä==="}}]}, f"{ATTRIBUTE}.bytesValue", "base64"),
        ({"attributes": [{"value": "x"}]}, ATTRIBUTE, 'an object, got "x"'),
    ],
)
def test_a_member_of_the_wrong_kind_is_named(
    fields: dict[str, object], path: str, expected: str
) -> None:
    """The error has the path to the member, what should be there and what is."""
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [fields]}]}]}).encode()
    where = re.escape(f"resourceSpans[0].scopeSpans[0].spans[0].{path}: expected ") if path else ""
    with pytest.raises(MalformedError, match=where + ".*" + re.escape(expected)):
        from_json(Signal.SPANS, text)


@pytest.mark.parametrize("number", [b"1e400", b'"-1e400"', b"1" + b"0" * 400])
def test_a_number_beyond_all_doubles_is_refused(number: bytes) -> None:
    """It is not infinity, which JSON says with a word."""
    text = span_of(attributes=[{"value": {"doubleValue": "N"}}]).replace(b'"N"', number)
    with pytest.raises(MalformedError, match="doubleValue: expected a number that a double can"):
        from_json(Signal.SPANS, text)


def test_of_two_alternatives_one_must_go() -> None:
    """A value is a string or a number; the one that stands last is not better than the other."""
    text = span_of(attributes=[{"value": {"stringValue": "a", "intValue": 1}}])
    with pytest.raises(MalformedError, match=r"intValue: 'stringValue' is given too"):
        from_json(Signal.SPANS, text)


def test_values_may_be_nested_as_deeply_as_in_protobuf() -> None:
    """Beyond that protobuf itself could not read what we make of it."""

    def nested(levels: int) -> bytes:
        value: dict[str, object] = {"intValue": 1}
        for _ in range(levels):
            value = {"arrayValue": {"values": [value]}}
        return span_of(attributes=[{"key": "k", "value": value}])

    read(Signal.SPANS, nested(40))
    with pytest.raises(MalformedError, match="nested more than 100 levels deep"):
        from_json(Signal.SPANS, nested(60))


def test_a_long_value_is_not_repeated_in_the_message() -> None:
    """Errors go into logs and answers; what was sent may be large."""
    with pytest.raises(MalformedError) as caught:
        from_json(Signal.SPANS, span_of(traceId="x" * 10_000))
    assert len(str(caught.value)) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield every object or array with each of its keys or positions."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places_in(value[key])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return the example with one of its values replaced, and perhaps cut or overwritten."""
    request = json.loads(json.dumps(SPANS))
    places = list(places_in(request))
    holder, key = places[draw(st.integers(0, len(places) - 1))]
    holder[key] = draw(JSON)
    text = bytearray(text_of(request) if draw(st.booleans()) else json.dumps(request).encode())
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text) - 1))
        text[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(text)


def surely(text: bytes) -> None:
    """Read *text* or be told that it is malformed; whatever is read, protobuf can parse."""
    for signal in Signal:
        try:
            payload = from_json(signal, text)
        except MalformedError:
            continue
        REQUESTS[signal].FromString(payload)


@settings(PATIENT, max_examples=1000 * EXAMPLES)
@given(text=damaged() | st.binary(max_size=40) | JSON.map(json.dumps).map(str.encode))
def test_damaged_json_is_malformed_or_read(text: bytes) -> None:
    """Nothing else is ever raised."""
    surely(text)
