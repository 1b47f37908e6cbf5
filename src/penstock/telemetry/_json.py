"""Events and links of spans as OTLP/JSON, for whole columns at once.

Members with their default value are left out, as ProtoJSON does.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import ArrayValue, KeyValueList

from penstock.telemetry._columns import flatten, joined, list_lengths, offsets_of, one_by_one
from penstock.telemetry._values import (
    AmbiguousError,
    base64_texts,
    bool_texts,
    double_text,
    double_texts,
    int_texts,
    json_text,
)
from penstock.telemetry._wire import read_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.telemetry._values import Json

__all__ = ["events_json", "links_json"]

_HEX = np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint16)
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_CONTROL = r"[\x00-\x1f]"
_SPECIAL = r'[\x00-\x1f"\\]'


def events_json(lists: pa.Array) -> pa.Array:
    """Return each row's events (raw Span.Event messages) as a JSON array; null for none."""
    if not len(lists.flatten()):
        return pa.nulls(len(lists), pa.string())
    events = read_messages("Event", pc.list_flatten(lists))
    texts = _objects(
        {
            "timeUnixNano": _between('"', _nonzero(events["time_unix_nano"]), '"'),
            "name": _strings(events["name"]),
            "attributes": _attributes(events["attributes"]),
            "droppedAttributesCount": _nonzero(events["dropped_attributes_count"]),
        }
    )
    return _arrays(lists, texts)


def links_json(lists: pa.Array) -> pa.Array:
    """Return each row's links (raw Span.Link messages) as a JSON array; null for none."""
    if not len(lists.flatten()):
        return pa.nulls(len(lists), pa.string())
    links = read_messages("Link", pc.list_flatten(lists))
    texts = _objects(
        {
            "traceId": _hex(links["trace_id"]),
            "spanId": _hex(links["span_id"]),
            "traceState": _strings(links["trace_state"]),
            "attributes": _attributes(links["attributes"]),
            "droppedAttributesCount": _nonzero(links["dropped_attributes_count"]),
            "flags": _nonzero(links["flags"]),
        }
    )
    return _arrays(lists, texts)


def _attributes(lists: pa.Array) -> pa.Array:
    pairs, _ = flatten(lists)
    values = pairs.field("value")
    objects = pc.if_else(values.is_valid(), _values(values), None)
    return _arrays(lists, _objects({"key": _strings(pairs.field("key")), "value": objects}))


def _values(values: pa.StructArray) -> pa.Array:
    """Return AnyValue messages as objects with one member, or none."""
    members = {
        "stringValue": _quoted(values.field("string_value")),
        "boolValue": bool_texts(values.field("bool_value")),
        "intValue": _between('"', int_texts(values.field("int_value")), '"'),
        "doubleValue": _doubles(values.field("double_value")),
        "arrayValue": _nested(values.field("array_value"), ArrayValue),
        "kvlistValue": _nested(values.field("kvlist_value"), KeyValueList),
        "bytesValue": _between('"', base64_texts(values.field("bytes_value")), '"'),
    }
    # A reference into a table of strings is an alternative too, though it says nothing here.
    alternatives = [*members.values(), values.field("string_value_strindex")]
    sent = sum(pc.cast(pc.is_valid(one), pa.int8()).to_numpy() for one in alternatives)
    if np.any(sent > 1):
        raise AmbiguousError
    return _objects(members)


def _nested(raw: pa.Array, message: Any) -> pa.Array:  # noqa: ANN401 - a message class
    return one_by_one(
        joined(raw),
        pc.greater(pc.list_value_length(raw), 0),
        lambda content: json_text(_members(message.FromString(content))),
    )


def _members(message: Any) -> dict[str, Json]:  # noqa: ANN401 - a message of any class
    """Return an ArrayValue or KeyValueList as OTLP/JSON has it."""
    if isinstance(message, ArrayValue):
        values: list[Json] = [_value(value) for value in message.values]
    else:
        values = [
            ({"key": pair.key} if pair.key else {})
            | ({"value": _value(pair.value)} if pair.HasField("value") else {})
            for pair in message.values
        ]
    return {"values": values} if values else {}


def _value(value: Any) -> dict[str, Json]:  # noqa: ANN401 - a message of any class
    kind = value.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":
        return {}
    content = getattr(value, kind)
    name = value.DESCRIPTOR.fields_by_name[kind].json_name
    if kind in {"array_value", "kvlist_value"}:
        return {name: _members(content)}
    if kind == "bytes_value":
        return {name: b64encode(content).decode()}
    if kind == "int_value":
        return {name: str(content)}
    if kind == "double_value" and not np.isfinite(content):
        return {name: double_text(content)}
    return {name: content}


def _objects(members: Mapping[str, pa.Array]) -> pa.Array:
    """Return JSON objects of the members that are not null."""
    # Joined with null_handling="skip", a row whose members are all null would be lost.
    parts = [
        pc.binary_join_element_wise(f',"{name}":', texts, "") for name, texts in members.items()
    ]
    inner = pc.binary_join_element_wise(
        "{", *parts, "}", "", null_handling="replace", null_replacement=""
    )
    return pc.replace_substring(inner, "{,", "{", max_replacements=1)


def _arrays(lists: pa.Array, texts: pa.Array) -> pa.Array:
    """Return JSON arrays of the elements' texts, distributed as in *lists*; null for empty ones."""
    lengths = list_lengths(lists)
    inner = pc.binary_join(pa.ListArray.from_arrays(offsets_of(lengths), texts), ",")
    return pc.if_else(pa.array(lengths > 0), _between("[", inner, "]"), None)


def _between(before: str, texts: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _strings(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings; null for empty ones."""
    return pc.if_else(pc.equal(texts, ""), None, _quoted(texts))


def _quoted(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings; null stays null."""
    if not pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        return _between('"', texts, '"')
    escaped = texts
    for sign, escape in _ESCAPES:
        escaped = pc.replace_substring(escaped, sign, escape)
    escaped = _between('"', escaped, '"')
    is_odd = pc.fill_null(pc.match_substring_regex(escaped, _CONTROL), fill_value=False)
    if pc.any(is_odd).as_py():
        escaped = pc.coalesce(one_by_one(texts, is_odd, json_text), escaped)
    return escaped


def _doubles(column: pa.Array) -> pa.Array:
    texts = double_texts(column)
    is_number = pc.is_finite(column)
    return pc.if_else(is_number, texts, _between('"', texts, '"'))


def _nonzero(column: pa.Array) -> pa.Array:
    # With a zero of the column's own type: next to a plain 0 large numbers would not be allowed.
    return pc.if_else(pc.equal(column, pa.scalar(0, column.type)), None, int_texts(column))


def _hex(ids: pa.Array) -> pa.Array:
    """Return ids as JSON strings of hexadecimal digits; null for empty ones."""
    _, starts, content = ids.buffers()
    offsets = np.frombuffer(starts, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    sent = np.frombuffer(content or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    digits = pa.py_buffer(_HEX[sent].tobytes())
    texts = pa.StringArray.from_buffers(len(ids), offsets_of(2 * lengths).buffers()[1], digits)
    return pc.if_else(pa.array(lengths > 0), _between('"', texts, '"'), None)
