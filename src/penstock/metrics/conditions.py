"""Conditions of rules: which operator and which constant fit an operand's type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.metrics.definitions import Condition, EnumConstant, Operator
from penstock.metrics.diagnostics import closest, quoted
from penstock.metrics.operands import INVALID, decode, described, resolve
from penstock.metrics.sources import ENUMERATIONS, Type
from penstock.metrics.syntax import Items

if TYPE_CHECKING:
    from penstock.metrics.definitions import Literal
    from penstock.metrics.diagnostics import Findings
    from penstock.metrics.operands import Invalid
    from penstock.metrics.sources import Source
    from penstock.metrics.syntax import Comparison, Scalar

__all__ = ["check_condition"]

_NUMERIC = (Type.LONG, Type.DOUBLE)
_EQUALITY = (Operator.EQ, Operator.NE)
_ORDER = (Operator.GT, Operator.GE, Operator.LT, Operator.LE)
_CONTAINING = (Operator.CONTAIN, Operator.NOT_CONTAIN)


def check_condition(
    comparison: Comparison, source: Source | None, findings: Findings
) -> Condition | None:
    """Return what *comparison* means; None if anything is wrong with it, or *source* unknown."""
    found = None
    if source is not None:
        found = resolve(comparison.left, comparison.left.path, source, findings)
    if found is None:
        # The left side has been reported; the right side may have an error of its own.
        for node in _scalars(comparison):
            decode(node, findings)
        return None
    operand, kind = found
    check = _Check(comparison, kind, findings)
    if not check.operator_fits():
        return None
    right = check.right()
    return None if right is INVALID else Condition(operand, comparison.operator, right)


def _scalars(comparison: Comparison) -> tuple[Scalar, ...]:
    right = comparison.right
    return right.items if isinstance(right, Items) else (right,)


@dataclass(frozen=True, slots=True)
class _Check:
    """A comparison and the type of its left side."""

    comparison: Comparison
    kind: Type
    findings: Findings

    def operator_fits(self) -> bool:
        """Whether the operator can be applied to the left side; report it if not."""
        operator, left = self.comparison.operator, quoted(str(self.comparison.left))
        if operator in _ORDER and self.kind not in _NUMERIC:
            needs, remedy = "numbers", self._instead_of_order()
        elif operator is Operator.LIKE and self.kind is not Type.STRING:
            needs, remedy = "strings", self._instead_of_like()
        elif operator in _CONTAINING and self.kind is not Type.STRING_LIST:
            is_text = self.kind is Type.STRING
            needs = "lists of strings (tags)"
            remedy = 'write like "%…%"' if is_text else "compare with =="
        elif self.kind is Type.STRING_LIST and operator not in _CONTAINING:
            needs, remedy = "single values", 'write contain "key:value"'
        else:
            return True
        message = f'"{operator}" is for {needs}, and {left} is {described(self.kind)}'
        self.findings.add(self.comparison.operator_place, message, remedy)
        return False

    def _instead_of_order(self) -> str:
        if self.kind is Type.STRING:
            return f"cast it: (str->long){self.comparison.left}"
        return 'write contain "key:value"' if self.kind is Type.STRING_LIST else "compare with =="

    def _instead_of_like(self) -> str:
        if self.kind is Type.STRING_LIST:
            return 'write contain "key:value"'
        return "compare with >= and <" if self.kind in _NUMERIC else "compare with =="

    def right(self) -> Literal | tuple[Literal, ...] | Invalid:
        """Return the value of the right side, or INVALID after reporting it."""
        node, operator = self.comparison.right, self.comparison.operator
        if isinstance(node, Items):
            return self._list(node)
        if operator is Operator.IN:
            value = decode(node, self.findings)
            if value is not INVALID:
                message = '"in" needs a list on its right side'
                remedy = 'write in ("a", "b"), or compare with =='
                self.findings.add(node.place, message, remedy)
            return INVALID
        return self._single(node)

    def _list(self, node: Items) -> tuple[Literal, ...] | Invalid:
        if self.comparison.operator is not Operator.IN:
            message = f'"{self.comparison.operator}" compares with one value, not with a list'
            self.findings.add(node.place, message, 'write "in" to compare with several values')
            return INVALID
        if not node.items:
            self.findings.add(node.place, "the list is empty", "name at least one value")
            return INVALID
        values = [self._single(item) for item in node.items]
        valid = tuple(value for value in values if value is not INVALID)
        return valid if len(valid) == len(values) else INVALID

    def _single(self, node: Scalar) -> Literal | Invalid:
        value = decode(node, self.findings)
        if value is INVALID:
            return INVALID
        if value is None:
            return self._null(node)
        if _fits(value, self.kind):
            return value
        left = quoted(str(self.comparison.left))
        message = f"{left} is {described(self.kind)} and cannot be compared with {_named(value)}"
        self.findings.add(node.place, message, self._remedy(value))
        return INVALID

    def _null(self, node: Scalar) -> Literal | Invalid:
        if self.comparison.operator in _EQUALITY:
            return None
        message = f'"{self.comparison.operator}" cannot be used with null'
        self.findings.add(node.place, message, "write == null or != null")
        return INVALID

    def _remedy(self, value: Literal) -> str:
        if self.kind in ENUMERATIONS:
            return self._constants(value)
        if self.kind is Type.BOOL:
            return "write true or false"
        if self.kind in _NUMERIC:
            is_number = isinstance(value, str) and value.strip().lstrip("-").isdigit()
            return f"write {str(value).strip()} without quotes" if is_number else "write a number"
        if self.kind is Type.STRING_LIST:
            return 'write a text: "key:value"'
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f'write "{value}", or cast the left side: (str->long){self.comparison.left}'
        return "write a text in double quotes"

    def _constants(self, value: Literal) -> str:
        constants = ENUMERATIONS[self.kind]
        match = closest(value, constants) if isinstance(value, str) else None
        if match is not None:
            return f"write {self.kind}.{match}"
        return "write one of " + ", ".join(f"{self.kind}.{name}" for name in constants)


def _fits(value: Literal, kind: Type) -> bool:
    if isinstance(value, EnumConstant):
        return value.enumeration is kind
    if isinstance(value, bool):
        return kind is Type.BOOL
    if isinstance(value, (int, float)):
        return kind in _NUMERIC
    return kind in {Type.STRING, Type.STRING_LIST}


def _named(value: Literal) -> str:
    if isinstance(value, EnumConstant):
        return str(value)
    if isinstance(value, bool):
        return "a bool"
    return "a number" if isinstance(value, (int, float)) else "a string"
