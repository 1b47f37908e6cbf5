"""Metric points, minute by minute: gauges, sums and histograms of every instance.

Cumulative series run on from minute to minute, so minutes are made in their order; where files are
cut makes no difference. Late points keep their time and are delivered with a later minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.generate._tables import cut
from penstock.generate._world import World, build_world, resource_maps
from penstock.telemetry import POINTS, Temporality

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.generate.settings import GeneratorSettings

__all__ = ["generate_points"]

_MINUTE_NS = 60_000_000_000
_NEVER = -1
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds
_SHARES = (0.12, 0.2, 0.26, 0.18, 0.11, 0.07, 0.03, 0.02, 0.007, 0.003)  # of the buckets
_MIDDLES = np.array((0.003, 0.0075, 0.017, 0.037, 0.07, 0.16, 0.35, 0.7, 1.6, 4.0))
_RESTARTED = 3  # one instance in so many restarts once

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Whole: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    """What an instance reports under one name."""

    name: str
    unit: str
    kind: str
    temporality: Temporality
    monotonic: bool = False
    tags: tuple[tuple[str, str], ...] = ()
    level: float  # around which a gauge moves; by how much anything else grows in a minute
    forgets: bool = False  # keeps its start time when it restarts: only the value falls


_METRICS = (
    _Metric(
        name="jvm.memory.used",
        unit="By",
        kind="gauge",
        temporality=Temporality.UNSPECIFIED,
        tags=(("jvm.memory.type", "heap"),),
        level=4e8,
    ),
    _Metric(
        name="http.server.requests",
        unit="{request}",
        kind="sum",
        temporality=Temporality.DELTA,
        monotonic=True,
        tags=(("http.route", "/items"),),
        level=900.0,
    ),
    _Metric(
        name="network.io",
        unit="By",
        kind="sum",
        temporality=Temporality.CUMULATIVE,
        monotonic=True,
        tags=(("direction", "receive"),),
        level=3e6,
    ),
    _Metric(
        name="http.server.request.duration",
        unit="s",
        kind="histogram",
        temporality=Temporality.DELTA,
        level=600.0,
    ),
    _Metric(
        name="db.client.operation.duration",
        unit="s",
        kind="histogram",
        temporality=Temporality.CUMULATIVE,
        tags=(("db.namespace", "shop"), ("db.system.name", "postgresql")),
        level=400.0,
    ),
    _Metric(
        name="http.server.active_requests",
        unit="{request}",
        kind="sum",
        temporality=Temporality.CUMULATIVE,
        level=25.0,
    ),
    _Metric(
        name="network.io",
        unit="By",
        kind="sum",
        temporality=Temporality.CUMULATIVE,
        monotonic=True,
        tags=(("direction", "transmit"),),
        level=5e6,
        forgets=True,
    ),
)


@dataclass(frozen=True, slots=True)
class _Series:
    """What never changes about each series; instances take turns, metric by metric."""

    columns: dict[str, pa.Array]
    level: Floats
    is_delta: Flags
    is_total: Flags  # cumulative and growing, so that a restart shows
    is_histogram: Flags
    forgets: Flags
    start_ns: Whole  # of the process, before the first minute
    restart: Whole  # the minute in which the process starts anew


@dataclass(slots=True)
class _Totals:
    """Where the growing series stand; for histograms each bucket."""

    start_ns: Whole
    value: Floats
    buckets: Whole


@dataclass(frozen=True, slots=True)
class _Readings:
    """One minute: for every tick a row of all series."""

    time_ns: Whole
    start_ns: Whole
    value: Floats
    buckets: Whole


def generate_points(settings: GeneratorSettings) -> Iterator[pa.Table]:
    """Yield tables of metric points (:data:`penstock.telemetry.POINTS`), one for each file."""
    return cut(_deliveries(settings), settings.rows_per_file)


def _deliveries(settings: GeneratorSettings) -> Iterator[pa.RecordBatch]:
    """Yield the points in the order in which they arrive: late ones with a later minute."""
    if not settings.points:
        return
    rng = np.random.Generator(np.random.SFC64([settings.seed, 3]))
    most = settings.lateness * 1e9 / _MINUTE_NS
    held: dict[int, list[pa.RecordBatch]] = {}
    for minute, batch in enumerate(_minutes(settings, rng)):
        is_late = rng.random(batch.num_rows) < settings.late
        yield batch.filter(pa.array(~is_late))
        yield from held.pop(minute, [])
        if is_late.any():
            due = minute + max(1, int(most ** rng.random()))
            held.setdefault(due, []).append(batch.filter(pa.array(is_late)))
    for due in sorted(held):
        yield from held[due]


def _minutes(settings: GeneratorSettings, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
    """Yield the points of each minute, as many as are asked for."""
    series = _series(settings)
    count = len(series.level)
    ticks = -(-settings.points // count)
    totals = _Totals(
        series.start_ns.copy(),
        series.level * 5.0,
        np.outer(series.level * 5.0, _SHARES).astype(np.int64),
    )
    row = np.arange(settings.points)
    for minute in range(settings.minutes):
        begin = settings.start_ns + minute * _MINUTE_NS
        _restart(series, totals, minute, begin)
        readings = _read(rng, series, totals, begin, ticks)
        yield _batch(series, readings, row % count, row // count)


def _series(settings: GeneratorSettings) -> _Series:
    world = build_world(settings)
    count = min(settings.points, len(_METRICS) * len(world.instances))
    metric = np.arange(count) % len(_METRICS)
    instance = np.arange(count) // len(_METRICS)
    later = max(settings.minutes - 1, 1)
    restarts = (instance % _RESTARTED == 0) & (settings.minutes > 1)
    hours = np.where(instance % 2, 3 * 60, 2)  # minutes that the process has been up
    histogram = _of(metric, [m.kind == "histogram" for m in _METRICS])
    cumulative = _of(metric, [m.temporality is Temporality.CUMULATIVE for m in _METRICS])
    return _Series(
        columns=_columns(world, metric, instance),
        level=np.array([m.level for m in _METRICS])[metric],
        is_delta=_of(metric, [m.temporality is Temporality.DELTA for m in _METRICS]),
        is_total=cumulative & (histogram | _of(metric, [m.monotonic for m in _METRICS])),
        is_histogram=histogram,
        forgets=_of(metric, [m.forgets for m in _METRICS]),
        start_ns=settings.start_ns - hours * _MINUTE_NS,
        restart=np.where(restarts, 1 + (5 * instance + 2) % later, _NEVER),
    )


def _of(metric: Whole, values: list[bool]) -> Flags:
    return np.array(values)[metric]


def _columns(world: World, metric: Whole, instance: Whole) -> dict[str, pa.Array]:
    """Return the columns that are the same for all points of a series."""
    of_metrics = {
        "metric_name": [m.name for m in _METRICS],
        "unit": [m.unit for m in _METRICS],
        "kind": [m.kind for m in _METRICS],
        "temporality": [m.temporality for m in _METRICS],
        "monotonic": [m.monotonic for m in _METRICS],
        "attributes": [list(m.tags) for m in _METRICS],
        "scope_name": ["io.opentelemetry.runtime"] * len(_METRICS),
    }
    metrics, instances = pa.array(metric), pa.array(instance)
    services = pa.array([service.name for service in world.services])
    return {
        "service_name": services.take(pa.array(instance // world.per_service)),
        "service_instance": pa.array(world.instances).take(instances),
        "resource_attributes": resource_maps(world).take(instances),
        **{
            name: pa.array(values, POINTS.field(name).type).take(metrics)
            for name, values in of_metrics.items()
        },
    }


def _restart(series: _Series, totals: _Totals, minute: int, begin: int) -> None:
    anew = series.restart == minute
    totals.value[anew] = 0.0
    totals.buckets[anew] = 0
    totals.start_ns[anew & ~series.forgets] = begin


def _read(
    rng: np.random.Generator, series: _Series, totals: _Totals, begin: int, ticks: int
) -> _Readings:
    """Return one minute's readings of all series, and move the totals on."""
    count = len(series.level)
    interval = _MINUTE_NS // ticks
    # Instances do not report at the same moment.
    phase = np.arange(count) * 7_919 % 1_000 * (interval // 1_000)
    time = begin + np.arange(ticks)[:, None] * interval + phase
    moved = series.level * np.exp(0.2 * rng.standard_normal((ticks, count)))
    grown = rng.poisson(series.level / ticks, (ticks, count))
    filled = rng.multinomial(np.where(series.is_histogram, grown, 0), _SHARES)
    value = np.where(series.is_delta, grown, moved)
    value = np.where(series.is_total, totals.value + np.cumsum(grown, axis=0), value)
    running = totals.buckets + np.cumsum(filled, axis=0)
    buckets = np.where(series.is_total[:, None], running, filled)
    totals.value, totals.buckets = totals.value + grown.sum(axis=0), running[-1]
    start = np.where(series.is_delta, time - interval, totals.start_ns)
    return _Readings(time, start, value, buckets)


def _batch(series: _Series, readings: _Readings, number: Whole, tick: Whole) -> pa.RecordBatch:
    index = pa.array(number)
    columns = {name: column.take(index) for name, column in series.columns.items()}
    is_histogram = series.is_histogram[number]
    is_gauge = ~(series.is_delta | series.is_total)[number]
    columns["time_ns"] = pa.array(readings.time_ns[tick, number])
    columns["start_ns"] = pa.array(readings.start_ns[tick, number], mask=is_gauge)
    columns["value"] = pa.array(readings.value[tick, number], mask=is_histogram)
    columns |= _distributions(readings.buckets[tick, number], is_histogram, series.is_total[number])
    return pa.RecordBatch.from_arrays([columns[name] for name in POINTS.names], schema=POINTS)


def _distributions(buckets: Whole, is_histogram: Flags, is_total: Flags) -> dict[str, pa.Array]:
    """Return the columns of histograms, null for everything else."""
    count = buckets.sum(axis=1)
    filled = buckets > 0
    low = _MIDDLES[filled.argmax(axis=1)]
    high = _MIDDLES[len(_MIDDLES) - 1 - filled[:, ::-1].argmax(axis=1)]
    no_extremes = ~is_histogram | is_total | (count == 0)
    width = buckets.shape[1]
    offsets = pa.array(np.arange(0, buckets.size + 1, width, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, pa.array(buckets.ravel()))
    row = pa.array(np.arange(len(buckets)), mask=~is_histogram)
    bounds = pa.array([_BOUNDS], pa.list_(pa.float64()))
    zero = pa.array(np.zeros(len(buckets), dtype=np.int64), mask=~is_histogram)
    return {
        "count": pa.array(count, mask=~is_histogram),
        "sum": pa.array(buckets @ _MIDDLES, mask=~is_histogram),
        "min": pa.array(low, mask=no_extremes),
        "max": pa.array(high, mask=no_extremes),
        "bounds": bounds.take(zero),
        "bucket_counts": lists.take(row),
    }
