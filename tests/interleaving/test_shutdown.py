"""Whatever a shutdown meets, each accepted item ends once and every handler is flushed."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainReport,
    HandlerConsumer,
    PartitionPolicy,
    ThreadPolicy,
)
from penstock.batchqueue._partition import CLOSED
from penstock.batchqueue._shutdown import Shutdown
from penstock.testing import FakeClock, RecordingHandler, eventually
from tests.interleaving.forcing import WAIT, Gate, GatedHandler, Stepped, running, types_for

if TYPE_CHECKING:
    from collections.abc import Callable

ONE = BatchQueueConfig[Any](threads=ThreadPolicy.fixed(1))


class MergeCache(HandlerConsumer[Any]):
    """Keeps sums until it is idle, like an aggregating handler."""

    def __init__(self, flush_to: Callable[[tuple[str, int]], object]) -> None:
        self.cache: Counter[str] = Counter()
        self.flush_to = flush_to

    def consume(self, batch: list[Any]) -> None:
        """Merge."""
        for key in batch:
            self.cache[key] += 1

    def on_idle(self) -> None:
        """Flush."""
        merged, self.cache = self.cache, Counter()
        for key, number in merged.items():
            self.flush_to((key, number))


def test_the_final_drain_never_races_a_handler() -> None:
    """Items left when the shutdown begins reach the handler after the batch it is in."""
    gate = Gate()
    handler = GatedHandler(gate)
    queue = BatchQueue[Any]("q", ONE)
    queue.add_handler(str, handler)
    queue.produce("in the handler")
    gate.await_arrival()
    queue.produce("left over")
    reports: list[DrainReport] = []
    with running(lambda: reports.append(queue.shutdown(60))):
        eventually(lambda: not queue.is_running)
        assert handler.items == []
        gate.open()
    assert handler.items == ["in the handler", "left over"]
    assert handler.most_at_once == 1
    assert handler.idle_calls >= 1
    assert reports[0].complete


def test_merge_caches_are_flushed_by_the_shutdown() -> None:
    """A handler that holds data back gets one last on_idle after its last item."""
    flushed: list[Any] = []
    stepped = Stepped(ONE)
    stepped.queue.add_handler(str, MergeCache(flushed.append))
    stepped.queue.produce_many(["a", "b", "a"])
    report = stepped.queue.shutdown()
    assert sorted(flushed) == [("a", 2), ("b", 1)]
    assert report.consumed == 3
    assert report.complete


def test_shutting_all_down_flushes_the_first_stage_into_the_second() -> None:
    """Queues close in the order of the flow: the last flush of L1 still reaches L2."""
    stored: list[Any] = []
    with BatchQueueManager() as queues:
        l1 = queues.create("metrics.l1", ONE)
        l2 = queues.create("metrics.l2", ONE)
        l1.add_handler(str, MergeCache(l2.produce))
        l2.add_handler(tuple, MergeCache(stored.append))
        l1.produce_many(["a", "b", "a"])
    assert sorted(key for key, _ in stored) == [("a", 2), ("b", 1)]
    assert queues.queues() == ()


def test_the_last_on_idle_comes_after_every_item() -> None:
    """A handler fed by two drainers is flushed when both are through, not when one is."""
    gate = Gate()
    log: list[str] = []

    class Handler(HandlerConsumer[Any]):
        def consume(self, batch: list[Any]) -> None:
            log.append(type(batch[0]).__name__)

        def on_idle(self) -> None:
            log.append("flush")

    stepped = Stepped(
        BatchQueueConfig(threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2))
    )
    here, there, slow = types_for(0, 1, 1, count=2)
    handler = Handler()
    stepped.queue.add_handler(here, handler)
    stepped.queue.add_handler(there, handler)
    stepped.queue.add_handler(slow, GatedHandler(gate))
    stepped.settle()
    stepped.queue.produce(slow())
    with running(lambda: stepped.step(1)):
        gate.await_arrival()
        stepped.queue.produce(there())  # waits behind the slow handler
        stepped.queue._close_intake()
        for _ in range(5):  # the first drainer has nothing to do, and must not flush yet
            stepped.step(0)
        assert log == []
        gate.open()
    assert stepped.queue.shutdown().finished
    assert log == [there.__name__, "flush"]


def test_a_stuck_handler_leaves_every_item_delivered_or_reported() -> None:
    """Past the timeout the report carries what was not delivered; nothing is in both or neither."""
    clock = FakeClock()
    queue = BatchQueue[Any]("q", ONE, clock=clock)
    gate = Gate()
    stuck, other = GatedHandler(gate), RecordingHandler[Any]()
    queue.add_handler(str, stuck)
    queue.add_handler(int, other)
    first = Gate()
    hold = GatedHandler(first)
    queue.add_handler(float, hold)
    queue.produce(0.0)
    first.await_arrival()
    queue.produce_many(["s1", "s2", 1, 2])  # one cycle takes both groups
    first.open()
    gate.await_arrival()
    queue.produce("behind")
    reports: list[DrainReport] = []
    with running(lambda: reports.append(queue.shutdown(5))):
        clock.await_sleepers(1)
        clock.advance(5)
    report = reports[0]
    assert not report.complete
    assert report.in_handlers == 2
    assert sorted(map(str, (*report.undelivered, *other.items))) == ["1", "2", "behind"]
    assert set(report.unflushed) >= {"GatedHandler"}
    gate.open()
    eventually(lambda: stuck.items == ["s1", "s2"])
    eventually(lambda: not any(t.name.startswith("penstock-q") for t in threading.enumerate()))
    assert stuck.items == ["s1", "s2"]
    stats = queue.stats()
    assert stats.accepted == stats.consumed + stats.dropped.abandoned == 6
    assert stats.in_flight == 0


def test_a_group_that_waits_for_its_handler_is_reported_when_time_is_up() -> None:
    """Of two drainers with one stuck handler, the waiting one's items are undelivered."""
    clock = FakeClock()
    config = BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
    )
    queue = BatchQueue[Any]("q", config, clock=clock)
    gate = Gate()
    stuck = GatedHandler(gate)
    here, there = types_for(0, 1, count=2)
    queue.add_handler(here, stuck)
    queue.add_handler(there, stuck)
    delivered, waiting = here(), there()
    queue.produce(delivered)
    gate.await_arrival()
    queue.produce(waiting)
    eventually(lambda: queue._drainers[1].hand)
    report = queue.shutdown(0)
    assert report.undelivered == (waiting,)
    assert report.in_handlers == 1
    gate.open()
    eventually(lambda: stuck.items == [delivered])
    eventually(lambda: not any(t.name.startswith("penstock-q") for t in threading.enumerate()))


def test_the_phases_only_go_forward() -> None:
    """Whoever asks again, and however late."""
    shutdown = Shutdown(1, FakeClock())
    shutdown.begin()
    assert shutdown.sealed()
    shutdown.begin()
    assert shutdown.phase.value == "flushing"
    assert shutdown.ended()
    shutdown.finish()
    assert not shutdown.abandon()
    assert shutdown.phase.value == "closed"
    given_up = Shutdown(1, FakeClock())
    given_up.begin()
    assert given_up.abandon()
    assert not given_up.sealed()
    assert not given_up.ended()
    given_up.finish()
    assert given_up.phase.value == "abandoned"


def test_a_second_caller_waits_for_the_first() -> None:
    """Both return when the drain is over."""
    gate = Gate()
    handler = GatedHandler(gate)
    clock = FakeClock()
    queue = BatchQueue[Any]("q", ONE, clock=clock)
    queue.add_handler(str, handler)
    queue.produce("x")
    gate.await_arrival()
    reports: list[DrainReport] = []
    with (
        running(lambda: reports.append(queue.shutdown(60))),
        running(lambda: reports.append(queue.shutdown(60))),
    ):
        clock.await_sleepers(2)
        assert reports == []
        gate.open()
    assert [report.finished for report in reports] == [True, True]
    assert handler.items == ["x"]


def test_a_second_caller_with_less_time_does_not_cut_the_first_short() -> None:
    """Its report says that the queue is still draining."""
    gate = Gate()
    handler = GatedHandler(gate)
    clock = FakeClock()
    queue = BatchQueue[Any]("q", ONE, clock=clock)
    queue.add_handler(str, handler)
    queue.produce("x")
    gate.await_arrival()
    reports: list[DrainReport] = []
    with running(lambda: reports.append(queue.shutdown(60))):
        clock.await_sleepers(1)
        assert not queue.shutdown(0).finished
        gate.open()
    assert reports[0].complete


@pytest.mark.parametrize("where", ["consume", "on_idle", "error_handler"])
def test_a_shutdown_from_ones_own_callback_does_not_deadlock(where: str) -> None:
    """It starts the shutdown, which ends by itself once the callback has returned."""
    reports: list[DrainReport] = []

    def shut(*_: object) -> None:
        if not reports:
            reports.append(queue.shutdown(60))

    class Handler(HandlerConsumer[Any]):
        def consume(self, batch: list[Any]) -> None:
            if where == "error_handler":
                raise ValueError(batch)
            if where == "consume":
                shut()

        def on_idle(self) -> None:
            if where == "on_idle":
                shut()

    queue = BatchQueue[Any](
        "q",
        BatchQueueConfig(
            threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2), error_handler=shut
        ),
    )
    queue.add_handler(str, Handler())
    queue.produce("x")
    eventually(lambda: reports)
    assert queue.shutdown(60).finished
    assert not reports[0].finished
    stats = queue.stats()
    assert stats.state == "closed"
    assert stats.consumed == stats.accepted


def test_a_shutdown_during_the_fence_ends_it() -> None:
    """The rebalancer gives everything back and the drain goes on with the old owners."""
    clock = FakeClock()
    config = BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
    )
    queue = BatchQueue[Any]("q", config, clock=clock)
    gate = Gate()
    handler = GatedHandler(gate)
    kind = types_for(0, count=2)[0]
    queue.add_handler(kind, handler)
    queue.produce(kind())
    gate.await_arrival()
    queue.produce(kind())
    moved: list[int] = []
    with running(lambda: moved.append(queue._table.hand_over({0: 1}, timeout=60))) as mover:
        eventually(lambda: queue._table.owners()[0] == -1)
        with running(lambda: queue.shutdown(60)):
            mover.join(WAIT)
            gate.open()
    assert moved == [0]
    assert len(handler.items) == 2
    assert queue.stats().dropped.total == 0


def test_a_shutdown_on_a_busy_shared_scheduler_is_bounded() -> None:
    """A stuck queue on the same scheduler costs another its timeout, not for ever."""
    clock = FakeClock()
    gate = Gate()
    shared = BatchQueueConfig[Any](shared_scheduler=("io", ThreadPolicy.fixed(1)))
    queues = BatchQueueManager(clock=clock)
    stuck, other = queues.create("stuck", shared), queues.create("other", shared)
    stuck.add_handler(str, GatedHandler(gate))
    other.add_handler(str, RecordingHandler())
    stuck.produce("x")
    gate.await_arrival()
    other.produce("y")
    report = other.shutdown(0)
    assert report.undelivered == ("y",)
    gate.open()
    assert stuck.shutdown(60).complete
    assert queues._schedulers.names() == ()


def test_no_partition_is_sealed_before_producers_are_refused() -> None:
    """While a shutdown is still telling producers, a drainer that runs closes nothing."""
    stepped = Stepped(ONE)
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(str, handler)
    stepped.queue.produce("a")
    stepped.settle()
    part = stepped.queue._routes[str]
    close = stepped.queue._table.close

    def drain_in_between() -> None:
        close()
        stepped.settle()
        assert part.owner is stepped.queue._drainers[0]

    stepped.queue._table.close = drain_in_between  # type: ignore[method-assign]
    assert stepped.queue.shutdown().complete
    assert part.owner is CLOSED


def test_a_partition_closed_in_spite_of_everything_takes_no_items() -> None:
    """Also the slow way in looks at the owner, not only at what the queue says of itself."""
    stepped = Stepped(ONE)
    stepped.queue.add_handler(str, RecordingHandler())
    stepped.queue.produce("a")
    stepped.settle()
    part = stepped.queue._routes[str]
    part.owner = CLOSED
    assert stepped.queue._put(part, ["b"], None) == 0
    assert stepped.queue.produce_many(["c"]) == 0
    assert part.buffer == []
    assert stepped.queue.stats().dropped.closed == 2
    part.owner = stepped.queue._drainers[0]
    stepped.close()


def test_a_shutdown_begun_in_a_handler_can_be_given_up_by_another_caller() -> None:
    """Whoever waits last may give up; the handler that began it cannot wait at all."""
    gate = Gate()
    reports: list[DrainReport] = []

    def shut_then_hang(batch: list[str]) -> None:
        del batch
        reports.append(queue.shutdown(60))
        gate.pass_through()

    queue = BatchQueue[Any]("q", ONE)
    queue.add_handler(str, shut_then_hang)
    queue.produce("x")
    gate.await_arrival()
    report = queue.shutdown(0)
    assert report.finished
    assert report.in_handlers == 1
    assert not reports[0].finished
    gate.open()
    eventually(lambda: not any(t.name.startswith("penstock-q") for t in threading.enumerate()))


def test_every_caller_is_told_what_was_left_over() -> None:
    """A shutdown after one that gave up reports the same undelivered items."""
    gate = Gate()
    queue = BatchQueue[Any]("q", ONE)
    queue.add_handler(str, GatedHandler(gate))
    queue.produce("stuck")
    gate.await_arrival()
    queue.produce_many(["a", "b"])
    assert queue.shutdown(0).undelivered == ("a", "b")
    again = queue.shutdown(0)
    assert again.undelivered == ("a", "b")
    assert not again.complete
    gate.open()
    eventually(lambda: not any(t.name.startswith("penstock-q") for t in threading.enumerate()))
