"""What is past its retention goes, and nothing else."""

import pytest

from penstock.metrics.functions import State
from penstock.store import _retention
from penstock.store.contract import Granularity, MetricStore, Retention, TopQuery
from tests.contract.store import rig

NOW = 20_000 * rig.DAY + 3_725.5  # somewhere within a minute, an hour and a day
RETENTION = Retention(minute=2, hour=3, day=4, records=1)
METRICS = [rig.metric("m1"), rig.metric("m2")]
ENTITIES = [rig.entity("a"), rig.entity("b")]


@pytest.mark.parametrize("granularity", list(Granularity))
def test_buckets_go_when_they_are_older_than_their_retention(
    store: MetricStore, granularity: Granularity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest bucket that is kept is the one that `Retention.oldest` says, in each table."""
    monkeypatch.setattr(_retention, "_ROWS_AT_ONCE", 3)
    monkeypatch.setattr(_retention, "_BUCKETS_AT_ONCE", 2)
    oldest = RETENTION.oldest(granularity, NOW)
    store.define(METRICS)
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["a"], ["b"]))
        for other in Granularity:
            rows = [
                (metric.metric, entity, RETENTION.oldest(other, NOW) + offset, State(count=1))
                for metric in METRICS
                for entity in ENTITIES
                for offset in (-9, -3, -2, -1, 0, 1)
            ]
            transaction.merge(other, rig.facts(rows))
    assert store.expire(NOW, RETENTION)[f"metric_{granularity}"] == 16
    for metric in METRICS:
        left = {bucket for _, bucket in rig.states(store, metric.name, granularity)}
        assert left == {oldest, oldest + 1}
    assert not any(store.expire(NOW, RETENTION).values())


def test_the_oldest_bucket_is_the_one_that_the_retention_ends_in() -> None:
    """A bucket goes when all of it is older than that many days."""
    assert RETENTION.oldest(Granularity.MINUTE, NOW) == (20_000 - 2) * 1440 + 62
    assert RETENTION.oldest(Granularity.HOUR, NOW) == (20_000 - 3) * 24 + 1
    assert RETENTION.oldest(Granularity.DAY, NOW) == 20_000 - 4


def test_records_go_by_their_own_retention(store: MetricStore) -> None:
    """Top lists go after `records` days, readings a day later: late ones need them."""
    minute = int(NOW // 60)
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["a"]))
        transaction.rank(
            rig.topn(
                *(
                    ("cache_read", ENTITIES[0], minute - age, 30, f"{age}", "t", 0, "GET")
                    for age in (1439, 1440, 1441, 5000)
                )
            )
        )
        transaction.read_deltas(
            rig.readings(
                *(
                    (1, 1, "", int(NOW - age) * 1_000_000_000, 0, 1.0)
                    for age in (0, 2 * 86_400, 2 * 86_400 + 1, 9 * 86_400)
                )
            )
        )
    deleted = store.expire(NOW, RETENTION)
    assert (deleted["topn"], deleted["reading"]) == (2, 2)
    top = store.top(TopQuery(kind="cache_read"))
    assert sorted(row.span_id for row in top) == ["1439", "1440"]


def test_the_ledger_keeps_30_days(store: MetricStore) -> None:
    """Batches and files are forgotten after that."""
    with store.begin(rig.HOLDER) as transaction:
        transaction.record(rig.entry(1, "old 1", "old 2", at=NOW - 30 * rig.DAY - 1))
        transaction.record(rig.entry(2, "young", at=NOW - 30 * rig.DAY + 1))
    deleted = store.expire(NOW, RETENTION)
    assert (deleted["ledger"], deleted["landed_file"]) == (1, 2)
    assert store.committed("checkpoint", 1) is None
    assert store.committed("checkpoint", 2) is not None
    assert store.merged_files(["old 1", "old 2", "young"]) == ["young"]


def test_an_empty_store_has_nothing_to_expire(store: MetricStore) -> None:
    """All tables are named, with nothing deleted."""
    assert store.expire(NOW, RETENTION) == dict.fromkeys(
        ("metric_minute", "metric_hour", "metric_day", "topn", "reading", "ledger", "landed_file"),
        0,
    )
