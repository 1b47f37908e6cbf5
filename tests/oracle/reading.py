"""Everything that a store holds, as the oracle writes it; here the code under test has its say."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.metrics.functions import FUNCTIONS, State
from penstock.store.contract import (
    TOP_KINDS,
    Catalogued,
    Granularity,
    SeriesQuery,
    SeriesRow,
    TopQuery,
    TopRow,
)
from tests.oracle.buckets import Key
from tests.oracle.meters import Counter, Distribution, Gauge
from tests.oracle.topn import Slow, TopKey

ALL = 2**31 - 1  # rows


class Readable(Protocol):
    """The part of a MetricStore that is needed here."""

    def catalogue(self) -> Mapping[str, Catalogued]:
        """Return all known metrics by name."""
        ...

    def series(self, query: SeriesQuery) -> Sequence[SeriesRow]:
        """Return states."""
        ...

    def top(self, query: TopQuery) -> Sequence[TopRow]:
        """Return slow statements."""
        ...


def read_store(store: Readable) -> dict[Key, object]:
    """Return all final values of all metrics and meters, of all granularities."""
    return {
        (name, granularity.value, row.entity, row.bucket): final_value(
            metric.function, row.state, granularity.minutes
        )
        for name, metric in store.catalogue().items()
        for granularity in Granularity
        for row in store.series(SeriesQuery(metric=name, granularity=granularity, limit=ALL))
    }


def read_top(store: Readable) -> dict[TopKey, list[Slow]]:
    """Return all top lists, each in the order in which the store gives its entries."""
    lists: dict[TopKey, list[Slow]] = defaultdict(list)
    for kind in TOP_KINDS:
        for row in store.top(TopQuery(kind=kind, limit=ALL)):
            entry = (row.latency, row.span_id, row.trace_id, row.statement)
            lists[kind, row.entity, row.bucket].append(entry)
    return dict(lists)


def final_value(function: str, state: State, minutes: int) -> object:
    """Return the value that penstock shows for a state; meters with their other figures."""
    value = FUNCTIONS[function].value(state, minutes)
    if function == "counter":
        assert isinstance(value, int | float)
        return Counter(value)
    if function == "gauge":
        assert isinstance(value, int | float)
        return Gauge.of(value, state.count, state.real, (state.low, state.high))
    if function == "distribution":
        assert isinstance(value, Mapping)
        distribution = Distribution({float(bound): int(n) for bound, n in value.items()})
        distribution.count, distribution.sum = state.count, state.real
        distribution.low, distribution.high = state.low, state.high
        return distribution
    return value
