"""Metric definitions as plain frozen values, whatever they were written in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from penstock.metrics.sources import Type

__all__ = [
    "Argument",
    "Attribute",
    "Call",
    "Condition",
    "EnumConstant",
    "Literal",
    "Metric",
    "Operand",
    "Operator",
    "Tag",
    "stable_id",
]


class Operator(StrEnum):
    """How a condition compares."""

    EQ = "=="
    NE = "!="
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="
    IN = "in"
    LIKE = "like"  # % stands for any text, also none; everything else stands for itself
    CONTAIN = "contain"  # of a list (tags): one of its elements is equal
    NOT_CONTAIN = "not contain"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of the source; *cast* is the type it is read as, if not its own."""

    name: str
    cast: Type | None = None

    def __str__(self) -> str:
        return _cast(self.cast) + self.name


@dataclass(frozen=True, slots=True)
class Tag:
    """``tag["key"]``: an attribute of the span, as text, or as *cast*. Absent is null."""

    key: str
    cast: Type | None = None

    def __str__(self) -> str:
        return f"{_cast(self.cast)}tag[{json.dumps(self.key)}]"


@dataclass(frozen=True, slots=True)
class EnumConstant:
    """``RequestType.MQ``."""

    enumeration: Type
    constant: str

    def __str__(self) -> str:
        return f"{self.enumeration}.{self.constant}"


# A tuple is the right side of `in`. None is null.
Literal: TypeAlias = str | int | float | bool | EnumConstant | None
Operand: TypeAlias = Attribute | Tag


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of an operand with a constant. A null operand fulfils `== null` only."""

    left: Operand
    operator: Operator
    right: Literal | tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {_text(self.right)}"


Argument: TypeAlias = int | float | Operand | Condition


@dataclass(frozen=True, slots=True)
class Call:
    """The aggregating function and its arguments, conditions included."""

    function: str
    arguments: tuple[Argument, ...] = ()

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: which rows of a source (all filters hold), which value, which function.

    *value* is None for ``from(Service.*)``. Decorators are kept and have no effect here.
    """

    name: str
    source: str
    value: Operand | None
    filters: tuple[Condition, ...]
    call: Call
    decorators: tuple[str, ...] = field(default=(), compare=False)
    line: int = field(default=0, compare=False)

    @property
    def definition(self) -> str:
        """The meaning of the metric as one canonical line; equal lines compute the same."""
        # A cast stands before the source: from((str->long)Service.tag["x"]).
        cast = "" if self.value is None else _cast(self.value.cast)
        value = "*" if self.value is None else str(self.value).removeprefix(cast)
        filters = "".join(f".filter({condition})" for condition in self.filters)
        return f"from({cast}{self.source}.{value}){filters}.{self.call}"

    @property
    def id(self) -> int:
        """The number that stands for the metric's name in the store."""
        return stable_id("metric", self.name)


def stable_id(*parts: str) -> int:
    """Return a signed 64-bit number that the same *parts* get in every process, forever."""
    digest = blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _cast(cast: Type | None) -> str:
    return "" if cast is None else f"(str->{cast})"


def _text(value: Literal | tuple[Literal, ...]) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return str(value) if isinstance(value, EnumConstant) else json.dumps(value)
