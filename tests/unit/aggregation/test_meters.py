"""Metric points that are not as they should be, and how attributes become a name."""

import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.aggregation.meters import attribute_texts
from penstock.telemetry import POINTS, Temporality
from tests.oracle.comparing import differences
from tests.oracle.meters import compute_meters
from tests.oracle.reading import read_store
from tests.oracle.samples import START, point
from tests.unit.aggregation.rig import Pipeline

CUMULATIVE = int(Temporality.CUMULATIVE)
UNSPECIFIED = int(Temporality.UNSPECIFIED)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Return a pipeline without rules."""
    pipeline = Pipeline(tmp_path / "store.db", ())
    yield pipeline
    pipeline.store.close()


def texts(*maps: list[tuple[str, str | None]] | None) -> list[str]:
    """Return what attributes are called."""
    column = pa.array(maps, POINTS.field("attributes").type)
    found: list[str] = attribute_texts(column).to_pylist()
    return found


def test_attributes_are_sorted_by_their_keys() -> None:
    """Also where one key is the beginning of another: the sign "=" takes no part."""
    assert texts([("a.b", "1"), ("a", "2"), ("A", "3"), ("a-b", "4")]) == ["A=3,a=2,a-b=4,a.b=1"]


def test_no_attributes_have_no_name() -> None:
    """An empty map, none at all, and a value that is null."""
    assert texts([], None, [("a", None)], [("a", "")]) == ["", "", "a=", "a="]


def test_attributes_of_a_part_of_a_column() -> None:
    """A column that was cut out of a larger one is read from its own first row on."""
    maps = [[("a", "1")], [("b", "2"), ("a", "3")], [], [("c", "4")]]
    column = pa.array(maps, POINTS.field("attributes").type)
    assert attribute_texts(column.slice(1, 2)).to_pylist() == ["a=3,b=2", ""]
    assert attribute_texts(column.slice(4)).to_pylist() == []


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_points_without_a_finite_value_are_left_out_and_counted(
    pipeline: Pipeline, value: float | None
) -> None:
    """Of gauges and of sums of both temporalities; the others of the batch are merged."""
    good = point("a.gauge", value=1.0)
    bad = [
        point("a.gauge", value=value, seconds=1),
        point("a.sum", "sum", value=value),
        point("a.total", "sum", value=value, temporality=CUMULATIVE),
    ]
    assert pipeline.merge(points=[good, *bad]) == {"no_value": 3}
    assert differences(compute_meters([good]), read_store(pipeline.store)) == []


def test_histograms_without_a_count_are_left_out(pipeline: Pipeline) -> None:
    """Of both temporalities."""
    bad = [point("h", "histogram"), point("i", "histogram", temporality=CUMULATIVE)]
    assert pipeline.merge(points=bad) == {"no_value": 2}
    assert read_store(pipeline.store) == {}


@pytest.mark.parametrize("temporality", [int(Temporality.DELTA), CUMULATIVE])
@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_sum_that_is_no_number_counts_as_absent(
    pipeline: Pipeline, odd: float, temporality: int
) -> None:
    """A histogram's counts are exact whatever its sum and extremes are."""
    rows = [
        point(
            "h",
            "histogram",
            temporality=temporality,
            start_ns=START,
            count=3,
            sum=odd,
            min=odd,
            max=odd,
            bounds=[1.0],
            bucket_counts=[1, 2],
        )
    ]
    assert pipeline.merge(points=rows) == {}
    expected = compute_meters([row | {"sum": None, "min": None, "max": None} for row in rows])
    assert differences(expected, read_store(pipeline.store)) == []


def test_unknown_kinds_and_temporalities_are_counted(pipeline: Pipeline) -> None:
    """Each point once, by the first cause that fits."""
    bad = [
        point("s", "summary", value=1.0),
        point("c", "sum", value=1.0, temporality=UNSPECIFIED),
        point("h", "histogram", count=1, temporality=UNSPECIFIED),
    ]
    assert pipeline.merge(points=bad) == {"kind": 1, "temporality": 2}
    assert read_store(pipeline.store) == {}


@pytest.mark.parametrize(
    ("bounds", "counts"), [([1.0], [1]), ([1.0], [1, 2, 3]), ([], [1, 2]), (None, [1, 2])]
)
def test_buckets_that_do_not_fit_are_counted(
    pipeline: Pipeline, bounds: list[float] | None, counts: list[int]
) -> None:
    """There is one bucket more than bounds, or none of either."""
    rows = [
        point("h", "histogram", count=3, bounds=bounds, bucket_counts=counts, temporality=kind)
        for kind in (int(Temporality.DELTA), CUMULATIVE)
    ]
    assert pipeline.merge(points=rows) == {"buckets": 2}


def test_a_histogram_without_buckets_has_count_and_sum(pipeline: Pipeline) -> None:
    """Null lists and empty ones are the same."""
    rows = [
        point("h", "histogram", count=3, sum=1.5),
        point("h", "histogram", count=4, sum=0.5, bounds=[], bucket_counts=[], seconds=1),
    ]
    assert pipeline.merge(points=rows) == {}
    assert differences(compute_meters(rows), read_store(pipeline.store)) == []


def test_a_late_reading_may_change_a_bucket_alone(pipeline: Pipeline) -> None:
    """Bounds that changed in between leave minutes in which the count stays and a bucket moves."""
    common = {"temporality": CUMULATIVE, "start_ns": START - 3_600_000_000_000}
    later = [
        point("h", "histogram", seconds=525, count=1, bucket_counts=[1], bounds=[], **common),
        point(
            "h", "histogram", seconds=1402.5, count=12, bounds=[0.5], bucket_counts=[3, 9], **common
        ),
    ]
    late = point(
        "h", "histogram", seconds=-1222.5, count=0, bounds=[0.5], bucket_counts=[0, 0], **common
    )
    pipeline.merge(points=later)
    pipeline.merge(points=[late])
    assert differences(compute_meters([*later, late]), read_store(pipeline.store)) == []


def test_readings_and_gauges_past_the_records_are_counted(pipeline: Pipeline) -> None:
    """A cumulative point of four days ago cannot be compared any more; a gauge can be merged."""
    days = -4 * 86_400.0
    rows = [
        point("total", "sum", seconds=days, temporality=CUMULATIVE, value=5.0),
        point(
            "h",
            "histogram",
            seconds=days,
            temporality=CUMULATIVE,
            count=5,
            bounds=[1.0],
            bucket_counts=[5, 0],
        ),
        point("load", seconds=days, value=0.5),
    ]
    assert pipeline.merge(points=rows) == {"expired_records": 2}
    assert differences(compute_meters(rows[2:]), read_store(pipeline.store)) == []
