"""What of time is taken, which columns are read, and how long spans lasted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.aggregation.aggregator import Horizon, span_columns
from penstock.metrics import default_rules
from penstock.store.contract import Granularity, Retention
from penstock.telemetry import SPANS
from tests.oracle.buckets import Horizon as OracleHorizon
from tests.oracle.comparing import differences
from tests.oracle.meters import compute_meters
from tests.oracle.oracle import compute
from tests.oracle.reading import read_store
from tests.oracle.samples import MINUTE, point, span
from tests.unit.aggregation.rig import NOW, Pipeline, rules

DAY = 1440


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Return a pipeline with two rules."""
    pipeline = Pipeline(tmp_path / "store.db")
    yield pipeline
    pipeline.store.close()


def test_a_horizon_is_the_first_bucket_that_retention_keeps() -> None:
    """Not a minute of a bucket is taken that would be deleted, nor one refused that is kept."""
    retention = Retention(minute=7, hour=30, day=365, records=3)
    horizon = Horizon.at(NOW, retention)
    for granularity in Granularity:
        oldest = retention.oldest(granularity, NOW)
        assert horizon.oldest(granularity) == oldest * granularity.minutes
    assert horizon.records == int(NOW // 60) - 3 * DAY
    assert horizon.future == int(NOW // 60) + DAY


def test_late_rows_go_to_their_own_minute(pipeline: Pipeline) -> None:
    """Hours late, before and after the batches of their time, in every granularity."""
    spans = [span(minute=MINUTE - ago, number=ago) for ago in (0, 1, 59, 60, 61, 720, DAY)]
    for one in (spans[3:], spans[:1], spans[1:3]):
        assert pipeline.merge(one) == {}
    assert differences(compute(pipeline.metrics, spans), read_store(pipeline.store)) == []


def test_rows_that_are_too_old_or_too_new_are_counted_by_cause(pipeline: Pipeline) -> None:
    """Each granularity leaves out what it does not keep, and takes the rest."""
    days = {0: 1, 6: 1, 8: 2, 29: 3, 32: 4, 364: 5, 367: 6}
    spans = [
        span(minute=MINUTE - ago * DAY, number=100 * ago + n)
        for ago, rows in days.items()
        for n in range(rows)
    ]
    spans += [span(minute=MINUTE + DAY + 11, number=9000), span(minute=MINUTE + DAY - 5)]
    assert pipeline.merge(spans) == {
        "expired_minute": 2 + 3 + 4 + 5 + 6,
        "expired_hour": 4 + 5 + 6,
        "expired_day": 6,
        "future": 1,
    }
    expected = compute(pipeline.metrics, spans, horizon=OracleHorizon(NOW))
    assert differences(expected, read_store(pipeline.store)) == []


def test_the_oldest_minute_that_is_kept_is_kept(pipeline: Pipeline) -> None:
    """Of each granularity, and not the one before it."""
    horizon = pipeline.horizon
    oldest = (horizon.minute, horizon.hour, horizon.day)
    spans = [span(minute=m - before, number=m - before) for m in oldest for before in (0, 1)]
    left_out = pipeline.merge(spans)
    assert left_out == {"expired_minute": 5, "expired_hour": 3, "expired_day": 1}
    found = {key[1:] for key in read_store(pipeline.store) if key[0] == "calls"}
    assert found == {
        ("minute", ("shop",), horizon.minute),
        ("hour", ("shop",), horizon.hour // 60),
        ("hour", ("shop",), horizon.minute // 60),
        ("day", ("shop",), horizon.day // DAY),
        ("day", ("shop",), horizon.hour // DAY),
        ("day", ("shop",), (horizon.hour - 1) // DAY),
        ("day", ("shop",), horizon.minute // DAY),
    }


def test_points_expire_as_spans_do(pipeline: Pipeline) -> None:
    """By the time of the reading."""
    points = [point(seconds=-86_400.0 * ago, value=1.0) for ago in (0, 8, 32, 400)]
    points += [point(seconds=2 * 86_400.0, value=2.0)]
    assert pipeline.merge(points=points) == {
        "expired_minute": 3,
        "expired_hour": 2,
        "expired_day": 1,
        "future": 1,
    }
    expected = compute_meters(points, horizon=OracleHorizon(NOW))
    assert differences(expected, read_store(pipeline.store)) == []


def test_minutes_may_be_kept_longer_than_days(pipeline: Pipeline) -> None:
    """An odd wish, which is granted: no granularity depends on another one's retention."""
    retention = Retention(minute=60, hour=30, day=10, records=3)
    pipeline.horizon = Horizon.at(NOW, retention)
    spans = [span(minute=MINUTE - ago * DAY, number=ago) for ago in (1, 12, 32, 61)]
    assert pipeline.merge(spans) == {"expired_minute": 1, "expired_hour": 2, "expired_day": 3}
    expected = compute(
        pipeline.metrics, spans, horizon=OracleHorizon(NOW, minute=60, hour=30, day=10)
    )
    assert differences(expected, read_store(pipeline.store)) == []


def test_slow_statements_past_the_records_are_counted(pipeline: Pipeline) -> None:
    """The metrics of the same span are merged; only its place in the top list is gone."""
    old = span(kind=3, minute=MINUTE - 4 * DAY, latency=900, db_system="mysql", db_statement="x")  # type: ignore[arg-type]
    assert pipeline.merge([old]) == {"expired_records": 2}


@pytest.mark.parametrize(
    ("end", "milliseconds"), [(-(2**63), 0), (-1, 0), (999_999, 0), (1_000_000, 1)]
)
def test_a_span_never_lasts_less_than_nothing(
    pipeline: Pipeline, end: int, milliseconds: int
) -> None:
    """Whatever its end is; fractions of a millisecond are cut off."""
    row = span()
    row["end_ns"] = max(-(2**63), row["start_ns"] + end) if end > -(2**63) else end
    pipeline.merge([row])
    found = read_store(pipeline.store)
    assert found["latency", "minute", ("shop",), MINUTE] == milliseconds


def test_attributes_are_read_when_a_rule_asks_for_them() -> None:
    """A map costs as much as all columns together; promoted attributes are not in it."""
    assert "attributes" not in span_columns(default_rules())
    for asking in (
        'a = from(Service.*).filter(tag["x"] == "y").count();',
        'a = from((str->long)Service.tag["x"]).sum();',
        'a = from(Service.*).labelCount(tag["x"]);',
        'a = from(Service.*).percent(tag["x"] == "y");',
        'a = from(Service.*).filter(tags contain "x:y").count();',
    ):
        assert "attributes" in span_columns(rules(asking)), asking
    assert "attributes" not in span_columns(
        rules('a = from(Service.*).labelCount(tag["db.namespace"]);')
    )


def test_columns_are_those_of_the_schema_in_its_order() -> None:
    """And what no metric can read is not among them."""
    columns = span_columns(default_rules())
    assert columns == [name for name in SPANS.names if name in columns]
    assert not {"events", "links", "resource_attributes", "status_message"} & set(columns)


def test_a_batch_of_which_nothing_is_timely_adds_nothing(pipeline: Pipeline) -> None:
    """It is counted and that is all."""
    expired = {"expired_minute": 1, "expired_hour": 1, "expired_day": 1}
    assert pipeline.merge([span(minute=MINUTE - 400 * DAY)]) == expired
    assert pipeline.merge(points=[point(seconds=-400 * 86_400.0, value=1.0)]) == expired
    assert read_store(pipeline.store) == {}
