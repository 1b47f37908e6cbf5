"""Caps on entities and clashes of names, through L1 and L2 into a store."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.aggregation.settings import AggregationSettings
from penstock.metrics.sources import SOURCES
from penstock.telemetry import SpanKind, Temporality
from tests.oracle.buckets import Admitted
from tests.oracle.comparing import differences
from tests.oracle.meters import compute_meters
from tests.oracle.oracle import compute
from tests.oracle.reading import read_store, read_top
from tests.oracle.samples import START, point, span
from tests.oracle.topn import top
from tests.unit.aggregation.rig import Pipeline

OTHER = "(other)"
RULES = """
service_calls = from(Service.*).count();
service_latency = from(Service.latency).percentile2(10);
service_types = from(Service.*).labelCount(endpointName);
endpoint_calls = from(Endpoint.*).count();
relation_calls = from(ServiceInstanceRelation.*).count();
"""

Start: TypeAlias = Callable[..., Pipeline]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a pipeline with at most so many entities in each scope."""
    started = []

    def start(max_entities: int = 100_000, text: str = RULES) -> Pipeline:
        settings = AggregationSettings(max_entities=max_entities)
        started.append(Pipeline(tmp_path / "store.db", text, settings))
        return started[-1]

    yield start
    for pipeline in started:
        pipeline.store.close()


def admitted(pipeline: Pipeline) -> Admitted:
    """Return the entities that the store has, as the oracle wants to know them."""
    return {scope: set(pipeline.store.entities(scope)) for scope in (*SOURCES, "Meter")}


def spans_of(services: range, first: int = 1) -> list[dict[str, object]]:
    """Return calls and slow statements of many services, each with its own latencies."""
    made = []
    for number, service in enumerate(services, first):
        name = f"service-{service}"
        made.append(span(latency=7 * service, number=number, service_name=name))
        made.append(
            span(
                SpanKind.CLIENT,
                latency=200 + service,
                number=1000 + number,
                service_name=name,
                db_system="mysql",
                db_statement=f"SELECT {service}",
                peer_service=f"db-{service % 5}",
            )
        )
    return made


def test_entities_beyond_the_cap_are_counted_as_other(start: Start) -> None:
    """Every scope keeps the entities that fit, and all rows of the others under ``(other)``."""
    pipeline = start(max_entities=3)
    spans = spans_of(range(10))
    pipeline.merge(spans)
    assert len(pipeline.store.entities("Service")) == 4
    assert (OTHER,) in pipeline.store.entities("Service")
    assert (OTHER, OTHER) in pipeline.store.entities("Endpoint")
    held = admitted(pipeline)
    expected = compute(pipeline.metrics, spans, admitted=held)
    assert differences(expected, read_store(pipeline.store)) == []
    assert differences(top(spans, admitted=held), read_top(pipeline.store)) == []


def test_the_cap_holds_across_batches_and_restarts(start: Start) -> None:
    """Entities that are there stay themselves; new ones find the scope full."""
    pipeline = start(max_entities=3)
    batches = [spans_of(range(2)), spans_of(range(1, 4), 10), spans_of(range(5), 20)]
    pipeline.merge(batches[0])
    pipeline.merge(batches[1])
    pipeline.restart()
    pipeline.merge(batches[2])
    assert len(pipeline.store.entities("Service")) == 4
    assert {("service-0",), ("service-1",)} <= set(pipeline.store.entities("Service"))
    spans = [row for batch in batches for row in batch]
    expected = compute(pipeline.metrics, spans, admitted=admitted(pipeline))
    assert differences(expected, read_store(pipeline.store)) == []


def test_a_scope_that_is_just_full_has_no_other(start: Start) -> None:
    """The cap is how many there may be, not how many there may almost be."""
    pipeline = start(max_entities=3)
    pipeline.merge(spans_of(range(3)))
    assert (OTHER,) not in pipeline.store.entities("Service")


def test_a_cap_that_is_raised_makes_room(start: Start) -> None:
    """What stands for the others takes none of it."""
    pipeline = start(max_entities=2)
    pipeline.merge(spans_of(range(3)))
    before = set(pipeline.store.entities("Service"))
    pipeline.settings = AggregationSettings(max_entities=4)
    pipeline.restart()
    pipeline.merge(spans_of(range(10, 15), 100))
    assert len(before) == 3
    assert len(pipeline.store.entities("Service")) == 5
    assert before < set(pipeline.store.entities("Service"))


def test_cumulative_series_beyond_the_cap_stay_exact(start: Start) -> None:
    """Each series is compared with itself; only what it adds is counted as other."""
    pipeline = start(max_entities=1)
    points = [
        point(
            "requests",
            "sum",
            seconds=10 * step,
            service_instance=f"shop-{series}",
            temporality=int(Temporality.CUMULATIVE),
            start_ns=START - 60_000_000_000,
            value=float(1000 * series + 3 * step),
        )
        for step in range(20)
        for series in range(4)
    ]
    for first in range(0, len(points), 24):
        pipeline.merge(points=points[first : first + 24])
    assert len(pipeline.store.entities("Meter")) == 2
    expected = compute_meters(points, admitted=admitted(pipeline))
    assert differences(expected, read_store(pipeline.store)) == []


def test_cumulative_histograms_beyond_the_cap_stay_exact(start: Start) -> None:
    """Their counts and sums and buckets too."""
    pipeline = start(max_entities=1)
    points = [
        point(
            "lasted",
            "histogram",
            seconds=30 * step,
            service_instance=f"shop-{series}",
            temporality=int(Temporality.CUMULATIVE),
            start_ns=START,
            count=(series + 2) * step,
            sum=0.5 * series * step,
            bounds=[1.0, 5.0],
            bucket_counts=[step, series * step, step],
        )
        for step in range(8)
        for series in range(3)
    ]
    for first in range(0, len(points), 7):
        pipeline.merge(points=points[first : first + 7])
    expected = compute_meters(points, admitted=admitted(pipeline))
    assert differences(expected, read_store(pipeline.store)) == []


def test_points_under_the_name_of_a_rule_are_left_out_and_counted(start: Start) -> None:
    """The rule's values stay what they are; each point counts once, of whatever kind it is."""
    pipeline = start()
    spans = spans_of(range(3))
    clashing = [
        point("service_calls", value=1e6),
        point("service_calls", "sum", value=5.0),
        point(
            "service_calls",
            "histogram",
            count=40,
            sum=1.0,
            bounds=[1.0],
            bucket_counts=[40, 0],
        ),
        point(
            "service_calls",
            "histogram",
            temporality=int(Temporality.CUMULATIVE),
            count=40,
            bounds=[1.0, 2.0],
            bucket_counts=[20, 20, 0],
        ),
    ]
    honest = [point("queue.size", value=3.0)]
    assert pipeline.merge(spans, clashing + honest) == {"name_taken": 4}
    expected = {**compute(pipeline.metrics, spans), **compute_meters(honest)}
    assert differences(expected, read_store(pipeline.store)) == []
    assert pipeline.store.catalogue()["service_calls"].scope == "Service"


def test_a_meter_keeps_the_kind_it_came_with(start: Start) -> None:
    """Points of the same name and another kind are left out: now, later and after a restart."""
    pipeline = start()
    gauges = [point("load", value=0.5), point("load", value=0.75, seconds=1)]
    assert pipeline.merge(points=gauges[:1]) == {}
    assert pipeline.merge(points=[point("load", "sum", value=9.0), gauges[1]]) == {"name_taken": 1}
    pipeline.restart()
    assert pipeline.merge(points=[point("load", "sum", value=9.0)]) == {"name_taken": 1}
    assert differences(compute_meters(gauges), read_store(pipeline.store)) == []


def test_of_two_kinds_in_one_batch_one_gets_the_name(start: Start) -> None:
    """Which one does not depend on the order of the points."""
    pipeline = start()
    both = [point("load", value=0.5), point("load", "sum", value=9.0)]
    first = pipeline.partials(points=both)
    second = pipeline.partials(points=both[::-1])
    one, other = (pipeline.merger._admission.admit(partials) for partials in (first, second))
    assert one.partials.meters["function"].to_pylist() == ["counter"]
    assert one.partials.meters.equals(other.partials.meters)
    assert one.left_out == other.left_out == {"name_taken": 1}


def test_what_was_not_committed_is_not_remembered(start: Start) -> None:
    """A batch that fails leaves its entities' room to others."""
    pipeline = start(max_entities=1)
    pipeline.store.release("me")
    with pytest.raises(Exception, match="is held by nobody"):
        pipeline.merge(spans_of(range(1)))
    pipeline.store.acquire("me", 1e6)
    pipeline.merge(spans_of(range(1, 2)))
    assert pipeline.store.entities("Service") == [("service-1",)]
