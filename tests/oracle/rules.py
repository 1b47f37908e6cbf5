"""How a rule reads a row: operands, casts and conditions, as plain Python predicates."""

import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.metrics.definitions import (
    Argument,
    Attribute,
    Condition,
    EnumConstant,
    Literal,
    Operand,
    Operator,
)
from penstock.metrics.sources import Type
from tests.oracle.conventions import Row

# What an operand reads is as varied as what conditions and functions accept, hence Any.
Reader: TypeAlias = Callable[[Row], Any]
Predicate: TypeAlias = Callable[[Row], bool]

_LONG = re.compile(r"[+-]?[0-9]{1,18}")
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ORDER: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
}


def reader(operand: Operand) -> Reader:
    """Return what reads *operand* from a row; None is null."""
    name = operand.name if isinstance(operand, Attribute) else None
    key = None if isinstance(operand, Attribute) else operand.key
    cast = operand.cast

    def read(row: Row) -> object:
        if name is not None:
            value: object = row.read(name)
        else:
            assert key is not None
            value = row.span.attributes.get(key)
        return value if cast is None else _cast(value, cast)

    return read


def argument_reader(argument: Argument) -> Reader:
    """Return what reads an argument of a function: a number stands for itself."""
    if isinstance(argument, Condition):
        return predicate(argument)
    if isinstance(argument, int | float):
        return lambda _row: argument
    return reader(argument)


def predicate(condition: Condition) -> Predicate:
    """Return what says whether *condition* holds for a row."""
    read = reader(condition.left)
    right = condition.right
    if right is None:
        return _null_predicate(read, condition.operator)
    test = _test(condition.operator, right)

    def holds(row: Row) -> bool:
        value = read(row)
        return value is not None and test(value)

    return holds


def is_like(text: str, pattern: str) -> bool:
    """Whether *text* is *pattern* with something, or nothing, in the place of each %."""
    head, *rest = pattern.split("%")
    if not rest:
        return text == pattern
    *middle, tail = rest
    if not text.startswith(head):
        return False
    position = len(head)
    for part in middle:
        found = text.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    return len(text) - len(tail) >= position and text.endswith(tail)


def _null_predicate(read: Reader, comparison: Operator) -> Predicate:
    if comparison is Operator.EQ:
        return lambda row: read(row) is None
    if comparison is Operator.NE:
        return lambda row: read(row) is not None
    raise ValueError(f"{comparison} null has no meaning; compare null with == or !=")


def _test(comparison: Operator, right: Literal | tuple[Literal, ...]) -> Callable[[Any], bool]:
    """Return the comparison of a value that is not null with the constant *right*."""
    if isinstance(right, tuple):
        assert comparison is Operator.IN
        choices = [_constant(choice) for choice in right]
        return lambda value: value in choices
    constant = _constant(right)
    if comparison is Operator.LIKE:
        return lambda value: is_like(value, str(constant))
    if comparison is Operator.CONTAIN:
        return lambda value: constant in value
    if comparison is Operator.NOT_CONTAIN:
        return lambda value: constant not in value
    compare = _ORDER[comparison]
    return lambda value: compare(value, constant)


def _constant(literal: Literal) -> Literal:
    return literal.constant if isinstance(literal, EnumConstant) else literal


def _cast(value: object, cast: Type) -> object:
    """Read text as *cast*; what is not text is of its own type already."""
    if not isinstance(value, str) or cast is Type.STRING:
        return value
    if cast is Type.LONG:
        return int(value) if _LONG.fullmatch(value) else None
    if cast is Type.DOUBLE:
        return float(value) if _DOUBLE.fullmatch(value) else None
    raise ValueError(f"the conventions define no cast to {cast}; they have long and double")
