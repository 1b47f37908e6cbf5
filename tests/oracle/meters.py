"""Meters from raw metric points: gauges, counters and distributions, all points at once."""

import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from penstock.telemetry import Temporality
from tests.oracle.buckets import (
    NANOSECONDS,
    Admitted,
    Entity,
    Horizon,
    Key,
    admit,
    counting_buckets,
)

FIRST_COUNTS = 5 * NANOSECONDS  # how old a series may be for its first reading to count in full

Slot: TypeAlias = str | float  # "value", "count", "sum", "low", "high" or a bucket's upper bound
Point: TypeAlias = dict[str, Any]


class Counter(float):
    """By how much a counter rose."""


class Gauge(float):
    """The last value of a gauge, with what else is known of the others."""

    count: int
    sum: float
    low: float | None
    high: float | None

    @classmethod
    def of(
        cls, last: float, count: int, total: float, extremes: tuple[float | None, float | None]
    ) -> "Gauge":
        """Make a gauge of its last value and the figures of all its values."""
        gauge = cls(last)
        gauge.count, gauge.sum = count, total
        gauge.low, gauge.high = extremes
        return gauge


class Distribution(dict[float, int]):
    """Counts by upper bound; a bound that is absent counts nothing. The extremes may be unknown."""

    count: int = 0
    sum: float = 0.0
    low: float | None = None
    high: float | None = None


Meter: TypeAlias = Gauge | Counter | Distribution


class _Piece(NamedTuple):
    """What one point adds to a slot of its minute."""

    name: str
    function: str
    entity: Entity
    time: int
    slot: Slot
    amount: float


class _Reading(NamedTuple):
    """One reading of a cumulative series."""

    time: int
    amount: float
    start: int


class _Series(NamedTuple):
    """What readings are compared within."""

    name: str
    function: str
    entity: Entity
    slot: Slot


def compute_meters(
    points: Iterable[Point],
    *,
    horizon: Horizon | None = None,
    admitted: Admitted | None = None,
) -> dict[Key, Meter]:
    """Return every value of the meters in *points*, the rows of a POINTS table."""
    functions: dict[str, str] = {}
    gathered: dict[Key, list[_Piece]] = defaultdict(list)
    for piece in _pieces(points):
        if functions.setdefault(piece.name, piece.function) != piece.function:
            raise ValueError(f"{piece.name!r} is a {piece.function} and a {functions[piece.name]}")
        entity = admit("Meter", piece.entity, admitted)
        for granularity, bucket in counting_buckets(piece.time // NANOSECONDS, horizon):
            gathered[piece.name, granularity, entity, bucket].append(piece)
    return {key: _FINALS[functions[key[0]]](pieces) for key, pieces in gathered.items()}


def left_out(points: Iterable[Point]) -> dict[str, int]:
    """Return how many points become nothing, by cause."""
    return dict(Tally(cause for point in points if (cause := _flaw(point))))


def entity_of(point: Point) -> Entity:
    """Return the entity that a point belongs to."""
    attributes = sorted(dict(point["attributes"] or ()).items())
    text = ",".join(f"{key}={value}" for key, value in attributes)
    return (point["service_name"], point["service_instance"], text)


def _flaw(point: Point) -> str | None:
    if point["kind"] not in {"gauge", "sum", "histogram"}:
        return "kind"
    if point["count" if point["kind"] == "histogram" else "value"] is None:
        return "no_value"
    is_timed = point["kind"] != "gauge"
    if is_timed and point["temporality"] not in {Temporality.DELTA, Temporality.CUMULATIVE}:
        return "temporality"
    return None


def _pieces(points: Iterable[Point]) -> Iterator[_Piece]:
    """Yield what every minute gets: single points as they are, cumulative ones as increases."""
    cumulative: dict[_Series, list[_Reading]] = defaultdict(list)
    for point in points:
        if _flaw(point):
            continue
        name, entity, time = point["metric_name"], entity_of(point), point["time_ns"]
        function, is_cumulative = _function(point)
        for slot, amount in _slots(point):
            if is_cumulative and slot not in {"low", "high"}:
                series = _Series(name, function, entity, slot)
                cumulative[series].append(_Reading(time, amount, point["start_ns"] or 0))
            elif not is_cumulative:
                yield _Piece(name, function, entity, time, slot, amount)
    for (name, function, entity, slot), readings in cumulative.items():
        for time, amount in _increases(readings):
            yield _Piece(name, function, entity, time, slot, amount)


def _function(point: Point) -> tuple[str, bool]:
    """Return what a point becomes, and whether it is a reading to be compared with others."""
    is_cumulative = point["temporality"] == Temporality.CUMULATIVE
    if point["kind"] == "histogram":
        return "distribution", is_cumulative
    if point["kind"] == "gauge" or (is_cumulative and not point["monotonic"]):
        return "gauge", False
    return "counter", is_cumulative


def _slots(point: Point) -> Iterator[tuple[Slot, float]]:
    if point["kind"] != "histogram":
        yield "value", point["value"]
        return
    yield "count", point["count"]
    yield "sum", point["sum"] or 0.0
    if point["min"] is not None:
        yield "low", point["min"]
    if point["max"] is not None:
        yield "high", point["max"]
    bounds = [*(point["bounds"] or ()), math.inf]
    # Without buckets a histogram is count and sum only.
    yield from zip(bounds, point["bucket_counts"] or (), strict=False)


def _increases(readings: Iterable[_Reading]) -> Iterator[tuple[int, float]]:
    """Yield time and amount; a difference comes as two, so that no digit is lost before the sum."""
    standing: dict[int, _Reading] = {}
    for reading in readings:
        standing[reading.time] = max(reading, standing.get(reading.time, reading))
    before: _Reading | None = None
    for time in sorted(standing):
        now = standing[time]
        if before is None:
            yield time, now.amount if time - now.start <= FIRST_COUNTS else 0
        else:
            yield time, now.amount
            if not _has_restarted(before, now):
                yield time, -before.amount
        before = now


def _has_restarted(before: _Reading, now: _Reading) -> bool:
    is_other_start = before.start != now.start and 0 not in {before.start, now.start}
    return is_other_start or now.amount < before.amount


def _gauge(pieces: list[_Piece]) -> Gauge:
    values = [piece.amount for piece in pieces]
    last = max(pieces, key=lambda piece: (piece.time, piece.amount))
    return Gauge.of(last.amount, len(values), math.fsum(values), (min(values), max(values)))


def _counter(pieces: list[_Piece]) -> Counter:
    return Counter(math.fsum(piece.amount for piece in pieces))


def _distribution(pieces: list[_Piece]) -> Distribution:
    by_slot: dict[Slot, list[float]] = defaultdict(list)
    for piece in pieces:
        by_slot[piece.slot].append(piece.amount)
    bounds = sorted(slot for slot in by_slot if not isinstance(slot, str))
    distribution = Distribution({bound: int(sum(by_slot[bound])) for bound in bounds})
    distribution.count = int(sum(by_slot["count"]))
    distribution.sum = math.fsum(by_slot["sum"])
    distribution.low = min(by_slot["low"], default=None)
    distribution.high = max(by_slot["high"], default=None)
    return distribution


_FINALS: dict[str, Callable[[list[_Piece]], Meter]] = {
    "gauge": _gauge,
    "counter": _counter,
    "distribution": _distribution,
}
