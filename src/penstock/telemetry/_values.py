"""Attribute values as text, for whole columns at once.

Strings are most of what there is and stay as they are. Nested values arrive as raw messages and
are few; each of them is parsed and written as JSON by itself.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import ArrayValue, KeyValueList

from penstock.telemetry._columns import joined, one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AmbiguousError",
    "Json",
    "Values",
    "base64_texts",
    "bool_texts",
    "double_text",
    "double_texts",
    "int_texts",
    "json_text",
]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class AmbiguousError(Exception):
    """Of several alternatives more than one was sent: only their order tells which is meant."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """A column of values: *texts* of all of them (null: no value), and some as they were sent."""

    texts: pa.Array
    strings: pa.Array
    whole: pa.Array

    @staticmethod
    def of(values: pa.StructArray) -> Values:
        """Take over a column of AnyValue messages."""
        strings, whole = values.field("string_value"), values.field("int_value")
        kinds = [strings, *(_texts_of(values.field(name), to) for name, to in _SCALARS)]
        kinds += [_raw_texts(values.field(name), to) for name, to in _NESTED]
        kinds = [kind for kind in kinds if kind.null_count < len(kind)]
        texts = pc.coalesce(*kinds) if kinds else pa.nulls(len(values), pa.string())
        if sum(len(kind) - kind.null_count for kind in kinds) > len(texts) - texts.null_count:
            raise AmbiguousError
        return Values(texts, strings, whole)

    def filled(self) -> pa.Array:
        """Return the texts, empty where there is no value."""
        return pc.fill_null(self.texts, "") if self.texts.null_count else self.texts

    def whole_numbers(self, positions: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the chosen values that are whole numbers and fit; null for all others."""
        result = self.whole.take(positions)
        strings = self.strings.take(positions)
        if strings.null_count < len(strings):
            # As (str->long) in the metric language: a sign and up to 18 digits.
            is_number = pc.match_substring_regex(strings, "^[+-]?[0-9]{1,18}$")
            digits = pc.utf8_ltrim(pc.if_else(is_number, strings, None), characters="+")
            result = pc.coalesce(result, pc.cast(digits, pa.int64()))
        limit = 2 ** (kind.bit_width - 1)
        fits = pc.and_(pc.greater_equal(result, -limit), pc.less_equal(result, limit - 1))
        return pc.cast(pc.if_else(fits, result, None), kind)


def _texts_of(column: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Convert a column, unless there is nothing in it."""
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    return convert(column)


def double_texts(column: pa.Array) -> pa.Array:
    """Return doubles as the shortest JSON numbers that read back the same; null stays null."""
    distinct = column.dictionary_encode()
    texts = map(double_text, distinct.dictionary.to_pylist())
    return pa.array(texts, pa.string()).take(distinct.indices)


def double_text(number: float) -> str:
    """Return a double as JSON number; what JSON has no number for, as ProtoJSON names it."""
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def base64_texts(column: pa.Array) -> pa.Array:
    """Return bytes in base64."""
    return one_by_one(column, column.is_valid(), lambda content: b64encode(content).decode())


def _raw_texts(column: pa.Array, message: Any) -> pa.Array:  # noqa: ANN401 - a message class
    """Return nested values as JSON; null where nothing was sent."""
    if not len(column.flatten()):
        return pa.nulls(len(column), pa.string())
    is_sent = pc.greater(pc.list_value_length(column), 0)
    return one_by_one(
        joined(column), is_sent, lambda raw: json_text(nested(message.FromString(raw)))
    )


def nested(message: Any) -> Json:  # noqa: ANN401 - a message of any class
    """Return what an ArrayValue or KeyValueList holds."""
    if isinstance(message, ArrayValue):
        return [_plain(value) for value in message.values]
    return {pair.key: _plain(pair.value) for pair in message.values}


def _plain(value: Any) -> Json:  # noqa: ANN401 - a message of any class
    kind = value.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":
        return None
    content = getattr(value, kind)
    if kind in {"array_value", "kvlist_value"}:
        return nested(content)
    if kind == "bytes_value":
        return b64encode(content).decode()
    if kind == "double_value" and not math.isfinite(content):
        return double_text(content)
    plain: Json = content
    return plain


def json_text(value: Json) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def bool_texts(column: pa.Array) -> pa.Array:
    """Return truth values as JSON."""
    return pc.if_else(column, "true", "false")


def int_texts(column: pa.Array) -> pa.Array:
    """Return whole numbers as decimals."""
    return pc.cast(column, pa.string())


def _absent_texts(column: pa.Array) -> pa.Array:
    """Return empty texts for references into a table of strings, which only profiles have."""
    return pc.if_else(pc.is_valid(column), "", None)


_SCALARS: tuple[tuple[str, Callable[[pa.Array], pa.Array]], ...] = (
    ("int_value", int_texts),
    ("bool_value", bool_texts),
    ("double_value", double_texts),
    ("bytes_value", base64_texts),
    ("string_value_strindex", _absent_texts),
)
_NESTED = (("array_value", ArrayValue), ("kvlist_value", KeyValueList))
