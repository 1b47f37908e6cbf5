"""Operands and conditions of rules, evaluated for all rows of a selection at once."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from penstock.aggregation.columns import Flags, Numbers, Texts
from penstock.metrics.definitions import Attribute, Condition, EnumConstant, Operator, Tag
from penstock.metrics.sources import Type

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.aggregation.spans import Column, Selection
    from penstock.metrics.definitions import Literal, Operand

__all__ = ["operand_column", "operand_number", "truth"]

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_ORDERINGS: dict[Operator, Callable[..., Flags]] = {
    Operator.EQ: np.equal,
    Operator.NE: np.not_equal,
    Operator.GT: np.greater,
    Operator.GE: np.greater_equal,
    Operator.LT: np.less,
    Operator.LE: np.less_equal,
}


def operand_column(rows: Selection, operand: Operand) -> Column:
    """Return an operand's column, cast if the rule says so."""
    column = rows.tag(operand.key) if isinstance(operand, Tag) else rows.attribute(operand.name)
    if operand.cast is None or not isinstance(column, Texts):
        return column
    if operand.cast is Type.LONG:
        return column.parsed(_whole, np.int64)
    if operand.cast is Type.DOUBLE:
        return column.parsed(_decimal, np.float64)
    return column


def operand_number(rows: Selection, operand: Operand) -> Numbers:
    """Return an operand that is a number, as the rules have been checked to say."""
    column = operand_column(rows, operand)
    assert isinstance(column, Numbers), operand
    return column


def truth(rows: Selection, condition: Condition) -> Flags:
    """Return for each row whether *condition* holds."""
    if isinstance(condition.left, Attribute) and condition.left.name == "tags":
        return _tags_contain(rows, condition)
    column = operand_column(rows, condition.left)
    if condition.right is None:
        is_null = ~_is_valid(column)
        return is_null if condition.operator is Operator.EQ else ~is_null
    if isinstance(column, Texts):
        return column.where(_text_predicate(condition))
    if isinstance(column, Numbers):
        return _compare(column.values, condition) & column.is_valid()
    return _compare(column, condition)


def _is_valid(column: Column) -> Flags:
    if isinstance(column, np.ndarray):
        return np.ones(len(column), dtype=np.bool_)
    return column.is_valid()


def _compare(values: np.ndarray, condition: Condition) -> Flags:
    if condition.operator is Operator.IN:
        assert isinstance(condition.right, tuple)
        return np.isin(values, np.array(condition.right))
    return _ORDERINGS[condition.operator](values, condition.right)


def _text_predicate(condition: Condition) -> Callable[[str], bool]:
    right = condition.right
    if condition.operator is Operator.IN:
        assert isinstance(right, tuple)
        return frozenset(_constant(value) for value in right).__contains__
    assert not isinstance(right, tuple)
    wanted = _constant(right)
    if condition.operator is Operator.LIKE:
        pattern = re.compile(".*".join(map(re.escape, wanted.split("%"))), re.DOTALL)
        return lambda text: pattern.fullmatch(text) is not None
    if condition.operator is Operator.NE:
        return lambda text: text != wanted
    return lambda text: text == wanted


def _constant(value: Literal) -> str:
    return value.constant if isinstance(value, EnumConstant) else str(value)


def _tags_contain(rows: Selection, condition: Condition) -> Flags:
    """Look for the attribute ``key:value``; a colon may be part of either."""
    element = str(condition.right)
    found = np.zeros(rows.size, dtype=np.bool_)
    for colon in (index for index, sign in enumerate(element) if sign == ":"):
        key, value = element[:colon], element[colon + 1 :]
        found |= rows.tag(key).where(value.__eq__)
    return found if condition.operator is Operator.CONTAIN else ~found


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _decimal(text: str) -> float | None:
    number = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None
