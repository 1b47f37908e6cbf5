"""Caps, retention, clashes and bounds, through the whole of the pipeline."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.aggregation.settings import AggregationSettings
from penstock.clock import wall_time
from penstock.land import LandingFolder
from penstock.metrics import load_rules, parse_rules
from penstock.metrics.sources import SOURCES
from penstock.spark.job import JobSettings
from penstock.store import open_store
from penstock.telemetry import Signal, Temporality
from tests.oracle.buckets import Horizon
from tests.oracle.comparing import differences
from tests.oracle.meters import compute_meters
from tests.oracle.oracle import compute
from tests.oracle.reading import read_store, read_top
from tests.oracle.samples import START, point, span
from tests.oracle.topn import top
from tests.spark.rig import CALLBACKS, EVERYTHING, Telemetry, aggregate
from tests.support.spark import land, landed_rows

pytestmark = [pytest.mark.spark, pytest.mark.leaves_threads(CALLBACKS)]

DAY = 1440
CALLS = parse_rules("calls = from(Service.*).count();").metrics


def test_entities_beyond_the_cap_are_counted_exactly(
    tmp_path: Path, spark: SparkSession, telemetry: Telemetry
) -> None:
    """Metrics, meters and top lists: those that fit, and all others as one."""
    landing = telemetry.copied_to(tmp_path / "landing")
    kept = {"spans": 2, "points": 9}
    for signal, files in kept.items():
        for path in sorted((landing / signal).iterdir())[files:]:
            path.unlink()
    spans, points = (landed_rows(landing, signal) for signal in (Signal.SPANS, Signal.POINTS))
    rules = load_rules([EVERYTHING])
    job = JobSettings(aggregation=AggregationSettings(max_entities=6))
    aggregate(spark, tmp_path, rules, job=job, max_files=1)
    store = open_store(str(tmp_path / "store.db"))
    admitted = {scope: set(store.entities(scope)) for scope in (*SOURCES, "Meter")}
    assert all(len(entities) <= 7 for entities in admitted.values())
    assert sum(entity[:1] == ("(other)",) for held in admitted.values() for entity in held) > 5
    expected = {
        **compute(rules, spans, admitted=admitted),
        **compute_meters(points, admitted=admitted),
    }
    found = differences(expected, read_store(store))
    assert not found, "\n".join(found)
    assert differences(top(spans, admitted=admitted), read_top(store)) == []
    store.close()


def test_what_is_left_out_is_counted_by_cause(tmp_path: Path, spark: SparkSession) -> None:
    """Too old, too far ahead, no value, a name that is taken: each row once, under its cause."""
    now = wall_time() // 60 * 60
    minute = int(now // 60)
    shift = (minute * 60_000_000_000 - START) / 1e9  # from the samples' time to now
    spans = [span(minute=minute - days * DAY, number=days) for days in (0, 2, 8, 32, 400)]
    spans.append(span(minute=minute + DAY + 5, number=1000))
    points = [
        point("calls", value=1.0, seconds=shift),
        point("load", value=2.0, seconds=shift),
        point("load", value=float("nan"), seconds=shift),
        point("load", "sum", value=1.0, seconds=shift),
        point("odd", "summary", seconds=shift),
        point("h", "histogram", count=1, temporality=int(Temporality.UNSPECIFIED), seconds=shift),
        point("i", "histogram", count=1, bounds=[1.0], bucket_counts=[1], seconds=shift),
        point(
            "total",
            "sum",
            value=5.0,
            temporality=int(Temporality.CUMULATIVE),
            seconds=shift - 4 * 86_400,
        ),
    ]
    land(tmp_path / "landing", "spans/a.parquet", spans)
    land(tmp_path / "landing", "points/a.parquet", points[:2])
    land(tmp_path / "landing", "points/b.parquet", points[2:])
    reports = aggregate(spark, tmp_path, CALLS, max_files=1, now=lambda: now)
    assert reports.left_out == {
        "expired_minute": 3,
        "expired_hour": 2,
        "expired_day": 1,
        "expired_records": 1,
        "future": 1,
        "no_value": 1,
        "name_taken": 2,
        "kind": 1,
        "temporality": 1,
        "buckets": 1,
    }
    store = open_store(str(tmp_path / "store.db"))
    expected = {**compute(CALLS, spans, horizon=Horizon(now)), **compute_meters(points[1:2])}
    found = differences(expected, read_store(store))
    assert not found, "\n".join(found)
    store.close()


def test_nothing_grows_with_the_number_of_batches(
    tmp_path: Path, spark: SparkSession, minute: int
) -> None:
    """After many batches the checkpoint holds the last few, and the folder no old files."""
    landing = LandingFolder(tmp_path / "landing")
    batches = 40
    for number in range(batches):
        land(landing.root, f"spans/{number:03}.parquet", [span(minute=minute, number=number)])
    keep = JobSettings(keep_consumed=2.0)
    reports = aggregate(spark, tmp_path, CALLS, max_files=1, job=keep)
    assert len(reports.reports) == batches
    for log in ("offsets", "commits"):
        kept = [path for path in (tmp_path / "checkpoint" / log).iterdir() if path.name.isdigit()]
        assert 1 <= len(kept) <= 25, log
    assert len(landing.consumed()) == batches
    later = wall_time() + 3 * 86_400
    land(landing.root, "spans/new.parquet", [span(minute=minute)])
    aggregate(spark, tmp_path, CALLS, job=keep, now=lambda: later)
    assert [file.name for file in landing.consumed()] == ["spans/new.parquet"]
    assert sum(path.stat().st_size for path in (tmp_path / "checkpoint").rglob("*")) < 1 << 20
