"""L1: the rows of one batch of spans become partial states, all metrics of a source in one pass.

Rows are grouped by (entity, minute) once per source. Metrics whose filters and value select the
same rows share that selection, its counts and its sums; a metric costs only what it does not
share with another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.aggregation.columns import Numbers, Texts, group_codes, sums_by_group
from penstock.aggregation.conditions import operand_column, operand_number, truth
from penstock.aggregation.grouping import entity_codes
from penstock.aggregation.settings import threshold
from penstock.metrics.definitions import Condition
from penstock.metrics.functions import FUNCTIONS, SLOTS_PER_OCTAVE, ZERO_SLOT
from penstock.metrics.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from penstock.aggregation.accumulator import Accumulator
    from penstock.aggregation.columns import Flags
    from penstock.aggregation.settings import AggregationSettings
    from penstock.aggregation.spans import Selection
    from penstock.metrics.definitions import Metric, Operand

__all__ = ["aggregate"]


def aggregate(
    rows: Selection,
    metrics: tuple[Metric, ...],
    into: Accumulator,
    settings: AggregationSettings,
) -> None:
    """Add the states of all *metrics*, which are of one source, for its *rows*."""
    groups = _Groups.of(rows, metrics[0].source, into)
    shared: dict[object, _Matches] = {}
    for metric in metrics:
        # Functions without an operand count rows, whatever value the rule names.
        value = metric.value if FUNCTIONS[metric.call.function].operand is not None else None
        key = (metric.filters, value)
        if key not in shared:
            shared[key] = _Matches(rows, groups, metric.filters, value)
        matches = shared[key]
        if matches.size:
            _STATES[metric.call.function](_Target(metric, matches, into, settings))


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The rows' groups: a number per row, and the entity and minute of each number."""

    number: NDArray[Any]
    entity: NDArray[np.int64]
    minute: NDArray[np.int64]

    @staticmethod
    def of(rows: Selection, source: str, into: Accumulator) -> _Groups:
        parts = [rows.attribute(name) for name in SOURCES[source].entity]
        codes, ids = entity_codes([p for p in parts if isinstance(p, Texts)], source, into)
        first = int(rows.minute.min())
        span = int(rows.minute.max()) - first + 1
        number, keys = group_codes(codes * span + (rows.minute - first), len(ids) * span)
        return _Groups(number, ids[keys // span], keys % span + first)

    @property
    def size(self) -> int:
        return len(self.entity)


class _Matches:
    """The rows that fulfil a metric's filters and have its value; shared by metrics."""

    def __init__(
        self,
        rows: Selection,
        groups: _Groups,
        filters: tuple[Condition, ...],
        value: Operand | None,
    ) -> None:
        self.rows = rows
        self._groups = groups
        chosen = _conjunction(rows, filters)
        number = None if value is None else operand_number(rows, value)
        if number is not None and number.valid is not None:
            chosen = number.valid if chosen is None else chosen & number.valid
        self._chosen = chosen
        self._value = number
        self.groups = self.narrowed(groups.number)
        self.size = len(self.groups)
        self._sums: dict[object, NDArray[Any]] = {}

    def narrowed(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return the values of *column*, which is about all rows, for the matching rows."""
        return column if self._chosen is None else column[self._chosen]

    @cached_property
    def value(self) -> NDArray[Any]:
        """The metric's value in each row."""
        assert self._value is not None
        return self.narrowed(self._value.values)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows per group."""
        return np.bincount(self.groups, minlength=self._groups.size)

    @cached_property
    def present(self) -> NDArray[np.intp]:
        """The groups that have any row."""
        return np.flatnonzero(self.counts)

    def where(self, condition: Condition) -> Flags:
        """Return for each matching row whether *condition* holds."""
        return self.narrowed(truth(self.rows, condition))

    def total(self, key: object, weights: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return a sum per group; metrics that name the same *key* share it."""
        if key not in self._sums:
            self._sums[key] = sums_by_group(self.groups, weights(), self._groups.size)
        return self._sums[key]

    def keys(self, groups: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Return entity and minute of *groups*."""
        return {"entity": self._groups.entity[groups], "bucket": self._groups.minute[groups]}


def _conjunction(rows: Selection, conditions: tuple[Condition, ...]) -> Flags | None:
    """Return which rows fulfil all conditions; None stands for all rows."""
    chosen: Flags | None = None
    for condition in conditions:
        holds = truth(rows, condition)
        chosen = holds if chosen is None else chosen & holds
    return None if chosen is None or chosen.all() else chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """A metric, the rows that match it, and where its states go."""

    metric: Metric
    matches: _Matches
    into: Accumulator
    settings: AggregationSettings

    def emit(self, **parts: NDArray[Any]) -> None:
        """Add a fact for every group with rows; *parts* are per group, counts go without saying."""
        matches = self.matches
        chosen = {name: part[matches.present] for name, part in parts.items()}
        chosen["count"] = matches.counts[matches.present]
        self.into.facts(self.metric.id, **matches.keys(matches.present), **chosen)

    def emit_slots(self, slots: NDArray[Any], names: list[str], **sums: NDArray[Any]) -> None:
        """Add the numbers of rows per group and slot.

        *slots* are codes into *names*; a row with a negative one is in no slot.
        """
        matches = self.matches
        is_counted = slots >= 0
        rows, slots = matches.groups[is_counted], slots[is_counted]
        number, distinct = group_codes(rows * len(names) + slots, len(matches.counts) * len(names))
        groups, slot = np.divmod(distinct, len(names))
        counts = np.bincount(number, minlength=len(distinct))
        real = {
            name: sums_by_group(number, weights[is_counted].astype(np.float64), len(distinct))
            for name, weights in sums.items()
        }
        self.into.slots(
            self.metric.id, **matches.keys(groups), slot=slot, names=names, count=counts, **real
        )


def _count(target: _Target) -> None:
    target.emit()


def _whole_sum(target: _Target) -> None:
    matches = target.matches
    target.emit(total=matches.total("value", lambda: matches.value))


def _real_sum(target: _Target) -> None:
    matches = target.matches
    target.emit(real=matches.total("real", lambda: matches.value.astype(np.float64)))


def _highest(target: _Target) -> None:
    highest = np.full(len(target.matches.counts), -np.inf)
    np.maximum.at(highest, target.matches.groups, target.matches.value.astype(np.float64))
    target.emit(high=highest)


def _lowest(target: _Target) -> None:
    lowest = np.full(len(target.matches.counts), np.inf)
    np.minimum.at(lowest, target.matches.groups, target.matches.value.astype(np.float64))
    target.emit(low=lowest)


def _conditional(target: _Target, argument: object) -> NDArray[Any]:
    assert isinstance(argument, Condition)
    matches = target.matches
    return matches.total(argument, lambda: matches.where(argument).astype(np.int64))


def _percent(target: _Target) -> None:
    (condition,) = target.metric.call.arguments
    target.emit(total=_conditional(target, condition))


def _rate(target: _Target) -> None:
    numerator, denominator = target.metric.call.arguments
    target.emit(
        total=_conditional(target, numerator),
        base=_conditional(target, denominator),
    )


def _apdex(target: _Target) -> None:
    def points() -> NDArray[Any]:
        name, status = (operand_column(matches.rows, operand) for operand in operands)
        assert isinstance(name, Texts)
        assert isinstance(status, np.ndarray)
        known = [threshold(target.settings.apdex, service) for service in name.values]
        default = threshold(target.settings.apdex, "")
        limit = matches.narrowed(np.array([*known, default])[name.codes])
        satisfied = matches.value <= limit
        frustrated = ~matches.narrowed(status) | (matches.value > 4 * limit)
        return np.where(frustrated, 0, np.where(satisfied, 2, 1))

    matches = target.matches
    operands: tuple[Any, ...] = target.metric.call.arguments
    target.emit(total=matches.total(("apdex", operands), points))


def _percentile(target: _Target) -> None:
    codes = _slot_codes(np.maximum(target.matches.value, 0))
    target.emit()
    target.emit_slots(codes, _SLOT_NAMES[: int(codes.max()) + 1])


# Code 0 is zero; code c is slot c - 2, the first of which holds just 1. Whole values are found by
# the slots' whole upper bounds: exact where a rounded logarithm would not be.
_SLOT_NAMES = [ZERO_SLOT, *(str(slot) for slot in range(-1, 63 * SLOTS_PER_OCTAVE))]
_SLOT_BOUNDS = np.array(
    [
        0,
        *(
            int(2 ** ((slot + 1) / SLOTS_PER_OCTAVE))
            for slot in range(-1, 63 * SLOTS_PER_OCTAVE - 1)
        ),
    ],
    dtype=np.int64,
)
_SMALL = 1 << 16
_SLOT_OF_SMALL = np.searchsorted(_SLOT_BOUNDS, np.arange(_SMALL))


def _slot_codes(value: NDArray[Any]) -> NDArray[Any]:
    codes: NDArray[Any] = _SLOT_OF_SMALL[np.minimum(value, _SMALL - 1)]
    large = np.flatnonzero(value >= _SMALL)
    if len(large):
        codes[large] = np.searchsorted(_SLOT_BOUNDS, value[large])
    return codes


def _histogram(target: _Target) -> None:
    step, steps = (int(str(argument)) for argument in target.metric.call.arguments)
    codes = np.clip(target.matches.value // step, 0, steps)
    target.emit()
    target.emit_slots(codes, [str(index * step) for index in range(steps + 1)])


def _labels(target: _Target) -> tuple[NDArray[Any], list[str]]:
    (operand,) = target.metric.call.arguments
    column = operand_column(target.matches.rows, operand)  # type: ignore[arg-type] # checked rules
    texts = column if isinstance(column, Texts) else _as_texts(column)
    return target.matches.narrowed(texts.codes.astype(np.int64)), list(texts.values)


def _as_texts(column: Numbers | NDArray[Any]) -> Texts:
    numbers = column if isinstance(column, Numbers) else Numbers(column)
    distinct, codes = np.unique(numbers.values, return_inverse=True)
    names = [
        str(value).lower() if numbers.values.dtype == np.bool_ else str(value)
        for value in distinct.tolist()
    ]
    return Texts(np.where(numbers.is_valid(), codes, -1).astype(np.int32), names)


def _label_count(target: _Target) -> None:
    target.emit()
    target.emit_slots(*_labels(target))


def _label_average(target: _Target) -> None:
    target.emit()
    target.emit_slots(*_labels(target), real=target.matches.value)


_STATES: Mapping[str, Callable[[_Target], None]] = {
    "longAvg": _whole_sum,
    "doubleAvg": _real_sum,
    "sum": _whole_sum,
    "count": _count,
    "max": _highest,
    "min": _lowest,
    "maxDouble": _highest,
    "minDouble": _lowest,
    "cpm": _count,
    "percent": _percent,
    "rate": _rate,
    "apdex": _apdex,
    "percentile": _percentile,
    "percentile2": _percentile,
    "histogram": _histogram,
    "labelCount": _label_count,
    "labelAvg": _label_average,
}
