"""Definitions of rules: source, value, function and arguments, checked against each other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.metrics.conditions import check_condition
from penstock.metrics.definitions import Call, Condition, Metric
from penstock.metrics.diagnostics import quoted, suggested
from penstock.metrics.functions import FUNCTIONS, METER_FUNCTIONS
from penstock.metrics.operands import decode_number, decode_text, described, resolve
from penstock.metrics.sources import ENUMERATIONS, SOURCES, Type
from penstock.metrics.syntax import (
    Comparison,
    Decoration,
    Everything,
    Filter,
    Invocation,
    Number,
    Reference,
)

if TYPE_CHECKING:
    from penstock.metrics.definitions import Argument, Operand
    from penstock.metrics.diagnostics import Findings
    from penstock.metrics.functions import Function
    from penstock.metrics.operands import Typed
    from penstock.metrics.sources import Source
    from penstock.metrics.syntax import Definition, Name

__all__ = ["CALLABLE", "EXAMPLES", "check_definition"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_NAME = 200
_LARGEST = 2**63 - 1
MOST_GROUPS = 1000  # of a histogram; each is a row in the store, per entity and minute

CALLABLE = tuple(name for name in FUNCTIONS if name not in METER_FUNCTIONS)

# How functions with arguments are called, for messages and for the reference.
EXAMPLES = {
    "percent": "percent(status == true)",
    "rate": "rate(status == false, status == true)",
    "apdex": "apdex(name, status)",
    "percentile": "percentile(10)",
    "percentile2": "percentile2(10)",
    "histogram": "histogram(100, 20)",
    "labelCount": "labelCount(name)",
    "labelAvg": "labelAvg(name)",
}

# What people call functions that have another name here.
_SYNONYMS = {
    "avg": "longAvg",
    "average": "longAvg",
    "mean": "longAvg",
    **dict.fromkeys(("p50", "p75", "p90", "p95", "p99", "quantile", "median"), "percentile2(10)"),
}
_ATTRIBUTES = frozenset(name for source in SOURCES.values() for name in source.attributes) | {"tag"}
_WIDER = {"longAvg": "doubleAvg", "max": "maxDouble", "min": "minDouble"}
_LABELS = frozenset({Type.STRING, Type.LONG, Type.BOOL, *ENUMERATIONS})
_OPERANDS: dict[str, tuple[frozenset[Type], ...]] = {
    "apdex": (frozenset({Type.STRING}), frozenset({Type.BOOL})),
    "labelCount": (_LABELS,),
    "labelAvg": (_LABELS,),
}


def check_definition(definition: Definition, findings: Findings) -> Metric | None:
    """Return the metric that *definition* means; None if anything is wrong with it."""
    before = len(findings.diagnostics)
    check = _Check(definition, findings)
    check.name()
    source = check.source()
    value = check.value(source)
    call = check.call(source)
    filters = check.filters(source)
    decorators = check.decorators()
    if call is not None:
        check.value_fits(FUNCTIONS[call.function], value)
    if len(findings.diagnostics) > before or source is None or call is None:
        return None
    takes_value = FUNCTIONS[call.function].operand is not None
    return Metric(
        name=definition.name.text,
        source=source.name,
        value=value[0] if takes_value and value is not None else None,
        filters=filters,
        call=call,
        decorators=decorators,
        line=definition.name.place.line,
    )


@dataclass(frozen=True, slots=True)
class _Check:
    """One definition; every method reports what it finds and answers with what is usable."""

    definition: Definition
    findings: Findings

    def name(self) -> None:
        name = self.definition.name
        if _NAME.fullmatch(name.text) is None:
            message = f"{quoted(name.text)} cannot be the name of a metric"
            self.findings.add(name.place, message, "use the letters a to z, digits and _")
        elif len(name.text) > _LONGEST_NAME:
            message = f"the name {quoted(name.text)} is too long"
            self.findings.add(name.place, message, f"use at most {_LONGEST_NAME} characters")

    def source(self) -> Source | None:
        value = self.definition.value
        name = value.path[0]
        source = SOURCES.get(name.text)
        if source is None:
            remedy = suggested(name.text, SOURCES, "sources are")
            if name.text in _ATTRIBUTES:
                remedy = f"name the source first: Source.{name.text}"
            self.findings.add(name.place, f"unknown source {quoted(name.text)}", remedy)
        return source

    def value(self, source: Source | None) -> Typed | None:
        """Return the value that is named; None for ``Source.*``."""
        value = self.definition.value
        if source is None:
            return None
        rest = value.path[1:]
        if isinstance(value, Everything):
            if rest:
                message = f'"*" follows the source itself, not {quoted(rest[-1].text)}'
                self.findings.add(rest[0].place, message, f"write {source.name}.*")
            return None
        if not rest:
            message = f"{source.name} is a source, and the value is missing"
            remedy = f"write {source.name}.* or an attribute such as {source.name}.latency"
            self.findings.add(value.place, message, remedy)
            return None
        return resolve(value, rest, source, self.findings)

    def filters(self, source: Source | None) -> tuple[Condition, ...]:
        steps = (step for step in self.definition.steps if isinstance(step, Filter))
        checked = [check_condition(step.condition, source, self.findings) for step in steps]
        return tuple(condition for condition in checked if condition is not None)

    def decorators(self) -> tuple[str, ...]:
        steps = (step for step in self.definition.steps if isinstance(step, Decoration))
        texts = [decode_text(step.text, self.findings) for step in steps]
        return tuple(text for text in texts if text is not None)

    def call(self, source: Source | None) -> Call | None:
        """Return the call of the one function, which stands after filters, before decorators."""
        invocations = [step for step in self.definition.steps if isinstance(step, Invocation)]
        unknown = [step for step in invocations if not self._is_known(step.name)]
        if unknown:
            return None
        if not invocations:
            name = self.definition.name
            message = f"metric {quoted(name.text)} has no function"
            self.findings.add(name.place, message, "end the rule with one, such as .cpm()")
            return None
        for extra in invocations[1:]:
            message = f"{extra.name.text} follows {invocations[0].name.text}"
            remedy = "a metric has one function: define two metrics"
            self.findings.add(extra.name.place, message, remedy)
        self._check_order(invocations[0])
        return _Arguments(invocations[0], source, self.findings).call()

    def _is_known(self, name: Name) -> bool:
        """Whether rules can call the function; report it if not."""
        if name.text in CALLABLE:
            return True
        if name.text in METER_FUNCTIONS:
            message = f"{name.text} is what metric points become; rules cannot call it"
            self.findings.add(name.place, message, f"functions are {', '.join(CALLABLE)}")
            return False
        synonym = _SYNONYMS.get(name.text)
        known = (*CALLABLE, "filter", "decorator")
        remedy = suggested(name.text, known, "functions are")
        if synonym is not None:
            remedy = f'did you mean "{synonym}"?'
        self.findings.add(name.place, f"unknown function {quoted(name.text)}", remedy)
        return False

    def _check_order(self, invocation: Invocation) -> None:
        at = self.definition.steps.index(invocation)
        for index, step in enumerate(self.definition.steps):
            if isinstance(step, Filter) and index > at:
                message = f"this filter follows {invocation.name.text}"
                self.findings.add(step.place, message, "filters stand before the function")
            elif isinstance(step, Decoration) and index < at:
                message = f"this decorator stands before {invocation.name.text}"
                self.findings.add(step.place, message, "decorators follow the function")

    def value_fits(self, function: Function, value: Typed | None) -> None:
        """Check that the value is one that *function* can take."""
        node, source = self.definition.value, SOURCES.get(self.definition.value.path[0].text)
        if function.operand is None or source is None:
            return  # a function that only looks at rows does not mind a value
        if value is not None:
            if not _is_fit(value[1], function.operand):
                self._report_misfit(function, value[1])
        elif isinstance(node, Everything) and len(node.path) == 1:
            message = f"{function.name} needs a value, and {source.name}.* has none"
            self.findings.add(node.place, message, _value_remedy(function, source))

    def _report_misfit(self, function: Function, kind: Type) -> None:
        node = self.definition.value
        assert isinstance(node, Reference)
        assert function.operand is not None
        message = f"{function.name} needs {described(function.operand)}, "
        message += f"and {quoted(str(node))} is {described(kind)}"
        source = SOURCES[node.path[0].text]
        if kind is Type.STRING:
            remedy = f"cast it: from((str->{function.operand}){node})"
        elif kind is Type.DOUBLE:
            remedy = f"use {_WIDER.get(function.name, '(str->long)')}"
        else:
            remedy = _value_remedy(function, source)
        self.findings.add(node.place, message, remedy)


def _is_fit(kind: Type, needed: Type) -> bool:
    """Whether a value of type *kind* can be used as *needed*; a long is a double, too."""
    return kind is needed or (needed is Type.DOUBLE and kind is Type.LONG)


def _value_remedy(function: Function, source: Source) -> str:
    assert function.operand is not None
    fitting = [
        f"{source.name}.{name}"
        for name, kind in sorted(source.attributes.items())
        if _is_fit(kind, function.operand)
    ]
    counting = ", or count() for the number of rows" if function.name == "sum" else ""
    return f"name an attribute: {', '.join(fitting)}{counting}"


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of a known function."""

    invocation: Invocation
    source: Source | None
    findings: Findings

    def call(self) -> Call | None:
        name, given = self.invocation.name, self.invocation.arguments
        wanted = FUNCTIONS[name.text].arguments
        if len(given) != len(wanted):
            many = f"{len(wanted)} argument{'' if len(wanted) == 1 else 's'}"
            message = f"{name.text} takes {many if wanted else 'no arguments'}, not {len(given)}"
            example = EXAMPLES.get(name.text, f"{name.text}()")
            self.findings.add(name.place, message, f"write {example}")
            return None
        checked = [self._argument(index, kind) for index, kind in enumerate(wanted)]
        arguments = tuple(argument for argument in checked if argument is not None)
        return Call(name.text, arguments) if len(arguments) == len(wanted) else None

    def _argument(self, index: int, wanted: str) -> Argument | None:
        node = self.invocation.arguments[index]
        if wanted == "condition" and isinstance(node, Comparison):
            return check_condition(node, self.source, self.findings)
        if wanted == "number" and isinstance(node, Number):
            return self._number(node)
        if wanted == "operand" and isinstance(node, Reference):
            return self._operand(node, index)
        name = self.invocation.name.text
        nouns = {"condition": "a condition", "number": "a number", "operand": "an attribute"}
        message = f"argument {index + 1} of {name} must be {nouns[wanted]}"
        self.findings.add(node.place, message, f"write {EXAMPLES[name]}")
        return None

    def _operand(self, node: Reference, index: int) -> Operand | None:
        if self.source is None:
            return None
        found = resolve(node, node.path, self.source, self.findings)
        if found is None:
            return None
        name = self.invocation.name.text
        allowed = _OPERANDS[name][index]
        if found[1] in allowed:
            return found[0]
        nouns = " or ".join(described(kind) for kind in Type if kind in allowed - set(ENUMERATIONS))
        message = f"argument {index + 1} of {name} must be {nouns}, "
        message += f"and {quoted(str(node))} is {described(found[1])}"
        fitting = [key for key, kind in sorted(self.source.attributes.items()) if kind in allowed]
        self.findings.add(node.place, message, f"choose one of: {', '.join(fitting)}")
        return None

    def _number(self, node: Number) -> int | float | None:
        value = decode_number(node, self.findings)
        name = self.invocation.name.text
        if value is None or name != "histogram":
            return value
        if isinstance(value, float) or value <= 0:
            message = f"{node.raw} cannot be a step or a number of groups"
            self.findings.add(node.place, message, "both are whole numbers above 0")
            return None
        if node is self.invocation.arguments[1] and value > MOST_GROUPS:
            message = f"{node.raw} groups are too many"
            self.findings.add(node.place, message, f"use at most {MOST_GROUPS}, of a larger step")
            return None
        if value > _LARGEST // MOST_GROUPS:
            self.findings.add(node.place, f"a step of {node.raw} is too large", "use a smaller one")
            return None
        return value
