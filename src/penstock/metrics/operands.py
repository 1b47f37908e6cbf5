"""What the names and constants of a rule mean: attributes, tags, casts, texts, numbers."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from penstock.metrics.definitions import Attribute, EnumConstant, Tag
from penstock.metrics.diagnostics import Place, closest, quoted, suggested
from penstock.metrics.sources import ENUMERATIONS, Type
from penstock.metrics.syntax import Number, Reference, Text, Word

if TYPE_CHECKING:
    from penstock.metrics.definitions import Literal, Operand
    from penstock.metrics.diagnostics import Findings
    from penstock.metrics.sources import Source
    from penstock.metrics.syntax import Cast, Name, Scalar

__all__ = [
    "INVALID",
    "Invalid",
    "Typed",
    "decode",
    "decode_number",
    "decode_text",
    "described",
    "resolve",
]

_CASTS = {"long": Type.LONG, "int": Type.LONG, "double": Type.DOUBLE}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPES = '"\\/bfnrt'
_LARGEST = 2**63 - 1
_LONGEST_WHOLE = 20  # sign and digits of a whole number of 64 bits


class Invalid(Enum):
    """The value of a constant that is in error, which has been reported; null is None."""

    INVALID = "invalid"


INVALID = Invalid.INVALID
Typed: TypeAlias = "tuple[Operand, Type]"


def described(kind: Type) -> str:
    """Return a type as a noun."""
    if kind in ENUMERATIONS:
        return f"an enumeration ({kind})"
    return {
        Type.STRING: "a string",
        Type.LONG: "a long",
        Type.DOUBLE: "a double",
        Type.BOOL: "a bool",
        Type.STRING_LIST: "a list of strings",
    }[kind]


@dataclass(frozen=True, slots=True)
class _Resolver:
    source: Source
    findings: Findings

    def operand(self, reference: Reference, path: tuple[Name, ...]) -> Typed | None:
        if reference.key is not None:
            return self._tag(reference, path, reference.key)
        name = ".".join(part.text for part in path)
        place = _span(path)
        if name == "tag":
            self.findings.add(place, "tag needs a key", 'write tag["key"]')
            return None
        kind = self.source.attributes.get(name)
        if kind is None:
            message = f"unknown attribute {quoted(name)} of {self.source.name}"
            self.findings.add(place, message, self._remedy(path, name))
            return None
        return Attribute(name), kind

    def _tag(self, reference: Reference, path: tuple[Name, ...], text: Text) -> Typed | None:
        if [part.text for part in path] != ["tag"]:
            message = f"{quoted(str(reference))}: only tag has keys"
            self.findings.add(_span(path), message, f"write tag[{text.raw}]")
            return None
        key = decode_text(text, self.findings)
        if key == "":
            self.findings.add(text.place, "the key of a tag is empty", 'write tag["key"]')
        return (Tag(key), Type.STRING) if key else None

    def _remedy(self, path: tuple[Name, ...], name: str) -> str:
        first, _, rest = name.partition(".")
        if first == "tag":
            return f'write tag["{rest}"]'
        if first == self.source.name and rest in self.source.attributes:
            return f'attributes are those of {first}: write "{rest}"'
        known = sorted(self.source.attributes)
        match = closest(name, known) or closest(path[-1].text, known)
        options = ", ".join([*known, 'tag["key"]'])
        return f'did you mean "{match}"?' if match else f"{self.source.name} has {options}"


def resolve(
    reference: Reference, path: tuple[Name, ...], source: Source, findings: Findings
) -> Typed | None:
    """Return the attribute or tag that *path* names, and the type it is read as."""
    found = _Resolver(source, findings).operand(reference, path)
    if found is None or reference.cast is None:
        return found
    operand, kind = found
    cast = _cast(reference.cast, findings)
    if cast is None:
        return None
    if kind is not Type.STRING:
        message = f"{quoted(str(reference))} is {described(kind)}; only strings are cast"
        findings.add(reference.cast.place, message, "leave the cast out")
        return None
    if isinstance(operand, Tag):
        return Tag(operand.key, cast), cast
    return Attribute(operand.name, cast), cast


def _cast(cast: Cast, findings: Findings) -> Type | None:
    target = _CASTS.get(cast.target.text)
    if target is not None and (cast.origin is None or cast.origin.text == "str"):
        return target
    origin = "" if cast.origin is None else f"{cast.origin.text}->"
    message = f"unknown cast {quoted(f'({origin}{cast.target.text})')}"
    findings.add(cast.place, message, "casts are (str->long), (str->int) and (str->double)")
    return None


def decode(node: Scalar, findings: Findings) -> Literal | Invalid:
    """Return the value of a constant."""
    if isinstance(node, Word):
        return node.value
    if isinstance(node, Number):
        return _or_invalid(decode_number(node, findings))
    if isinstance(node, Text):
        return _or_invalid(decode_text(node, findings))
    return _constant(node, findings)


def _or_invalid(value: str | float | None) -> str | float | Invalid:
    return INVALID if value is None else value


def decode_number(number: Number, findings: Findings) -> int | float | None:
    """Return a whole number of 64 bits, or a fraction; None after reporting any other."""
    digits = number.raw.replace("_", "")
    if re.fullmatch(r"-?[0-9]+", digits):
        # The length first: Python refuses to convert thousands of digits.
        is_short = len(digits) <= _LONGEST_WHOLE
        if is_short and -_LARGEST - 1 <= int(digits) <= _LARGEST:
            return int(digits)
        message = f"{quoted(number.raw)} does not fit into 64 bits"
        findings.add(number.place, message, f"the largest number is {_LARGEST}")
        return None
    fraction = float(digits)
    if math.isinf(fraction):
        findings.add(number.place, f"{quoted(number.raw)} is too large", "choose a smaller number")
        return None
    return fraction


def decode_text(text: Text, findings: Findings) -> str | None:
    """Return a text without quotes and escapes; None after reporting what cannot be read."""
    for match in _ESCAPE.finditer(text.raw):
        escape = match.group(1)
        if len(escape) == 1 and escape not in _ESCAPES:
            place = Place(text.place.line, text.place.column + match.start(), 2)
            known = " ".join(f"\\{sign}" for sign in _ESCAPES)
            findings.add(place, f"unknown escape \\{escape}", f"escapes are {known} and \\uXXXX")
            return None
    decoded: str = json.loads(text.raw, strict=False)
    try:
        decoded.encode()
    except UnicodeEncodeError:
        findings.add(
            text.place, "half a character (a lone surrogate)", "write the character itself"
        )
        return None
    return decoded


def _constant(reference: Reference, findings: Findings) -> EnumConstant | Invalid:
    """Return the constant of an enumeration that *reference* names."""
    is_constant = len(reference.path) == 2 and reference.key is None  # noqa: PLR2004 - Type.NAME
    if not is_constant:
        message = f"{quoted(str(reference))} is not a constant"
        remedy = "compare with a number, true, false, null, a text in double quotes"
        findings.add(reference.place, message, f"{remedy} or a constant such as RequestType.MQ")
        return INVALID
    enumeration, constant = reference.path
    known = {str(kind): kind for kind in ENUMERATIONS}
    kind = known.get(enumeration.text)
    if kind is None:
        message = f"unknown enumeration {quoted(enumeration.text)}"
        findings.add(enumeration.place, message, suggested(enumeration.text, known, "there are"))
        return INVALID
    if constant.text not in ENUMERATIONS[kind]:
        message = f"unknown constant {quoted(constant.text)} of {kind}"
        remedy = suggested(constant.text, ENUMERATIONS[kind], f"{kind} has")
        findings.add(constant.place, message, remedy)
        return INVALID
    return EnumConstant(kind, constant.text)


def _span(path: tuple[Name, ...]) -> Place:
    """Return the stretch from the first name to the last, as far as they share a line."""
    first, last = path[0].place, path[-1].place
    if first.line != last.line:
        return first
    return Place(first.line, first.column, last.column + last.length - first.column)
