"""Minutes to hours and days, slots to JSON, and partial states that meet."""

import json
from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from penstock.aggregation.accumulator import Accumulator
from penstock.aggregation.aggregator import Horizon
from penstock.aggregation.partials import (
    FACTS,
    SLOTS,
    Partials,
    combine_facts,
    combine_slots,
)
from penstock.aggregation.rollup import MERGED, granular
from penstock.store.contract import Granularity

ALL = Horizon(minute=-(2**20), hour=-(2**20), day=-(2**20), records=0, future=2**31)
HOUR, DAY = 60, 1440


def fact(metric: int = 1, entity: int = 1, bucket: int = 0, **parts: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a fact of one row."""
    key = {"metric": metric, "entity": entity, "bucket": bucket}
    return key | {"count": 1, "total": 0, "base": 0, "real": 0.0} | parts


def slot(name: str, metric: int = 1, bucket: int = 0, **parts: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a slot of one row."""
    key = {"metric": metric, "entity": 1, "bucket": bucket, "slot": name}
    return key | {"count": 1, "real": 0.0} | parts


def facts(*rows: dict[str, Any]) -> pa.Table:
    """Return facts as a table."""
    return pa.Table.from_pylist(list(rows), schema=FACTS)


def slots(*rows: dict[str, Any]) -> pa.Table:
    """Return slots as a table."""
    return pa.Table.from_pylist(list(rows), schema=SLOTS)


def rolled_up(
    facts: pa.Table, slots: pa.Table, horizon: Horizon = ALL, summed: tuple[int, ...] = ()
) -> dict[Granularity, list[dict[str, Any]]]:
    """Return the rows of each granularity."""
    tables = dict(granular(facts, slots, horizon, summed))
    assert all(table.schema == MERGED for table in tables.values())
    return {granularity: table.to_pylist() for granularity, table in tables.items()}


def test_minutes_add_up_to_hours_and_days() -> None:
    """Every part of the state in its own way."""
    table = facts(
        fact(bucket=HOUR, total=5, base=1, real=0.5, low=3.0, high=3.0, last=1.0, last_at=10),
        fact(bucket=HOUR + 59, total=7, base=2, real=0.25, low=1.0, high=2.0, last=9.0, last_at=20),
        fact(bucket=2 * HOUR, total=100),
        fact(bucket=DAY, total=1000),
    )
    rows = rolled_up(table, slots())
    assert [row["bucket"] for row in rows[Granularity.MINUTE]] == [HOUR, HOUR + 59, 2 * HOUR, DAY]
    assert [(row["bucket"], row["total"]) for row in rows[Granularity.HOUR]] == [
        (1, 12),
        (2, 100),
        (24, 1000),
    ]
    assert [(row["bucket"], row["total"]) for row in rows[Granularity.DAY]] == [(0, 112), (1, 1000)]
    first = rows[Granularity.HOUR][0]
    assert (first["count"], first["base"], first["real"]) == (2, 3, 0.75)
    assert (first["low"], first["high"], first["last"], first["last_at"]) == (1.0, 3.0, 9.0, 20)


def test_the_hour_before_1970_is_hour_minus_one() -> None:
    """Buckets are rounded down, not towards zero."""
    rows = rolled_up(facts(fact(bucket=-1)), slots(slot("x", bucket=-1)))
    assert [row["bucket"] for row in rows[Granularity.HOUR]] == [-1]
    assert [row["slots"] for row in rows[Granularity.DAY]] == ['{"x":1}']


def test_what_a_granularity_no_longer_takes_stays_in_the_others() -> None:
    """A row that is too old for minutes still counts for its hour."""
    horizon = Horizon(minute=3 * HOUR, hour=2 * HOUR, day=0, records=0, future=2**31)
    table = facts(*(fact(bucket=hour * HOUR) for hour in range(1, 4)))
    rows = rolled_up(table, slots(), horizon)
    assert [row["bucket"] for row in rows[Granularity.MINUTE]] == [3 * HOUR]
    assert [row["bucket"] for row in rows[Granularity.HOUR]] == [2, 3]
    assert [(row["bucket"], row["count"]) for row in rows[Granularity.DAY]] == [(0, 3)]


def test_slots_are_json_beside_their_fact() -> None:
    """Keys are any text, also none; a fact without slots has null."""
    names = ["a", 'quo"te', "back\\slash", "\xe4\u0000\n", "", "0.5"]
    table = slots(*(slot(name, count=n) for n, name in enumerate(names, 1)))
    with_slots, without = rolled_up(facts(fact(), fact(metric=2)), table)[Granularity.MINUTE]
    assert json.loads(with_slots["slots"]) == {name: n for n, name in enumerate(names, 1)}
    assert (without["slots"], without["sums"], with_slots["sums"]) == (None, None, None)


def test_slots_add_up_too() -> None:
    """Name by name."""
    table = slots(slot("a", bucket=0), slot("a", bucket=1), slot("b", bucket=1))
    rows = rolled_up(facts(fact(bucket=0), fact(bucket=1)), table)
    assert [json.loads(row["slots"]) for row in rows[Granularity.HOUR]] == [{"a": 2, "b": 1}]


def test_sums_by_label_are_for_the_metrics_that_have_them() -> None:
    """The others would carry zeros."""
    table = slots(slot("a", real=2.5), slot("a", metric=2, real=0.0))
    summed, plain = rolled_up(facts(fact(), fact(metric=2)), table, summed=(1,))[Granularity.MINUTE]
    assert json.loads(summed["sums"]) == {"a": 2.5}
    assert (json.loads(plain["slots"]), plain["sums"]) == ({"a": 1}, None)


def test_nothing_rolls_up_to_nothing() -> None:
    """Empty tables work like any others."""
    assert rolled_up(facts(), slots()) == {granularity: [] for granularity in Granularity}


def test_rows_come_in_the_order_of_their_key() -> None:
    """Neighbours in the key lie on one page of the store."""
    table = facts(fact(metric=2), fact(metric=-1, bucket=5), fact(metric=-1, entity=3, bucket=1))
    rows = rolled_up(table, slots())[Granularity.MINUTE]
    keys = [(row["metric"], row["entity"], row["bucket"]) for row in rows]
    assert keys == sorted(keys)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_facts_combine_in_any_order(order: tuple[int, ...]) -> None:
    """The last value is the newest; of two at the same time, the larger one."""
    parts = [
        fact(total=1, low=None, high=None, last=None, last_at=None),
        fact(total=2, low=-1.0, high=4.0, last=7.0, last_at=50),
        fact(total=4, low=0.0, high=9.0, last=8.0, last_at=50),
    ]
    (row,) = combine_facts(facts(*(parts[n] for n in order))).to_pylist()
    assert (row["count"], row["total"]) == (3, 7)
    assert (row["low"], row["high"], row["last"], row["last_at"]) == (-1.0, 9.0, 8.0, 50)


def test_facts_without_extremes_have_none() -> None:
    """Not a number would be an extreme."""
    (row,) = combine_facts(facts(fact(), fact())).to_pylist()
    assert (row["low"], row["high"], row["last"], row["last_at"]) == (None, None, None, None)


def test_keys_do_not_run_into_each_other() -> None:
    """Metric, entity and bucket each make a difference."""
    rows = [fact(), fact(metric=2), fact(entity=2), fact(bucket=2), fact(metric=-(2**63)), fact()]
    combined = combine_facts(facts(*rows))
    assert sorted(combined["count"].to_pylist()) == [1, 1, 1, 1, 2]
    named = combine_slots(slots(slot("a"), slot("b"), slot(""), slot("a")))
    assert dict(zip(named["slot"].to_pylist(), named["count"].to_pylist(), strict=True)) == {
        "a": 2,
        "b": 1,
        "": 1,
    }


def test_partials_travel_as_bytes() -> None:
    """What arrives at the driver is what the executor sent."""
    whole = facts(fact(last=1.0, last_at=2), fact(metric=2))
    sent = _partials(facts=whole, slots=slots(slot("a")))
    received = Partials.from_bytes(sent.to_bytes())
    assert received.facts.equals(sent.facts)
    assert received.slots.equals(sent.slots)
    assert received.readings.equals(sent.readings)


def test_partials_meet_key_by_key() -> None:
    """And what both have seen is listed once."""
    parts = []
    for total in (1, 2):
        seen = Accumulator()
        seen.entity("Service", ("shop",))
        seen.meter("load", "gauge", "", 1)
        whole = replace(seen.finish(), facts=facts(fact(total=total)), slots=slots(slot("a")))
        parts.append(whole)
    both = Partials.concatenated(parts)
    assert (both.entities.num_rows, both.meters.num_rows) == (1, 1)
    assert both.facts.to_pylist()[0]["total"] == 3
    assert both.slots.to_pylist()[0]["count"] == 2


def _partials(facts: pa.Table, slots: pa.Table) -> Partials:
    return replace(Accumulator().finish(), facts=facts, slots=slots)
