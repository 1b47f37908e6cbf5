"""The oracle's meters: what a point becomes, and how cumulative readings rise and restart."""

import math
from typing import Any

import pytest

from penstock.telemetry import Temporality
from tests.oracle.buckets import Horizon
from tests.oracle.meters import (
    Counter,
    Distribution,
    Gauge,
    Meter,
    compute_meters,
    entity_of,
    left_out,
)
from tests.oracle.samples import MINUTE, START, point

SHOP = ("shop", "shop-1", "")
SECOND = 1_000_000_000
CUMULATIVE = int(Temporality.CUMULATIVE)


def only(found: dict[Any, Meter], granularity: str = "minute") -> dict[int, Meter]:
    """Return the values of the only meter by minutes since MINUTE, or by bucket."""
    values = {key[3]: value for key, value in found.items() if key[1] == granularity}
    base = MINUTE if granularity == "minute" else 0
    return {bucket - base: value for bucket, value in values.items()}


def reading(
    minute: float, value: float, started: float | None = -1, **columns: object
) -> dict[str, Any]:
    """Return a cumulative reading of a series that *started* so many minutes after START."""
    start = None if started is None else START + int(started * 60) * SECOND
    row = point("calls", "sum", seconds=minute * 60, value=value, temporality=CUMULATIVE)
    return row | {"start_ns": start} | columns


def rises(*readings: dict[str, Any]) -> dict[int, Meter]:
    """Return by how much each minute rose; the order of the readings must not matter."""
    found = only(compute_meters(readings))
    assert only(compute_meters(readings[::-1])) == found
    return found


def test_the_entity_is_service_instance_and_sorted_attributes() -> None:
    """Two points with the same attributes in another order are of one series."""
    row = point(attributes=[("b", "2"), ("a", "1")])
    assert entity_of(row) == ("shop", "shop-1", "a=1,b=2")
    assert entity_of(point(attributes=None)) == SHOP


def test_a_gauge_is_its_last_value() -> None:
    """Count, sum and extremes are known too, of each granularity."""
    points = [
        point(seconds=30, value=2.0),
        point(seconds=10, value=-1.0),
        point(seconds=20, value=7.0),
        point(seconds=60, value=5.0),
    ]
    found = compute_meters(points)
    gauge = found["queue.size", "minute", SHOP, MINUTE]
    assert isinstance(gauge, Gauge)
    assert (gauge, gauge.count, gauge.sum, gauge.low, gauge.high) == (2.0, 3, 8.0, -1.0, 7.0)
    hour = found["queue.size", "hour", SHOP, MINUTE // 60]
    assert isinstance(hour, Gauge)
    assert (hour, hour.count, hour.sum) == (5.0, 4, 13.0)


def test_of_two_gauge_values_at_once_the_larger_is_the_last() -> None:
    """So the order in which they arrive does not matter."""
    points = [point(value=1.0), point(value=3.0), point(value=2.0)]
    assert list(compute_meters(points).values()) == [3.0] * 3


def test_a_cumulative_sum_that_may_fall_is_a_gauge() -> None:
    """An up-down counter reports a level."""
    points = [
        point("level", "sum", value=9.0, temporality=CUMULATIVE, monotonic=False),
        point("level", "sum", seconds=1, value=4.0, temporality=CUMULATIVE, monotonic=False),
    ]
    (gauge,) = only(compute_meters(points)).values()
    assert isinstance(gauge, Gauge)
    assert gauge == 4.0


@pytest.mark.parametrize("monotonic", [True, False])
def test_delta_sums_add_up(*, monotonic: bool) -> None:
    """Whether they may fall or not."""
    points = [
        point("calls", "sum", value=value, seconds=second, monotonic=monotonic)
        for value, second in ((1.5, 0), (2.0, 59), (4.0, 60))
    ]
    found = compute_meters(points)
    assert only(found) == {0: 3.5, 1: 4.0}
    assert only(found, "hour") == {MINUTE // 60: 7.5}
    assert all(isinstance(value, Counter) for value in found.values())


def test_a_cumulative_counter_rises_by_differences() -> None:
    """The increase belongs to the minute of the later reading."""
    assert rises(reading(0, 10), reading(1, 15), reading(1.5, 16), reading(3, 16)) == {
        0: 10.0,
        1: 6.0,
        3: 0.0,
    }


@pytest.mark.parametrize(
    ("started", "first"), [(-5, 10.0), (-5.1, 0.0), (None, 0.0), (0, 10.0), (-600, 0.0)]
)
def test_the_first_reading_counts_if_the_series_is_young(
    started: float | None, first: float
) -> None:
    """Up to five minutes after its start; without a start it is unknown how old it is."""
    assert rises(reading(0, 10, started), reading(1, 12, started)) == {0: first, 1: 2.0}


def test_a_start_of_zero_is_unknown() -> None:
    """It is neither young nor another start."""
    unknown = {"start_ns": 0}
    assert rises(reading(0, 10, **unknown), reading(1, 12, -600), reading(2, 15, **unknown)) == {
        0: 0.0,
        1: 2.0,
        2: 3.0,
    }


def test_a_smaller_reading_is_a_restart() -> None:
    """It counts in full, and what follows is compared with it."""
    assert rises(reading(0, 10), reading(1, 4), reading(2, 5)) == {0: 10.0, 1: 4.0, 2: 1.0}


def test_another_start_is_a_restart() -> None:
    """Also if the reading is larger than the one before."""
    assert rises(reading(0, 10), reading(1, 25, 0.5), reading(2, 27, 0.5)) == {
        0: 10.0,
        1: 25.0,
        2: 2.0,
    }


def test_of_two_readings_at_once_the_larger_stands() -> None:
    """The smaller one is no restart."""
    assert rises(reading(0, 10), reading(1, 15), reading(1, 12), reading(2, 16)) == {
        0: 10.0,
        1: 5.0,
        2: 1.0,
    }


def test_a_late_reading_moves_part_of_an_increase() -> None:
    """The sum stays."""
    on_time = [reading(0, 10), reading(4, 30)]
    assert rises(*on_time) == {0: 10.0, 4: 20.0}
    assert rises(*on_time, reading(2, 25)) == {0: 10.0, 2: 15.0, 4: 5.0}


def test_series_are_compared_within_themselves() -> None:
    """Another instance or another attribute is another series."""
    other = {"service_instance": "shop-2"}
    tagged = {"attributes": [("a", "1")]}
    found = compute_meters(
        [
            reading(0, 10),
            reading(0, 3) | other,
            reading(1, 11),
            reading(1, 5) | other,
            reading(1, 1) | tagged,
        ]
    )
    assert found["calls", "minute", SHOP, MINUTE + 1] == 1.0
    assert found["calls", "minute", ("shop", "shop-2", ""), MINUTE + 1] == 2.0
    assert found["calls", "minute", ("shop", "shop-1", "a=1"), MINUTE + 1] == 1.0


def histogram(seconds: float, counts: list[int], **columns: object) -> dict[str, Any]:
    """Return a point of a histogram with the bounds 1 and 5, whose values are all about 2."""
    row = point("took", "histogram", seconds=seconds, bounds=[1.0, 5.0], bucket_counts=counts)
    return row | {"count": sum(counts), "sum": 2.0 * sum(counts)} | columns


def test_delta_histograms_add_up() -> None:
    """The last bucket has no upper bound; extremes are known if the points have them."""
    points = [
        histogram(0, [1, 2, 0], min=0.5, max=3.0),
        histogram(1, [0, 1, 1], min=2.0, max=9.0),
        histogram(2, [1, 0, 0]),
    ]
    (found,) = only(compute_meters(points)).values()
    assert isinstance(found, Distribution)
    assert found == {1.0: 2, 5.0: 3, math.inf: 1}
    assert (found.count, found.sum, found.low, found.high) == (6, 12.0, 0.5, 9.0)


def test_cumulative_histograms_rise() -> None:
    """Count, sum and each bucket by themselves; extremes of a whole life say nothing."""
    settings: dict[str, object] = {"temporality": CUMULATIVE, "start_ns": START - 60 * SECOND}
    points = [
        histogram(0, [1, 2, 0], min=0.5, max=3.0, **settings),
        histogram(60, [1, 4, 1], min=0.5, max=9.0, **settings),
    ]
    first, second = only(compute_meters(points)).values()
    assert isinstance(first, Distribution)
    assert isinstance(second, Distribution)
    assert first == {1.0: 1, 5.0: 2, math.inf: 0}
    assert second == {1.0: 0, 5.0: 2, math.inf: 1}
    assert (second.count, second.sum, second.low, second.high) == (3, 6.0, None, None)


def test_a_cumulative_histogram_that_restarts_counts_in_full() -> None:
    """Another start is one for all of its parts, also for those that are larger."""
    points = [
        histogram(0, [1, 2, 0], temporality=CUMULATIVE, start_ns=START - SECOND),
        histogram(60, [3, 2, 1], temporality=CUMULATIVE, start_ns=START + SECOND),
    ]
    _, second = only(compute_meters(points)).values()
    assert isinstance(second, Distribution)
    assert second == {1.0: 3, 5.0: 2, math.inf: 1}
    assert (second.count, second.sum) == (6, 12.0)


def test_a_histogram_without_buckets_is_count_and_sum() -> None:
    """OTLP allows it, and a sum may be unknown as well."""
    bare: dict[str, object] = {"bounds": None, "bucket_counts": None, "count": 3}
    (found,) = only(compute_meters([histogram(0, [], **bare, sum=None)])).values()
    assert isinstance(found, Distribution)
    assert not found
    assert (found.count, found.sum) == (3, 0.0)


def test_what_becomes_nothing_is_counted_by_cause() -> None:
    """Unknown kinds, points without a value, and sums of unspecified temporality."""
    unspecified = int(Temporality.UNSPECIFIED)
    points = [
        point(value=1.0),
        point(),
        point("calls", "sum"),
        point("took", "histogram"),
        point("calls", "sum", value=1.0, temporality=unspecified),
        histogram(0, [1, 0, 0], temporality=unspecified, metric_name="other"),
        point("s", "summary", value=1.0),
    ]
    assert left_out(points) == {"no_value": 3, "temporality": 2, "kind": 1}
    assert {name for name, *_ in compute_meters(points)} == {"queue.size"}


def test_a_name_is_one_kind_of_meter() -> None:
    """The store has one function for a name; data that breaks this proves nothing."""
    with pytest.raises(ValueError, match=r"'calls' is a gauge and a counter"):
        compute_meters([point("calls", "sum", value=1.0), point("calls", value=1.0)])


def test_meters_have_a_horizon_and_room_too() -> None:
    """As metrics have."""
    points = [point(value=1.0), point(value=2.0, service_name="web")]
    found = compute_meters(points, admitted={"Meter": {SHOP}})
    assert found["queue.size", "minute", ("(other)",) * 3, MINUTE] == 2.0
    found = compute_meters(points, horizon=Horizon(MINUTE * 60.0 + 8 * 86_400))
    assert {granularity for _, granularity, _, _ in found} == {"hour", "day"}
