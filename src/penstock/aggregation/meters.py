"""Metric points as partial states: gauges, counters and distributions.

Points of cumulative series are handed on as readings: how much a reading adds depends on the one
before it, which may be in another batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.columns import Numbers, Texts
from penstock.aggregation.grouping import entity_codes
from penstock.aggregation.partials import READINGS
from penstock.aggregation.spans import NS_PER_MINUTE
from penstock.metrics.sources import METER
from penstock.telemetry.schema import Temporality

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.aggregation.accumulator import Accumulator
    from penstock.aggregation.columns import Flags, Rows

__all__ = ["add_points", "attribute_texts"]

VALUE_SLOT = ""
COUNT_SLOT, SUM_SLOT = "count", "sum"


def add_points(batch: pa.RecordBatch, into: Accumulator) -> None:
    """Add the metric points of *batch*."""
    points = _Points.of(batch, into)
    kind = Texts.of(batch.column("kind"))
    temporality = Numbers.of(batch.column("temporality")).values
    monotonic = batch.column("monotonic").to_numpy(zero_copy_only=False)
    is_delta = temporality == Temporality.DELTA
    is_cumulative = temporality == Temporality.CUMULATIVE
    gauges, sums, histograms = (kind.where(k.__eq__) for k in ("gauge", "sum", "histogram"))
    into.leave_out("kind", int((~(gauges | sums | histograms)).sum()))
    into.leave_out("temporality", int(((sums | histograms) & ~is_delta & ~is_cumulative).sum()))
    _add_gauges(points, gauges | (sums & is_cumulative & ~monotonic), into)
    _add_counters(points, sums & is_delta, into)
    _add_counter_readings(points, sums & is_cumulative & monotonic, into)
    _add_distributions(points, histograms & is_delta, into)
    _add_distribution_readings(points, histograms & is_cumulative, into)


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """A batch of points with the columns that all kinds share."""

    batch: pa.RecordBatch
    name: Texts
    unit: Texts
    entity: NDArray[np.int64]
    minute: NDArray[np.int64]
    time: NDArray[np.int64]

    @staticmethod
    def of(batch: pa.RecordBatch, into: Accumulator) -> _Points:
        parts = [
            Texts.of(batch.column("service_name")),
            Texts.of(batch.column("service_instance")),
            Texts.of(attribute_texts(batch.column("attributes"))),
        ]
        codes, ids = entity_codes(parts, METER, into)
        time = Numbers.of(batch.column("time_ns")).values
        return _Points(
            batch,
            Texts.of(batch.column("metric_name")),
            Texts.of(batch.column("unit")),
            ids[codes],
            time // NS_PER_MINUTE,
            time,
        )

    def metrics(self, rows: Rows, function: str, into: Accumulator) -> NDArray[np.int64]:
        """Return the id of each row's metric; to be asked once for each point."""
        names, first, points = np.unique(
            self.name.codes[rows], return_index=True, return_counts=True
        )
        units = self.unit.codes[rows][first]
        ids = np.zeros(len(self.name.values) + 1, dtype=np.int64)
        for code, unit, count in zip(names.tolist(), units.tolist(), points.tolist(), strict=True):
            name = self.name.values[code] if code >= 0 else ""
            ids[code] = into.meter(
                name, function, self.unit.values[unit] if unit >= 0 else "", count
            )
        return ids[self.name.codes[rows]]

    def keys(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Return entity and minute of *rows*."""
        return {"entity": self.entity[rows], "bucket": self.minute[rows]}

    def finite(self, chosen: Flags, column: str, into: Accumulator) -> tuple[Rows, NDArray[Any]]:
        """Return the rows of *chosen* that have a finite number, and that; count the others."""
        numbers = Numbers.of(self.batch.column(column))
        usable = chosen & numbers.is_valid() & np.isfinite(numbers.values)
        into.leave_out("no_value", int(chosen.sum() - usable.sum()))
        rows = np.flatnonzero(usable)
        return rows, numbers.values[rows]

    def optional(self, rows: Rows, column: str, missing: float) -> NDArray[Any]:
        """Return the numbers of *rows*, with *missing* where there is no finite one."""
        numbers = Numbers.of(self.batch.column(column)).take(rows)
        usable = numbers.is_valid() & np.isfinite(numbers.values)
        return np.where(usable, numbers.values, missing)


def _add_gauges(points: _Points, chosen: Flags, into: Accumulator) -> None:
    rows, value = points.finite(chosen, "value", into)
    if len(rows):
        into.facts(
            points.metrics(rows, "gauge", into),
            **points.keys(rows),
            count=np.ones(len(rows), dtype=np.int64),
            real=value,
            low=value,
            high=value,
            last=value,
            last_at=points.time[rows],
        )


def _add_counters(points: _Points, chosen: Flags, into: Accumulator) -> None:
    rows, value = points.finite(chosen, "value", into)
    if len(rows):
        count = np.ones(len(rows), dtype=np.int64)
        metric = points.metrics(rows, "counter", into)
        into.facts(metric, **points.keys(rows), count=count, real=value)


def _add_counter_readings(points: _Points, chosen: Flags, into: Accumulator) -> None:
    rows, value = points.finite(chosen, "value", into)
    if len(rows):
        metric = points.metrics(rows, "counter", into)
        into.readings(_readings(points, rows, metric, (VALUE_SLOT, value)))


def _add_distributions(points: _Points, chosen: Flags, into: Accumulator) -> None:
    rows, count = points.finite(chosen, "count", into)
    rows, count = _consistent(points, rows, count, into)
    if not len(rows):
        return
    metric = points.metrics(rows, "distribution", into)
    into.facts(
        metric,
        **points.keys(rows),
        count=count.astype(np.int64),
        real=points.optional(rows, "sum", 0.0),
        low=points.optional(rows, "min", np.nan),
        high=points.optional(rows, "max", np.nan),
    )
    parent, bound, counted = _buckets(points.batch, rows)
    for one in np.unique(metric[parent]).tolist():
        mine = metric[parent] == one
        names, codes = _bound_names(bound[mine])
        into.slots(
            one,
            **points.keys(rows[parent[mine]]),
            slot=codes,
            names=names,
            count=counted[mine],
        )


def _add_distribution_readings(points: _Points, chosen: Flags, into: Accumulator) -> None:
    rows, count = points.finite(chosen, "count", into)
    rows, count = _consistent(points, rows, count, into)
    if not len(rows):
        return
    metric = points.metrics(rows, "distribution", into)
    total = points.optional(rows, "sum", 0.0)
    into.readings(_readings(points, rows, metric, (COUNT_SLOT, count)))
    into.readings(_readings(points, rows, metric, (SUM_SLOT, total)))
    parent, bound, counted = _buckets(points.batch, rows)
    names, codes = _bound_names(bound)
    slot = pa.array(names, pa.string()).take(pa.array(codes))
    into.readings(_readings(points, rows[parent], metric[parent], (slot, counted)))


def _readings(
    points: _Points,
    rows: Rows,
    metric: NDArray[np.int64],
    values: tuple[str | pa.Array, NDArray[Any]],
) -> pa.Table:
    slot, value = values
    if isinstance(slot, str):
        slot = pa.array([slot] * len(rows), pa.string())
    columns = {
        "metric": metric,
        "entity": points.entity[rows],
        "slot": slot,
        "time_ns": points.time[rows],
        "start_ns": points.optional(rows, "start_ns", 0).astype(np.int64),
        "value": value.astype(np.float64),
    }
    return pa.table(columns, schema=READINGS)


def _consistent(
    points: _Points, rows: Rows, count: NDArray[Any], into: Accumulator
) -> tuple[Rows, NDArray[Any]]:
    """Leave out histograms whose buckets do not fit their bounds."""
    taken = pa.array(rows)
    buckets = _lengths(points.batch.column("bucket_counts").take(taken))
    bounds = _lengths(points.batch.column("bounds").take(taken))
    fits = (buckets == bounds + 1) | ((buckets == 0) & (bounds == 0))
    into.leave_out("buckets", int((~fits).sum()))
    return rows[fits], count[fits]


def _lengths(lists: pa.Array) -> NDArray[Any]:
    return np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))


def _buckets(batch: pa.RecordBatch, rows: Rows) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return for all buckets of *rows*: the position in *rows*, upper bound and count."""
    taken = pa.array(rows)
    counts = batch.column("bucket_counts").take(taken)
    bounds = batch.column("bounds").take(taken)
    parent = pc.list_parent_indices(counts).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(_lengths(counts))])
    bound_starts = np.concatenate([[0], np.cumsum(_lengths(bounds))])
    position = np.arange(len(parent)) - starts[parent]
    is_last = position == (bound_starts[parent + 1] - bound_starts[parent])
    flat = np.append(pc.list_flatten(bounds).to_numpy(zero_copy_only=False), np.inf)
    index = np.where(is_last, len(flat) - 1, bound_starts[parent] + position)
    return parent, flat[index], pc.list_flatten(counts).to_numpy(zero_copy_only=False)


def _bound_names(bounds: NDArray[Any]) -> tuple[list[str], NDArray[Any]]:
    distinct, codes = np.unique(bounds, return_inverse=True)
    return [str(bound) for bound in distinct.tolist()], codes


def attribute_texts(maps: pa.Array) -> pa.Array:
    """Return each map as ``key=value,key=value``, sorted; an empty or missing one is empty."""
    pairs = pc.binary_join_element_wise(maps.keys, pc.fill_null(maps.items, ""), "=")
    offsets = maps.offsets.to_numpy(zero_copy_only=False)
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(maps)), lengths)
    # Keys and values are those of the whole column, of which this may be a part.
    first = int(offsets[0])
    keys, pairs = (column.slice(first, len(row)) for column in (maps.keys, pairs))
    table = pa.table({"row": row, "key": keys, "pair": pairs})
    # By key first: in "a=1" and "a.b=1" the sign "=" is larger than the dot.
    ordered = table.sort_by([(name, "ascending") for name in ("row", "key", "pair")])
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(starts), ordered["pair"].combine_chunks())
    return pc.binary_join(lists, ",")
