"""Generated metric points: all kinds of series, with the faults of real ones."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest

from penstock.generate import generate_points
from penstock.telemetry import POINTS, Temporality
from tests.unit.generate.rig import MINUTE_NS, small, whole

Point: TypeAlias = dict[str, Any]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Return ten minutes of points."""
    return whole(generate_points, small())


def series_of(table: pa.Table) -> dict[tuple[object, ...], list[Point]]:
    """Return the points of each series in the order of time."""
    found: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in sorted(table.to_pylist(), key=lambda point: int(point["time_ns"])):
        tags = tuple(point["attributes"])
        found[point["metric_name"], point["service_instance"], tags].append(point)
    return found


def test_points_have_exactly_the_schema(table: pa.Table) -> None:
    """Names, types, order and nullability are those of landed points, and the values are valid."""
    assert table.schema.equals(POINTS, check_metadata=True)
    table.validate(full=True)
    required = [field.name for field in POINTS if not field.nullable]
    assert [name for name in required if table[name].null_count] == []


def test_there_are_as_many_points_in_each_minute_as_asked_for(table: pa.Table) -> None:
    """Whether that is more or fewer than there are series."""
    for asked in (3, 200, 777):
        points = table if asked == 200 else whole(generate_points, small(points=asked))
        _, found = np.unique(points["time_ns"].to_numpy() // MINUTE_NS, return_counts=True)
        assert found.tolist() == [asked] * 10


def test_equal_settings_make_equal_points_however_they_are_cut(table: pa.Table) -> None:
    """Another seed makes others."""
    assert whole(generate_points, replace(small(), rows_per_file=77)).equals(table)
    assert whole(generate_points, small(seed=2))["value"] != table["value"]


def test_every_kind_of_series_occurs(table: pa.Table) -> None:
    """Gauges, sums that go up and down, and sums and histograms of both temporalities."""
    columns = ["kind", "temporality", "monotonic"]
    kinds = {tuple(row.values()) for row in table.select(columns).to_pylist()}
    assert kinds == {
        ("gauge", Temporality.UNSPECIFIED, False),
        ("sum", Temporality.DELTA, True),
        ("sum", Temporality.CUMULATIVE, True),
        ("sum", Temporality.CUMULATIVE, False),
        ("histogram", Temporality.DELTA, False),
        ("histogram", Temporality.CUMULATIVE, False),
    }


def test_some_growing_sums_restart_and_the_rest_only_grow(table: pa.Table) -> None:
    """A restart shows as a new start time, or only as a value that falls; both occur."""
    restarts = {"new start": 0, "same start": 0, "never": 0}
    for points in series_of(table).values():
        if points[0]["temporality"] == Temporality.CUMULATIVE and points[0]["monotonic"]:
            falls = [
                "same start" if later["start_ns"] == earlier["start_ns"] else "new start"
                for earlier, later in pairwise(points)
                if later["value"] < earlier["value"]
            ]
            assert len(falls) <= 1
            restarts[falls[0] if falls else "never"] += 1
            assert all(point["start_ns"] <= point["time_ns"] for point in points)
    assert all(restarts.values()), restarts


def test_histograms_add_up(table: pa.Table) -> None:
    """Buckets are one more than bounds and sum up to the count; extremes include the mean."""
    histograms = [point for point in table.to_pylist() if point["kind"] == "histogram"]
    for point in histograms:
        assert len(point["bucket_counts"]) == len(point["bounds"]) + 1
        assert sum(point["bucket_counts"]) == point["count"]
        assert point["value"] is None
        if point["min"] is not None:
            assert point["min"] <= point["sum"] / point["count"] <= point["max"]
    assert any(point["min"] is not None for point in histograms)


def test_cumulative_histograms_grow_bucket_by_bucket_until_they_restart(table: pa.Table) -> None:
    """With the same start time, no bucket ever falls; some series have a second start time."""
    starts = set()
    for points in series_of(table).values():
        if points[0]["kind"] == "histogram" and points[0]["temporality"] == Temporality.CUMULATIVE:
            starts.add(len({point["start_ns"] for point in points}))
            for earlier, later in pairwise(points):
                if earlier["start_ns"] == later["start_ns"]:
                    pairs = zip(earlier["bucket_counts"], later["bucket_counts"], strict=True)
                    assert all(before <= after for before, after in pairs)
                else:
                    assert later["count"] < earlier["count"]
    assert starts == {1, 2}


def test_late_points_come_after_newer_ones() -> None:
    """They keep their time; without late ones a minute never follows a newer one."""
    for late in (0.0, 0.1):
        minute = whole(generate_points, small(late=late))["time_ns"].to_numpy() // MINUTE_NS
        is_late = minute < np.maximum.accumulate(minute)
        assert is_late.mean() == pytest.approx(late * 0.9, abs=0.03)  # the last minute has none
        # They come with the minutes that follow, not all together when everything is over.
        assert is_late[: len(minute) // 2].any() == (late > 0)


def test_no_points_are_no_tables() -> None:
    """Nothing to make is not an error."""
    assert list(generate_points(small(points=0))) == []
