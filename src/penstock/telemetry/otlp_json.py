"""OTLP/JSON requests, turned into what the rest of the pipeline takes: serialized protobuf.

The mapping is ProtoJSON's with OTLP's exceptions: trace and span ids are hexadecimal, not base64,
and enumerated values are numbers (their names are understood too). Members that OTLP does not
know are ignored, ``null`` is the same as a missing member, 64-bit numbers may be text.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from google.protobuf.descriptor import FieldDescriptor

from penstock.telemetry.requests import REQUESTS, MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.telemetry.schema import Signal

__all__ = ["from_json"]

# As deep as protobuf's own parser goes; OTLP itself needs eight levels, the rest is for values.
_DEEPEST = 100
_SHOWN = 40  # characters of a value that an error message quotes

_HEXADECIMAL = {"trace_id", "span_id", "parent_span_id"}
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def from_json(signal: Signal, text: bytes) -> bytes:
    """Return the request in *text* as serialized protobuf; MalformedError if it is not one."""
    message = REQUESTS[signal]()
    _fill(message, _loaded(text), "")
    try:
        serialized: bytes = message.SerializeToString()
    except ValueError as error:
        raise MalformedError(f"the request cannot be encoded: {error}") from error
    return serialized


def _loaded(text: bytes) -> Any:  # noqa: ANN401 - anything that JSON can say
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise MalformedError(
            f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from error
    except UnicodeDecodeError as error:
        raise MalformedError(
            f"not JSON: byte {error.start} is not UTF-8 ({error.reason}); send UTF-8"
        ) from error
    except MalformedError:
        raise
    except RecursionError as error:
        raise MalformedError("not OTLP: the JSON is nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise MalformedError(f"not OTLP: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedError(f'not JSON: the bare word {name}; write "{name}", with quotes')


def _fail(path: str, expected: str, value: object) -> NoReturn:
    shown = json.dumps(value, ensure_ascii=True, default=str)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    raise MalformedError(f"{path or 'the request'}: expected {expected}, got {shown}")


def _fill(message: Any, value: Any, path: str, depth: int = 1) -> None:  # noqa: ANN401 - a message of any class
    """Set the fields of *message* from a JSON object."""
    if not isinstance(value, dict):
        _fail(path, "an object", value)
    if depth > _DEEPEST:
        raise MalformedError(f"{path}: nested more than {_DEEPEST} levels deep")
    fields = _fields(message.DESCRIPTOR)
    alternatives: dict[str, str] = {}
    for name, member in value.items():
        field = fields.get(name)
        if field is None or member is None:
            continue
        where = f"{path}.{name}" if path else name
        group = field.containing_oneof
        if group is not None and alternatives.setdefault(group.name, name) != name:
            raise MalformedError(
                f"{where}: {alternatives[group.name]!r} is given too; send one of them"
            )
        _set(message, field, member, (where, depth))


@cache
def _fields(descriptor: Any) -> Mapping[str, Any]:  # noqa: ANN401 - descriptors have no annotations
    """Return the fields by the names that JSON may have for them."""
    by_name = {field.name: field for field in descriptor.fields}
    return by_name | {field.json_name: field for field in descriptor.fields}


def _set(message: Any, field: Any, value: Any, at: tuple[str, int]) -> None:  # noqa: ANN401 - a message of any class
    path, depth = at
    if field.is_repeated:
        if not isinstance(value, list):
            _fail(path, "an array", value)
        target = getattr(message, field.name)
        for number, element in enumerate(value):
            here = f"{path}[{number}]"
            if field.message_type is not None:
                _fill(target.add(), element, here, depth + 1)
            else:
                target.append(_scalar(field, element, here))
    elif field.message_type is not None:
        target = getattr(message, field.name)
        target.SetInParent()
        _fill(target, value, path, depth + 1)
    else:
        setattr(message, field.name, _scalar(field, value, path))


def _scalar(field: Any, value: Any, path: str) -> Any:  # noqa: ANN401 - whatever the field holds
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _hexadecimal(value, path) if field.name in _HEXADECIMAL else _base64(value, path)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _enumerated(field, value, path)
    return _READERS[field.cpp_type](value, path)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        _fail(path, "a string", value)
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        _fail(path, "text without half of a surrogate pair", value)
    return value


def _truth(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        _fail(path, "true or false", value)
    return value


def _whole(low: int, high: int) -> Callable[[object, str], int]:
    def read(value: object, path: str) -> int:
        number = value
        if (isinstance(value, str) and _WHOLE.fullmatch(value)) or (
            isinstance(value, float) and value.is_integer()
        ):
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            _fail(path, f"a whole number from {low} to {high}", value)
        return number

    return read


def _double(value: object, path: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and _DECIMAL.fullmatch(value)):
        _fail(path, "a number", value)
    assert isinstance(value, int | float | str)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _fail(path, "a number that a double can hold", value)
    return number


def _hexadecimal(value: object, path: str) -> bytes:
    text = _text(value, path)
    try:
        return binascii.unhexlify(text)  # bytes.fromhex would skip blanks
    except ValueError:
        _fail(path, "hexadecimal digits, two for each byte", value)


def _base64(value: object, path: str) -> bytes:
    text = _text(value, path).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        _fail(path, "base64", value)


def _enumerated(field: Any, value: object, path: str) -> int:  # noqa: ANN401 - descriptors have no annotations
    if isinstance(value, str) and value in field.enum_type.values_by_name:
        value = field.enum_type.values_by_name[value].number
    return _int32(value, path)


_int32 = _whole(-(2**31), 2**31 - 1)
_READERS: Mapping[int, Callable[[Any, str], Any]] = {
    FieldDescriptor.CPPTYPE_STRING: _text,
    FieldDescriptor.CPPTYPE_BOOL: _truth,
    FieldDescriptor.CPPTYPE_DOUBLE: _double,
    FieldDescriptor.CPPTYPE_INT32: _int32,
    FieldDescriptor.CPPTYPE_UINT32: _whole(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: _whole(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: _whole(0, 2**64 - 1),
}
