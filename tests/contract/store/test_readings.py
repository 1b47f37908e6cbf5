"""Readings of cumulative series become increases, whatever order they arrive in."""

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

from penstock.store.contract import MetricStore, Retention
from tests.contract.store import rig

MINUTE = rig.MINUTE_NS
FRESH = 5 * MINUTE
Reading = tuple[int, int, str, int, int, float]
Sums = dict[tuple[int, int, int, str], float]


def increases(readings: Iterable[Reading]) -> Sums:
    """Compute the increase per minute from all readings at once, in plain Python."""
    standing: dict[tuple[int, int, str, int], tuple[float, int]] = {}
    for metric, entity, slot, time, start, value in readings:
        place = (metric, entity, slot, time)
        standing[place] = max(standing.get(place, (value, start)), (value, start))
    sums: Sums = defaultdict(float)
    before: tuple[int, int, str, float, int] | None = None
    for (metric, entity, slot, time), (value, start) in sorted(standing.items()):
        if before is None or before[:3] != (metric, entity, slot):
            increase = value if start and time - start <= FRESH else 0.0
        elif value < before[3] or (start != before[4] and start and before[4]):
            increase = value
        else:
            increase = value - before[3]
        sums[(metric, entity, time // MINUTE, slot)] += increase
        before = (metric, entity, slot, value, start)
    return dict(sums)


def add(store: MetricStore, *readings: Reading) -> Sums:
    """Add readings in a transaction of their own; return the changes by minute."""
    with store.begin(rig.HOLDER) as transaction:
        changes = transaction.read_deltas(rig.readings(*readings))
    return {
        (row["metric"], row["entity"], row["bucket"], row["slot"]): row["delta"]
        for row in changes.to_pylist()
    }


def at(minute: float, value: float, start: float = 0.0) -> Reading:
    """Return a reading of the one series that most tests are about."""
    return (1, 2, "", int(minute * MINUTE), int(start * MINUTE), value)


def by_minute(sums: Sums) -> dict[int, float]:
    """Return the sums of that series by minute."""
    return {bucket: value for (_, _, bucket, _), value in sums.items()}


def test_the_first_reading_of_an_old_series_counts_as_nothing(store: MetricStore) -> None:
    """What was counted before we looked is not ours."""
    assert by_minute(add(store, at(100, 50.0, start=94.9))) == {100: 0.0}


def test_the_first_reading_of_a_fresh_series_counts_in_full(store: MetricStore) -> None:
    """A series that began at most five minutes ago has all its increase since then."""
    assert by_minute(add(store, at(100, 50.0, start=95))) == {100: 50.0}


def test_the_first_reading_of_an_unknown_start_counts_as_nothing(store: MetricStore) -> None:
    """A sender that does not say when it began may have begun long ago."""
    assert by_minute(add(store, at(3, 50.0))) == {3: 0.0}


def test_later_readings_count_as_differences(store: MetricStore) -> None:
    """Also in one minute, and also without any increase."""
    add(store, at(100, 50.0))
    assert by_minute(add(store, at(101, 60.0), at(101.5, 61.0), at(102, 61.0))) == {
        101: 11.0,
        102: 0.0,
    }


@pytest.mark.parametrize(
    ("reading", "increase"),
    [
        (at(101, 20.0), 20.0),
        (at(101, 70.0, start=99), 70.0),
        (at(101, 70.0, start=50), 20.0),
        (at(101, 70.0), 20.0),
    ],
    ids=["smaller", "another start", "the same start", "no start"],
)
def test_a_sender_that_restarted_counts_from_nothing(
    store: MetricStore, reading: Reading, increase: float
) -> None:
    """A smaller value or another start says that the counter began anew."""
    add(store, at(100, 50.0, start=50))
    assert by_minute(add(store, reading)) == {101: increase}


def test_of_two_readings_at_one_time_the_larger_stands(store: MetricStore) -> None:
    """In one batch or in two, in any order."""
    add(store, at(100, 10.0))
    assert by_minute(add(store, at(101, 15.0), at(101, 17.0), at(101, 12.0))) == {101: 7.0}
    assert by_minute(add(store, at(101, 16.0))) == {101: 0.0}
    assert by_minute(add(store, at(101, 18.0))) == {101: 1.0}
    assert by_minute(add(store, at(102, 20.0))) == {102: 2.0}


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_the_larger_reading_brings_its_own_start(store: MetricStore, *, is_one_batch: bool) -> None:
    """A smaller one at the same time does not make the next one look like a restart."""
    add(store, at(100, 10.0, start=50))
    larger, smaller = at(101, 20.0, start=50), at(101, 15.0, start=99)
    if is_one_batch:
        add(store, larger, smaller)
    else:
        add(store, larger)
        add(store, smaller)
    assert by_minute(add(store, at(102, 25.0, start=50))) == {102: 5.0}


def test_a_late_reading_moves_part_of_an_increase(store: MetricStore) -> None:
    """The sums stay exact: what the earlier minute gains, the later one loses."""
    add(store, at(100, 10.0), at(104, 50.0))
    assert by_minute(add(store, at(102, 30.0))) == {102: 20.0, 104: -20.0}


def test_a_late_reading_can_become_the_first(store: MetricStore) -> None:
    """What counted as first becomes a difference."""
    add(store, at(104, 50.0, start=100))
    assert by_minute(add(store, at(102, 30.0, start=100))) == {102: 30.0, 104: -30.0}


def test_series_are_apart(store: MetricStore) -> None:
    """Metric, entity and slot each make another series."""
    rows = [(m, e, s, 100 * MINUTE, 99 * MINUTE, 1.0) for m in (1, 2) for e in (1, 2) for s in "ab"]
    assert add(store, *rows) == increases(rows)


def test_what_is_not_a_number_is_left_out(store: MetricStore) -> None:
    """A reading that nothing can be compared with does not break the series."""
    add(store, at(100, 10.0))
    assert add(store, at(101, float("nan"))) == {}
    assert by_minute(add(store, at(102, 12.0))) == {102: 2.0}


def random_readings(source: random.Random, metric: int) -> list[Reading]:
    """Return readings of a few series with restarts, equal times and unknown starts."""
    readings = []
    for entity in range(2):
        for slot in ("", "count"):
            value, start = source.randrange(9), source.choice([0, 1, 40])
            for _ in range(source.randrange(1, 12)):
                time = source.randrange(20) * MINUTE // 2 + MINUTE
                if source.random() < 0.2:
                    start = source.choice([0, source.randrange(1, 40)])
                value = (
                    source.randrange(9) if source.random() < 0.2 else value + source.randrange(9)
                )
                readings.append((metric, entity, slot, time, start * MINUTE, float(value)))
    return readings


def test_any_batches_in_any_order_give_the_same_sums(store: MetricStore) -> None:
    """The changes of all batches add up to what all readings at once give, minute by minute."""
    for seed in range(25):
        source = random.Random(seed)
        readings = random_readings(source, metric=seed)
        expected = increases(readings)
        readings += source.sample(readings, len(readings) // 3)  # some are repeated
        source.shuffle(readings)
        total: Sums = defaultdict(float)
        while readings:
            size = source.randrange(1, 15)
            for key, change in add(store, *readings[:size]).items():
                total[key] += change
            readings = readings[size:]
        assert total == expected, f"seed {seed}"


def test_a_reading_whose_predecessor_has_expired_changes_nothing(
    store: MetricStore, wall: rig.Wall
) -> None:
    """Where the readings before have been deleted, an increase stays where it was counted."""
    now = wall.seconds = 100 * rig.DAY
    days = int(now // 60)
    first, second, third = (days - days_ago * 1440 for days_ago in (6, 5, 3))
    added = add(store, at(first, 100.0), at(second, 200.0), at(third, 300.0))
    assert by_minute(added) == {first: 0.0, second: 100.0, third: 100.0}
    assert store.expire(now, Retention(records=3))["reading"] == 2
    assert add(store, at(second - 10, 150.0), at(third - 10, 250.0), at(third, 500.0)) == {}
    assert by_minute(add(store, at(third + 10, 310.0))) == {third + 10: 10.0}
    assert by_minute(add(store, at(third + 5, 305.0))) == {third + 5: 5.0, third + 10: -5.0}
