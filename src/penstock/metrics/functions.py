"""The aggregating functions: one mergeable state for all of them, and a final value each.

Every function keeps what it needs in a :class:`State`. States combine in any order and grouping
with the same result, which is what lets partial aggregates meet in any batch, on any machine and
in any granularity. Only :meth:`Function.value` knows what the parts mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from penstock.metrics.sources import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "FUNCTIONS",
    "MAX_LABELS",
    "METER_FUNCTIONS",
    "RANKS",
    "Function",
    "State",
    "Value",
    "percentile_slot",
    "percentile_value",
]

RANKS = (50, 75, 90, 95, 99)
MAX_LABELS = 50  # of labelCount and labelAvg; all others together are told as one label
SLOTS_PER_OCTAVE = 8  # OTLP's scale 3: neighbouring slots differ by 9 %, so a middle by 4.5 %
ZERO_SLOT = "zero"
REMAINDER = "(other)"

Value: TypeAlias = int | float | dict[str, int] | dict[str, float]


@dataclass(frozen=True, slots=True)
class State:
    """Everything a function may have to remember about the rows of one bucket.

    ``count`` is always the number of rows. ``total`` and ``base`` are whole sums, ``real`` is a
    sum of fractions, ``low`` and ``high`` are extremes, ``last`` is the value at ``last_at``
    nanoseconds. ``slots`` counts by slot or label, ``sums`` adds up by label.
    """

    count: int = 0
    total: int = 0
    base: int = 0
    real: float = 0.0
    low: float | None = None
    high: float | None = None
    last: float | None = None
    last_at: int | None = None
    slots: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)

    def combine(self, other: State) -> State:
        """Return the state of both sets of rows together."""
        newest = max(self, other, key=State._age)
        return State(
            count=self.count + other.count,
            total=self.total + other.total,
            base=self.base + other.base,
            real=self.real + other.real,
            low=_extreme(min, self.low, other.low),
            high=_extreme(max, self.high, other.high),
            last=newest.last,
            last_at=newest.last_at,
            slots=_added(self.slots, other.slots),
            sums={
                label: self.sums.get(label, 0.0) + other.sums.get(label, 0.0)
                for label in {**self.sums, **other.sums}
            },
        )

    def _age(self) -> tuple[float, float]:
        # Two values at the same nanosecond: the larger one, whichever comes first.
        if self.last_at is None or self.last is None:
            return (-math.inf, -math.inf)
        return (self.last_at, self.last)


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the language.

    *operand* is the type that ``from(Source.attribute)`` must have, None where the function takes
    no value. *arguments* names its arguments in order: ``number``, ``condition``, or ``operand``.
    *value* turns a state into the final value, given how many minutes the bucket covers.
    """

    name: str
    operand: Type | None
    arguments: tuple[str, ...]
    value: Callable[[State, int], Value]
    superseded: bool = False  # accepted for the sake of existing files


def percentile_slot(value: int) -> str:
    """Return the slot of the exponential histogram that *value* is counted in."""
    if value <= 0:
        return ZERO_SLOT
    # ceil(log2(value) * 8) - 1, in whole numbers: a logarithm rounds just where slots meet.
    return str((value**SLOTS_PER_OCTAVE - 1).bit_length() - 1)


def percentile_value(slot: str) -> float:
    """Return the value that stands for a slot: its geometric middle."""
    if slot == ZERO_SLOT:
        return 0.0
    return float(2 ** ((int(slot) + 0.5) / SLOTS_PER_OCTAVE))


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the sums by key; a key whose sum is 0 is left out, one below 0 is not.

    The increase of a cumulative series is corrected downwards when a late reading moves part of
    it to another minute, so a count that is negative by itself has to live until it meets its sum.
    """
    sums = {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
    return {key: count for key, count in sums.items() if count}


def _extreme(
    choose: Callable[[float, float], float], one: float | None, other: float | None
) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def _quotient(dividend: int, divisor: int) -> int:
    """Return the whole quotient, rounded towards zero as in Java and in SQL; 0 for nothing."""
    if divisor == 0:
        return 0
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _percentiles(state: State, minutes: int) -> dict[str, float]:
    del minutes
    slots = sorted((percentile_value(slot), count) for slot, count in state.slots.items())
    total = sum(count for _, count in slots)
    return {f"p{rank}": _at_rank(slots, (total * rank + 50) // 100) for rank in RANKS}


def _at_rank(slots: list[tuple[float, int]], rank: int) -> float:
    seen = 0
    for value, count in slots:
        seen += count
        if seen >= rank:
            return value
    return 0.0


def _largest(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda label: (-counts[label], label))[:MAX_LABELS]


def _label_counts(state: State, minutes: int) -> dict[str, int]:
    del minutes
    return _limited(state.slots, _largest(state.slots))


def _label_averages(state: State, minutes: int) -> dict[str, int]:
    del minutes
    largest = _largest(state.slots)
    counts = _limited(state.slots, largest)
    totals = _limited({label: int(state.sums.get(label, 0.0)) for label in state.slots}, largest)
    return {label: _average(totals.get(label, 0), counts[label]) for label in counts}


def _limited(numbers: Mapping[str, int], largest: list[str]) -> dict[str, int]:
    """Return the numbers of the *largest* labels, and the sum of all others under one label."""
    kept = {label: numbers[label] for label in largest}
    if len(numbers) > len(kept):
        # A label may have that very name: nothing of it may be lost.
        rest = sum(numbers.values()) - sum(kept.values())
        kept[REMAINDER] = kept.get(REMAINDER, 0) + rest
    return kept


def _average(total: int, count: int) -> int:
    average = _quotient(total, count)
    return 1 if average == 0 and total > 0 else average


def _histogram(state: State, minutes: int) -> dict[str, int]:
    del minutes
    return dict(sorted(state.slots.items(), key=lambda item: int(item[0])))


_NUMBER, _CONDITION, _OPERAND = "number", "condition", "operand"

_ALL = (
    Function("longAvg", Type.LONG, (), lambda s, _: _quotient(s.total, s.count)),
    Function("doubleAvg", Type.DOUBLE, (), lambda s, _: s.real / s.count if s.count else 0.0),
    Function("sum", Type.LONG, (), lambda s, _: s.total),
    Function("count", None, (), lambda s, _: s.count),
    Function("max", Type.LONG, (), lambda s, _: int(s.high or 0)),
    Function("min", Type.LONG, (), lambda s, _: int(s.low or 0)),
    Function("maxDouble", Type.DOUBLE, (), lambda s, _: s.high or 0.0),
    Function("minDouble", Type.DOUBLE, (), lambda s, _: s.low or 0.0),
    Function("cpm", None, (), lambda s, minutes: _quotient(s.count, minutes)),
    Function("percent", None, (_CONDITION,), lambda s, _: _quotient(s.total * 10000, s.count)),
    Function(
        "rate", None, (_CONDITION, _CONDITION), lambda s, _: _quotient(s.total * 10000, s.base)
    ),
    # total is 2 for a satisfied and 1 for a tolerating row: (2s + t) / 2 of count, times 10000.
    Function(
        "apdex",
        Type.LONG,
        (_OPERAND, _OPERAND),
        lambda s, _: _quotient(s.total * 5000, s.count),
    ),
    Function("percentile", Type.LONG, (_NUMBER,), _percentiles, superseded=True),
    Function("percentile2", Type.LONG, (_NUMBER,), _percentiles),
    Function("histogram", Type.LONG, (_NUMBER, _NUMBER), _histogram),
    Function("labelCount", None, (_OPERAND,), _label_counts),
    Function("labelAvg", Type.LONG, (_OPERAND,), _label_averages),
    # What metric points become; rules cannot call these.
    Function("gauge", Type.DOUBLE, (), lambda s, _: s.last or 0.0),
    Function("counter", Type.DOUBLE, (), lambda s, _: s.real),
    Function(
        "distribution",
        Type.DOUBLE,
        (),
        lambda s, _: dict(sorted(s.slots.items(), key=lambda item: float(item[0]))),
    ),
)

FUNCTIONS: Mapping[str, Function] = {function.name: function for function in _ALL}
METER_FUNCTIONS = ("gauge", "counter", "distribution")
