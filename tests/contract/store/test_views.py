"""The views give people who read by SQL the same values as `Function.value`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.metrics.functions import FUNCTIONS, State
from penstock.store.contract import Granularity
from tests.contract.store import rig

if TYPE_CHECKING:
    from penstock.store.contract import MetricStore

SCALARS = (
    *("longAvg", "doubleAvg", "sum", "count", "max", "min", "maxDouble", "minDouble", "cpm"),
    *("percent", "rate", "apdex", "gauge", "counter"),
)
STATES = (
    State(),
    State(count=3, total=10, base=4, real=2.5, low=-1.75, high=7.25, last=3.5, last_at=1),
    State(count=7, total=-20, base=-3, real=-2.5, low=-9.9, high=-1.1, last=-3.5, last_at=1),
    State(count=125, total=99, base=0, real=0.0),
    State(count=3_000, total=2_999, base=7, high=0.0, low=0.0, last=0.0, last_at=1),
    State(count=-5, total=9, base=2, real=1.0),
    State(count=10**9, total=10**12, base=10**9 + 1, real=0.125),
)


def select(
    url: str, what: str, granularity: Granularity = Granularity.MINUTE, where: str = ""
) -> list[tuple[Any, ...]]:
    """Select from a view as somebody would who knows nothing of penstock."""
    statement = f"{what} FROM {granularity}_values {where}"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'Asia/Tokyo'")
        return connection.execute(statement.encode()).fetchall()


@pytest.fixture
def filled(store: MetricStore) -> MetricStore:
    """Return a store with each of STATES under each function, in each granularity."""
    metrics = [rig.metric(f"m_{name}", name) for name in FUNCTIONS]
    store.define(metrics)
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["shop", "GET /a"]))
        rows = [
            (metric.metric, rig.entity("shop", "GET /a"), bucket, state)
            for metric in metrics
            for bucket, state in enumerate(STATES)
        ]
        for granularity in Granularity:
            transaction.merge(granularity, rig.facts(rows))
    return store


@pytest.mark.parametrize("granularity", list(Granularity))
def test_every_scalar_value_is_that_of_the_function(
    filled: MetricStore, url: str, granularity: Granularity
) -> None:
    """Rounding goes towards zero, nothing divides by zero, and cpm knows the bucket's minutes."""
    del filled
    rows = select(url, "SELECT metric, bucket, value", granularity)
    found = {(name, bucket): value for name, bucket, value in rows}
    expected = {
        (f"m_{name}", bucket): FUNCTIONS[name].value(state, granularity.minutes)
        for name in SCALARS
        for bucket, state in enumerate(STATES)
    }
    assert {key: found[key] for key in expected} == expected


def test_metrics_of_several_values_have_none_but_their_parts(filled: MetricStore, url: str) -> None:
    """Percentiles, histograms and labels are listed with null."""
    del filled
    rows = select(url, "SELECT metric", Granularity.DAY, "WHERE value IS NULL")
    assert {name for (name,) in rows} == {f"m_{name}" for name in set(FUNCTIONS) - set(SCALARS)}


def test_products_that_overflow_do_not_fail_the_query(store: MetricStore, url: str) -> None:
    """One absurd value does not hide all the others."""
    store.define([rig.metric("m", "percent")])
    huge = State(count=2**40, total=2**62)
    rig.merge(store, [(rig.metric("m").metric, rig.entity("a"), 1, huge)])
    ((value,),) = select(url, "SELECT value")
    assert value == pytest.approx(FUNCTIONS["percent"].value(huge, 1))


@pytest.mark.parametrize("granularity", list(Granularity))
def test_views_tell_names_and_times(store: MetricStore, url: str, granularity: Granularity) -> None:
    """Times are in UTC, whatever the time zone of the reader."""
    store.define([rig.metric("m", "count")])
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["shop", "GET /a"]))
        row = (rig.metric("m").metric, rig.entity("shop", "GET /a"), 19_000, State(count=1))
        transaction.merge(granularity, rig.facts([row]))
    columns = "SELECT metric, entity, scope, time, bucket, value"
    ((*texts, time, bucket, value),) = select(url, columns, granularity)
    assert (*texts, bucket, value) == ("m", "shop | GET /a", rig.SCOPE, 19_000, 1.0)
    if isinstance(time, str):
        time = datetime.fromisoformat(time).replace(tzinfo=UTC)
    assert time == datetime.fromtimestamp(19_000 * granularity.minutes * 60, UTC)
