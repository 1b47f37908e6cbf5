"""What the store knows: metrics, meters, entities and its job."""

from dataclasses import replace

import pytest

from penstock.errors import StoreError
from penstock.metrics.functions import State
from penstock.store.contract import Catalogued, Granularity, MetricStore, SeriesQuery
from tests.contract.store import rig


def test_a_new_store_knows_nothing(store: MetricStore) -> None:
    """Before anything is defined, all lists are empty."""
    assert store.catalogue() == {}
    assert store.job() is None
    assert store.entities(rig.SCOPE) == []
    assert store.entity_ids(rig.SCOPE) == frozenset()
    with pytest.raises(StoreError, match="no metric 'x': it holds no metrics yet"):
        store.series(SeriesQuery(metric="x"))


def test_definitions_come_back(store: MetricStore, open_another: rig.Opener) -> None:
    """The catalogue is what was defined, by name."""
    metrics = [rig.metric("a"), rig.metric("b", "percentile2", "other 'text' %s")]
    store.define(iter(metrics))
    assert open_another().catalogue() == {metric.name: metric for metric in metrics}


@pytest.mark.parametrize(
    ("changed", "is_kept"),
    [
        (rig.metric("a"), True),
        (replace(rig.metric("a"), unit="s"), True),
        (replace(rig.metric("a"), definition="another one"), False),
        (replace(rig.metric("a"), function="sum"), False),
        (replace(rig.metric("a"), scope="Endpoint"), False),
    ],
    ids=["nothing", "unit", "definition", "function", "scope"],
)
def test_values_go_when_their_meaning_changes(
    store: MetricStore, changed: Catalogued, *, is_kept: bool
) -> None:
    """A changed definition deletes the metric's values in all granularities, and no others."""
    metric, other = rig.metric("a"), rig.metric("b")
    store.define([metric, other])
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["e"]))
        for granularity in Granularity:
            rows = [(m.metric, rig.entity("e"), 1, State(count=1)) for m in (metric, other)]
            transaction.merge(granularity, rig.facts(rows))
    store.define([changed])
    assert store.catalogue() == {"a": changed, "b": other}
    for granularity in Granularity:
        assert bool(rig.states(store, "a", granularity)) is is_kept
        assert rig.states(store, "b", granularity)


def test_meters_are_added_once(store: MetricStore) -> None:
    """A meter enters the catalogue when it is first seen, and stays as it was then."""
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_meters(rig.meters(("cpu", "gauge", "1"), ("rx", "counter", "By")))
        transaction.new_meters(rig.meters(("cpu", "counter", "%"), ("cpu", "gauge", "1")))
    cpu = store.catalogue()["cpu"]
    assert cpu == Catalogued(cpu.metric, "cpu", "Meter", "gauge", "", "1")
    assert set(store.catalogue()) == {"cpu", "rx"}


def test_a_rule_keeps_its_name_from_a_meter(store: MetricStore) -> None:
    """A metric point that is called like a rule does not change the rule."""
    store.define([rig.metric("cpu")])
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_meters(rig.meters(("cpu", "gauge", "1")))
    assert store.catalogue() == {"cpu": rig.metric("cpu")}


def test_names_may_be_long_and_strange(store: MetricStore) -> None:
    """Whatever a sender calls its metric, it does not stop the batch."""
    source = "".join(chr(0x20 + (number * 7919) % 0x2000) for number in range(20_000))
    names = [source, "q\"u'o,te\n", "%s", "ü" * 3_000]
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_meters(rig.meters(*((name, "gauge", "") for name in names)))
        transaction.new_entities(rig.entities(*([name] for name in names)))
    assert set(store.catalogue()) == set(names)
    assert set(store.entities(rig.SCOPE)) == {(name,) for name in names}


def test_a_text_with_nul_does_not_stop_the_batch(store: MetricStore) -> None:
    """PostgreSQL has no such character; it may be replaced, the rest of the text stays."""
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["a\0b"]))
        transaction.new_meters(rig.meters(("c\0d", "gauge", "")))
    ((name,),) = store.entities(rig.SCOPE)
    assert name in {"a\0b", "a\ufffdb"}
    assert store.entity_ids(rig.SCOPE) == {rig.entity("a\0b")}
    assert set(store.catalogue()) <= {"c\0d", "c\ufffdd"}


def test_entities_are_known_by_scope(store: MetricStore) -> None:
    """Entities are added once, sorted by their parts and apart by scope."""
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["b", "é"], ["a", "z"], ["B", ""], ["a", "z"]))
        transaction.new_entities(rig.entities(["a", "z"]))
        transaction.new_entities(rig.entities(["a"], scope="Endpoint"))
    assert store.entities(rig.SCOPE) == [("B", ""), ("a", "z"), ("b", "é")]
    assert store.entities("Endpoint") == [("a",)]
    assert store.entity_ids(rig.SCOPE) == {
        rig.entity("B", ""),
        rig.entity("a", "z"),
        rig.entity("b", "é"),
    }


def test_a_store_remembers_its_job(store: MetricStore, open_another: rig.Opener) -> None:
    """The job is the one that adopted the store last."""
    store.adopt_job("first")
    store.adopt_job("second")
    assert open_another().job() == "second"
