"""What a rules file says, as it is written: statements with the place of every part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from penstock.metrics.definitions import Operator
    from penstock.metrics.diagnostics import Place

__all__ = [
    "Cast",
    "Comparison",
    "Constant",
    "Decoration",
    "Definition",
    "Disabling",
    "Everything",
    "Filter",
    "Input",
    "Invocation",
    "Items",
    "Name",
    "Number",
    "Reference",
    "Scalar",
    "Statement",
    "Step",
    "Text",
    "Word",
]


@dataclass(frozen=True, slots=True)
class Name:
    """A word that names something."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Text:
    """A text with its quotes and escapes."""

    raw: str
    place: Place


@dataclass(frozen=True, slots=True)
class Number:
    """A number as its digits."""

    raw: str
    place: Place


@dataclass(frozen=True, slots=True)
class Word:
    """``true``, ``false`` or ``null``."""

    value: bool | None
    place: Place


@dataclass(frozen=True, slots=True)
class Cast:
    """``(str->long)``, or ``(long)`` for short."""

    origin: Name | None
    target: Name
    place: Place


@dataclass(frozen=True, slots=True)
class Reference:
    """``latency``, ``tag["key"]``, ``Service.latency``, ``RequestType.MQ``, also with a cast."""

    path: tuple[Name, ...]
    key: Text | None
    cast: Cast | None
    place: Place

    def __str__(self) -> str:
        key = "" if self.key is None else f"[{self.key.raw}]"
        return ".".join(name.text for name in self.path) + key


@dataclass(frozen=True, slots=True)
class Everything:
    """``Service.*``."""

    path: tuple[Name, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Items:
    """The list on the right side of ``in``."""

    items: tuple[Scalar, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition."""

    left: Reference
    operator: Operator
    operator_place: Place
    right: Constant
    place: Place


@dataclass(frozen=True, slots=True)
class Filter:
    """``.filter(condition)``."""

    condition: Comparison
    place: Place


@dataclass(frozen=True, slots=True)
class Invocation:
    """``.function(arguments)``."""

    name: Name
    arguments: tuple[Input, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Decoration:
    """``.decorator("Name")``."""

    text: Text
    place: Place


@dataclass(frozen=True, slots=True)
class Definition:
    """``name = from(value).step().step();``."""

    name: Name
    value: Reference | Everything
    steps: tuple[Step, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Disabling:
    """``disable(name);``."""

    name: Name


Scalar: TypeAlias = Text | Number | Word | Reference
Constant: TypeAlias = Scalar | Items
Input: TypeAlias = Scalar | Comparison
Step: TypeAlias = Filter | Invocation | Decoration
Statement: TypeAlias = Definition | Disabling
