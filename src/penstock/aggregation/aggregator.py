"""All of L1 behind one object: batches of telemetry in, partial states out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.aggregation.accumulator import Accumulator
from penstock.aggregation.l1 import aggregate
from penstock.aggregation.meters import add_points
from penstock.aggregation.selections import select
from penstock.aggregation.spans import NS_PER_MINUTE, SpanFrame
from penstock.aggregation.topn import add_slowest
from penstock.metrics.definitions import Condition, Tag
from penstock.store.contract import Granularity
from penstock.telemetry.schema import PROMOTED, SPANS, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.aggregation.partials import Partials
    from penstock.aggregation.settings import AggregationSettings
    from penstock.metrics.definitions import Metric
    from penstock.store.contract import Retention

__all__ = ["Aggregator", "Horizon"]

_MINUTES_PER_DAY = 1440
_BASE = ("trace_id", "span_id", "name", "kind", "start_ns", "end_ns", "status_code")
_NAMES = ("service_name", "service_instance", *PROMOTED.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The oldest minute that each granularity still takes, and the newest of all."""

    minute: int
    hour: int
    day: int
    records: int
    future: int

    @staticmethod
    def at(now: float, retention: Retention) -> Horizon:
        """Return the horizon at *now*, in seconds since 1970."""
        minute = int(now // 60)
        return Horizon(
            minute=minute - retention.minute * _MINUTES_PER_DAY,
            hour=(minute // 60 - retention.hour * 24) * 60,
            day=(minute // _MINUTES_PER_DAY - retention.day) * _MINUTES_PER_DAY,
            records=minute - retention.records * _MINUTES_PER_DAY,
            future=minute + _MINUTES_PER_DAY,
        )

    def oldest(self, granularity: Granularity) -> int:
        """Return the oldest minute that *granularity* takes."""
        return int(getattr(self, granularity.value))


class Aggregator:
    """Turns telemetry into partial states, for one task; not shared between threads."""

    def __init__(
        self, metrics: Sequence[Metric], settings: AggregationSettings, horizon: Horizon
    ) -> None:
        self._settings = settings
        self._horizon = horizon
        self._sources: dict[str, list[Metric]] = {}
        for metric in metrics:
            self._sources.setdefault(metric.source, []).append(metric)
        self._into = Accumulator()

    def add(self, signal: Signal, batch: pa.RecordBatch) -> None:
        """Add a batch of telemetry."""
        if signal is Signal.SPANS:
            self._add_spans(batch)
        elif signal is Signal.POINTS:
            batch = self._timely(batch, batch.column("time_ns"))
            if batch.num_rows:
                add_points(batch, self._into)

    def _add_spans(self, batch: pa.RecordBatch) -> None:
        batch = self._timely(batch, batch.column("start_ns"))
        if not batch.num_rows:
            return
        frame = SpanFrame(batch)
        for source, metrics in self._sources.items():
            for rows in select(frame, source):
                aggregate(rows, tuple(metrics), self._into, self._settings)
        add_slowest(frame, self._into, self._settings)

    def _timely(self, batch: pa.RecordBatch, times: pa.Array) -> pa.RecordBatch:
        """Return the rows whose time some granularity takes; count those that one does not."""
        if not batch.num_rows:
            return batch
        minute = times.to_numpy(zero_copy_only=False) // NS_PER_MINUTE
        oldest = [self._horizon.oldest(granularity) for granularity in Granularity]
        if minute.min() >= max(oldest) and minute.max() <= self._horizon.future:
            return batch
        for granularity in Granularity:
            expired = int((minute < self._horizon.oldest(granularity)).sum())
            self._into.leave_out(f"expired_{granularity}", expired)
        self._into.leave_out("future", int((minute > self._horizon.future).sum()))
        kept = (minute >= min(oldest)) & (minute <= self._horizon.future)
        return batch.filter(pa.array(kept))

    def finish(self) -> Partials:
        """Return what has been added; a key may have several rows."""
        return self._into.finish()


def span_columns(metrics: Sequence[Metric]) -> list[str]:
    """Return the columns of SPANS that *metrics* and the top lists read."""
    wanted = {*_BASE, *_NAMES}
    if any(_reads_map(metric) for metric in metrics):
        wanted.add("attributes")
    return [name for name in SPANS.names if name in wanted]


def _reads_map(metric: Metric) -> bool:
    return any(
        (isinstance(operand, Tag) and operand.key not in PROMOTED)
        or getattr(operand, "name", "") == "tags"
        for operand in _operands(metric)
    )


def _operands(metric: Metric) -> Iterator[Any]:
    yield metric.value
    for argument in (*metric.filters, *metric.call.arguments):
        yield argument.left if isinstance(argument, Condition) else argument
