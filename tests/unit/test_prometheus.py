"""What a Prometheus server sees of the queues."""

import math
import subprocess
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock import (
    BatchQueueConfig,
    BatchQueueManager,
    BufferStrategy,
    DrainBalancer,
    PartitionPolicy,
    PartitionSelector,
    ThreadPolicy,
)
from penstock.batchqueue.stats import DropCounts
from penstock.prometheus import _CAUSES, QueueCollector
from penstock.testing import FakeClock, RecordingHandler, StepExecutor

Series = dict[tuple[str, ...], float]

EXPECTED = {
    "penstock_queue_used_percentage",
    "penstock_queue_capacity",
    "penstock_queue_accepted_total",
    "penstock_queue_consumed_total",
    "penstock_queue_dropped_total",
    "penstock_queue_handler_errors_total",
    "penstock_queue_partition_offered_total",
    "penstock_queue_thread_drained_total",
    "penstock_queue_thread_load_ratio",
    "penstock_queue_rebalances_total",
    "penstock_queue_partitions_moved_total",
    "penstock_queue_handovers_abandoned_total",
    "penstock_queue_type_accepted_total",
    "penstock_queue_type_consumed_total",
    "penstock_queue_type_dropped_total",
    "penstock_queue_type_handler_errors_total",
}


class Span:
    """An item."""


class Log:
    """Another."""


class Scrape:
    """A manager on steps, and what its exposition says."""

    def __init__(self) -> None:
        self.steps = StepExecutor(FakeClock())
        self.manager = BatchQueueManager(clock=self.steps.clock, factory=self.steps)
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(QueueCollector(self.manager))

    def text(self) -> str:
        """Return what a server would read."""
        return generate_latest(self.registry).decode()

    def series(self, name: str) -> Series:
        """Return the samples of *name*, by the values of their labels in order of label name."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
            if sample.name == name
        }


@pytest.fixture
def scrape() -> Scrape:
    """Nothing in it yet."""
    return Scrape()


def settings(**changed: object) -> BatchQueueConfig[Any]:
    """Return a configuration with one thread unless *changed* says otherwise."""
    changed.setdefault("threads", ThreadPolicy.fixed(1))
    return BatchQueueConfig(**changed)  # type: ignore[arg-type]


def test_an_empty_manager_has_names_but_no_samples(scrape: Scrape) -> None:
    """A scrape before the first queue is valid, and every name is announced already."""
    families = list(text_string_to_metric_families(scrape.text()))
    assert {family.name for family in families} == {n.removesuffix("_total") for n in EXPECTED}
    assert not [sample for family in families for sample in family.samples]


def test_items_are_counted_from_producer_to_handler(scrape: Scrape) -> None:
    """Accepted and consumed follow the items; errors count the calls that raised."""
    queue = scrape.manager.create("spans", settings())
    queue.add_handler(Span, RecordingHandler(fail=ValueError("no")))
    queue.produce_many([Span(), Span(), Span()])
    assert scrape.series("penstock_queue_accepted_total") == {("spans",): 3}
    assert scrape.series("penstock_queue_consumed_total") == {("spans",): 0}
    scrape.steps.run_until_idle()
    assert scrape.series("penstock_queue_consumed_total") == {("spans",): 3}
    assert scrape.series("penstock_queue_handler_errors_total") == {("spans",): 1}
    assert scrape.series("penstock_queue_thread_drained_total") == {("spans", "0"): 3}


def test_drops_are_counted_by_cause(scrape: Scrape) -> None:
    """Each cause is a series from the start, so that a rate over it begins at zero."""
    queue = scrape.manager.create("q", settings(buffer_size=2, strategy=BufferStrategy.IF_POSSIBLE))
    assert set(scrape.series("penstock_queue_dropped_total")) == {(c, "q") for c in _CAUSES}
    queue.produce_many([Span(), Span(), Span()])
    scrape.steps.run_until_idle()
    dropped = scrape.series("penstock_queue_dropped_total")
    assert dropped["full", "q"] == 1
    assert dropped["no_handler", "q"] == 2
    assert sum(dropped.values()) == 3


def test_no_cause_of_a_drop_is_left_out() -> None:
    """A cause that is added to the counts must be added to the metrics."""
    assert set(_CAUSES) == set(DropCounts.__slots__)


def test_fill_levels_name_the_total_and_the_fullest_partitions(scrape: Scrape) -> None:
    """The fullest partition is top1, whichever it is; no more than ten are named."""
    queue = scrape.manager.create(
        "q",
        settings(
            partitions=PartitionPolicy.fixed(12), buffer_size=4, selector=lambda item, _n: item
        ),
    )
    queue.produce_many([7, 7, 7, 3])
    used = scrape.series("penstock_queue_used_percentage")
    assert used["q", "total"] == pytest.approx(100 * 4 / 48)
    assert (used["q", "top1"], used["q", "top2"], used["q", "top3"]) == (75, 25, 0)
    assert len(used) == 11
    assert scrape.series("penstock_queue_capacity") == {("q",): 48}


def test_a_queue_with_few_partitions_has_few_slots(scrape: Scrape) -> None:
    """There is no top2 where there is one partition."""
    scrape.manager.create("q", settings())
    assert set(scrape.series("penstock_queue_used_percentage")) == {("q", "total"), ("q", "top1")}


def test_throughput_counts_refused_items_too(scrape: Scrape) -> None:
    """What a partition was offered includes what it had no room for."""
    queue = scrape.manager.create(
        "q",
        settings(
            partitions=PartitionPolicy.fixed(2),
            selector=PartitionSelector.round_robin(),
            buffer_size=1,
            strategy=BufferStrategy.IF_POSSIBLE,
        ),
    )
    assert queue.produce_many([Span()] * 5) == 2
    assert scrape.series("penstock_queue_partition_offered_total") == {("0", "q"): 3, ("1", "q"): 2}


def test_rebalancing_shows_in_its_figures(scrape: Scrape) -> None:
    """The load ratio comes with the first interval; it is infinite if a thread had nothing."""
    queue = scrape.manager.create(
        "q",
        settings(
            threads=ThreadPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(4),
            selector=lambda item, _count: item,
            balancer=DrainBalancer.throughput_weighted(),
            rebalance_interval=10.0,
        ),
    )
    scrape.steps.run_until_idle()
    assert scrape.series("penstock_queue_thread_load_ratio") == {}
    queue.produce_many([0, 2])  # both belong to thread 0
    scrape.steps.advance(10.0)
    assert scrape.series("penstock_queue_thread_load_ratio") == {("q",): math.inf}
    assert scrape.series("penstock_queue_rebalances_total") == {("q",): 1}
    assert scrape.series("penstock_queue_partitions_moved_total") == {("q",): 1}
    assert scrape.series("penstock_queue_handovers_abandoned_total") == {("q",): 0}
    queue.produce_many([0, 0, 2])
    scrape.steps.advance(10.0)
    assert scrape.series("penstock_queue_thread_load_ratio") == {("q",): 2}


def test_types_have_series_of_their_own(scrape: Scrape) -> None:
    """Per type: accepted, consumed, dropped and failed calls, under the qualified name."""
    queue = scrape.manager.create("q", settings())
    queue.add_handler(Span, RecordingHandler(fail=ValueError("no")))
    queue.produce_many([Span(), Span(), Log()])
    scrape.steps.run_until_idle()
    span, log = ("q", f"{__name__}.Span"), ("q", f"{__name__}.Log")
    assert scrape.series("penstock_queue_type_accepted_total") == {span: 2, log: 1}
    assert scrape.series("penstock_queue_type_consumed_total") == {span: 2, log: 0}
    assert scrape.series("penstock_queue_type_dropped_total") == {span: 0, log: 1}
    assert scrape.series("penstock_queue_type_handler_errors_total") == {span: 1, log: 0}


def test_a_types_counter_does_not_fall_while_its_items_are_handled(scrape: Scrape) -> None:
    """A server takes a counter that falls for a restart, and shows a burst that never was."""
    queue = scrape.manager.create("q", settings())
    seen: list[float] = []

    def handle(batch: list[Span]) -> None:
        del batch
        seen.extend(scrape.series("penstock_queue_type_accepted_total").values())

    queue.add_handler(Span, handle)
    queue.produce_many([Span(), Span()])
    scrape.steps.run_until_idle()
    assert seen == [2]


def test_types_that_share_a_name_are_added_up(scrape: Scrape) -> None:
    """A series that came twice would make the server refuse the whole scrape."""
    twins = [type("Twin", (), {}), type("Twin", (), {})]
    queue = scrape.manager.create("q", settings())
    queue.produce_many([twin() for twin in twins])
    assert list(scrape.series("penstock_queue_type_accepted_total").values()) == [2]
    assert scrape.text().count("penstock_queue_type_accepted_total{") == 1


def test_a_single_consumer_has_no_types(scrape: Scrape) -> None:
    """A queue that never looks at types has no series per type."""
    queue = scrape.manager.create("q", settings(consumer=RecordingHandler()))
    queue.produce(Span())
    assert scrape.series("penstock_queue_type_accepted_total") == {}
    assert scrape.series("penstock_queue_accepted_total") == {("q",): 1}


def test_every_queue_of_the_manager_is_scraped(scrape: Scrape) -> None:
    """Queues are told apart by their label."""
    for name in ("a", "b"):
        scrape.manager.create(name, settings()).produce(Span())
    assert scrape.series("penstock_queue_accepted_total") == {("a",): 1, ("b",): 1}


def test_a_queue_that_was_shut_down_is_gone(scrape: Scrape) -> None:
    """After a shutdown the other queues go on, and a scrape does not stumble."""
    for name in ("a", "b"):
        scrape.manager.create(name, settings())
    scrape.manager.shutdown("a")
    assert set(scrape.series("penstock_queue_accepted_total")) == {("b",)}


def test_a_queue_that_ends_during_a_scrape_does_no_harm(scrape: Scrape) -> None:
    """Queues found when the scrape began are reported as they are when their turn comes."""
    queue = scrape.manager.create("q", settings())
    queue.add_handler(Span, RecordingHandler())
    queue.produce(Span())
    families = QueueCollector(scrape.manager).collect()
    next(families)
    queue.shutdown()
    assert len([next(families), *families]) == len(EXPECTED) - 1
    assert scrape.series("penstock_queue_accepted_total") == {}


def test_names_are_escaped(scrape: Scrape) -> None:
    """Quotes, backslashes and line ends in a queue's name do not break the exposition."""
    name = 'a "b" \\ c\nd'
    scrape.manager.create(name, settings())
    assert set(scrape.series("penstock_queue_accepted_total")) == {(name,)}
    assert r'{queue="a \"b\" \\ c\nd"}' in scrape.text()


def test_without_prometheus_client_the_message_names_the_extra() -> None:
    """Whoever imports it on a plain install reads what to install."""
    program = (
        "import sys; sys.modules['prometheus_client.core'] = None\n"
        "try:\n    import penstock.prometheus\n"
        "except ImportError as error:\n    sys.exit(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install 'penstock[prometheus]'" in done.stderr
