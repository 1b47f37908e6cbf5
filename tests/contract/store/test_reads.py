"""Reading series: which rows, in which order."""

import pytest

from penstock.errors import StoreError
from penstock.metrics.functions import State
from penstock.store.contract import Granularity, MetricStore, SeriesQuery
from tests.contract.store import rig

METRIC = rig.metric("endpoint_cpm", "cpm")
PARTS = [("shop", "GET /a"), ("shop", "GET /b[1]"), ("bank", "GET /a"), ("Shop", "GET /a")]


@pytest.fixture(autouse=True)
def values(store: MetricStore) -> None:
    """Give four entities five minutes each; the count tells which is which."""
    store.define([METRIC, rig.metric("endpoint_sla"), rig.metric("service_cpm")])
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(*PARTS))
        rows = [
            (METRIC.metric, rig.entity(*parts), bucket, State(count=10 * number + bucket))
            for number, parts in enumerate(PARTS)
            for bucket in range(5)
        ]
        transaction.merge(Granularity.MINUTE, rig.facts(rows))


def read(store: MetricStore, **query: object) -> list[tuple[tuple[str, ...], int]]:
    """Return entity and bucket of the rows that a query finds."""
    rows = store.series(SeriesQuery(metric=METRIC.name, **query))  # type: ignore[arg-type]
    return [(row.entity, row.bucket) for row in rows]


def test_rows_come_by_bucket_then_entity(store: MetricStore) -> None:
    """The order is that of time, and of the parts within a bucket."""
    assert read(store) == [(parts, bucket) for bucket in range(5) for parts in sorted(PARTS)]


def test_buckets_are_cut_from_since_to_before_until(store: MetricStore) -> None:
    """Since is included, until is not."""
    assert {bucket for _, bucket in read(store, since=1, until=3)} == {1, 2}
    assert read(store, since=5) == []


def test_the_limit_keeps_the_newest(store: MetricStore) -> None:
    """Of more rows than asked for, the oldest are left out."""
    assert [bucket for _, bucket in read(store, limit=8)] == [3] * 4 + [4] * 4
    assert [bucket for _, bucket in read(store, limit=6)] == [3] * 2 + [4] * 4


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("shop",), PARTS[:2]),
        (("?hop",), [PARTS[0], PARTS[1], PARTS[3]]),
        (("*", "GET /a"), [PARTS[0], PARTS[2], PARTS[3]]),
        (("sho[p]", "*b[[]1]"), [PARTS[1]]),
        (("nobody",), []),
        (("shop", "*", "*"), []),
    ],
)
def test_entities_are_chosen_by_shell_patterns(
    store: MetricStore, patterns: tuple[str, ...], found: list[tuple[str, ...]]
) -> None:
    """Patterns are for the parts from the first on, with the case as it is written."""
    assert read(store, entity=patterns, since=4) == [(parts, 4) for parts in sorted(found)]


def test_the_limit_counts_chosen_entities_only(store: MetricStore) -> None:
    """Rows of other entities do not use the limit up."""
    assert read(store, entity=("bank",), limit=2) == [(PARTS[2], 3), (PARTS[2], 4)]


def test_an_unknown_metric_is_told_with_the_closest_names(store: MetricStore) -> None:
    """A typing error is answered with what was meant."""
    with pytest.raises(StoreError, match=r"no metric 'endpoint_cmp': did you mean endpoint_cpm"):
        store.series(SeriesQuery(metric="endpoint_cmp"))
    with pytest.raises(StoreError, match=r"no metric 'x': it has 3 others"):
        store.series(SeriesQuery(metric="x"))


def test_a_known_metric_without_values_is_empty(store: MetricStore) -> None:
    """Nothing was measured yet, which is no mistake."""
    assert store.series(SeriesQuery(metric="service_cpm")) == []
    assert store.series(SeriesQuery(metric=METRIC.name, granularity=Granularity.DAY)) == []
