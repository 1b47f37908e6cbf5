"""What every metric is worth, computed a second time from the raw spans in plain Python.

Nothing is shared with the code under test but the definitions of metrics: no states, no partial
aggregates, no slots. All samples of a bucket are collected, then each function is evaluated once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.metrics.definitions import Condition, Metric
from tests.oracle.arithmetic import OracleValue, Sample, Setting, final_value
from tests.oracle.buckets import MINUTES, Admitted, Entity, Horizon, Key, admit, counting_buckets
from tests.oracle.conventions import Row, Span, rows
from tests.oracle.rules import Predicate, Reader, argument_reader, predicate, reader

# (place of the metric in the sequence, entity, minute) -> what its rows gave
_Collected: TypeAlias = Mapping[tuple[int, Entity, int], list[Sample]]


def compute(
    metrics: Sequence[Metric],
    spans: Iterable[dict[str, Any]],
    *,
    apdex_thresholds: Mapping[str, int] | None = None,
    apdex_default: int = 500,
    horizon: Horizon | None = None,
    admitted: Admitted | None = None,
) -> dict[Key, OracleValue]:
    """Return every value of *metrics* over *spans*, the rows of a SPANS table as Python values.

    With a *horizon*, rows that are expired or too far ahead are left out; with *admitted*, the
    entities that a scope has no room for are counted under ``(other)``.
    """
    collected = _collect(metrics, spans, admitted)
    gathered: dict[tuple[int, str, Entity, int], list[Sample]] = defaultdict(list)
    for (place, entity, minute), samples in collected.items():
        for granularity, bucket in counting_buckets(minute, horizon):
            gathered[place, granularity, entity, bucket].extend(samples)
    settings = {
        granularity: Setting(minutes, apdex_default, apdex_thresholds or {})
        for granularity, minutes in MINUTES.items()
    }
    return {
        (metrics[place].name, granularity, entity, bucket): final_value(
            metrics[place].call.function, samples, settings[granularity]
        )
        for (place, granularity, entity, bucket), samples in gathered.items()
    }


@dataclass(frozen=True, slots=True)
class _Plan:
    """One metric, ready to read rows: where its filters' outcomes are, and what it samples."""

    place: int
    filters: tuple[int, ...]
    value: Reader | None
    arguments: tuple[Reader, ...]

    def sample(self, row: Row, outcomes: Sequence[bool]) -> Sample | None:
        """Return what the metric reads from a row, or None if the row does not count for it."""
        for index in self.filters:
            if not outcomes[index]:
                return None
        value = None if self.value is None else self.value(row)
        if value is None and self.value is not None:
            return None
        return (value, *(read(row) for read in self.arguments))


class _SourcePlans:
    """The metrics of one source; a filter that several of them have is evaluated once a row."""

    def __init__(self) -> None:
        self.predicates: list[Predicate] = []
        self.plans: list[_Plan] = []
        self._known: dict[Condition, int] = {}

    def add(self, place: int, metric: Metric) -> None:
        filters = []
        for condition in metric.filters:
            index = self._known.setdefault(condition, len(self.predicates))
            if index == len(self.predicates):
                self.predicates.append(predicate(condition))
            filters.append(index)
        value = None if metric.value is None else reader(metric.value)
        arguments = tuple(argument_reader(argument) for argument in metric.call.arguments)
        self.plans.append(_Plan(place, tuple(filters), value, arguments))


def _collect(
    metrics: Sequence[Metric], spans: Iterable[dict[str, Any]], admitted: Admitted | None
) -> _Collected:
    by_source: dict[str, _SourcePlans] = defaultdict(_SourcePlans)
    for place, metric in enumerate(metrics):
        by_source[metric.source].add(place, metric)
    collected: dict[tuple[int, Entity, int], list[Sample]] = defaultdict(list)
    for columns in spans:
        span = Span(columns)
        for row in rows(span):
            if row.source not in by_source:
                continue
            source = by_source[row.source]
            outcomes = [holds(row) for holds in source.predicates]
            entity = admit(row.source, row.entity, admitted)
            for plan in source.plans:
                sample = plan.sample(row, outcomes)
                if sample is not None:
                    collected[plan.place, entity, span.minute].append(sample)
    return collected
