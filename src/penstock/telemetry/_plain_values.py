"""Attribute values and identifiers of the plain decoder."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Message",
    "RejectedError",
    "Row",
    "attributes_of",
    "json_of",
    "known",
    "number_text",
    "text_of",
]

# A message of any class.
Message: TypeAlias = Any
Row: TypeAlias = dict[str, Any]

_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


class RejectedError(Exception):
    """The record cannot be kept; the argument is the reason."""


def known(value: int, most: int) -> int:
    """Return an enumerated value, 0 if it is none of those from 0 to *most*."""
    return value if 0 <= value <= most else 0


def attributes_of(pairs: Sequence[Message]) -> dict[str, str]:
    """Return attributes as texts; of equal keys the last stands, at its own place."""
    result: dict[str, str] = {}
    for pair in pairs:
        result.pop(pair.key, None)
        result[pair.key] = text_of(pair.value)
    return result


def text_of(value: Message) -> str:
    """Return a value as text."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)
    if kind == "int_value":
        return str(value.int_value)
    content = _content(value)
    if content is None:
        return ""
    return content if isinstance(content, str) else json_of(content)


def _content(value: Message) -> Any:  # noqa: ANN401 - whatever JSON can say
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_content(element) for element in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _content(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value" and not math.isfinite(value.double_value):
        return number_text(value.double_value)
    return getattr(value, kind) if kind not in {None, "string_value_strindex"} else None


def number_text(value: float) -> str:
    """Return a double as JSON number, or the name ProtoJSON has for it."""
    if math.isnan(value):
        return "NaN"
    return _NOT_FINITE.get(value) or repr(value)


def json_of(value: object) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
