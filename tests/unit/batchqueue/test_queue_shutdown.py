"""A queue ends: nothing new, everything out, every handler flushed, or told what is left."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainBalancer,
    DrainReport,
    HandlerConsumer,
    PartitionPolicy,
    ThreadPolicy,
)
from penstock.batchqueue import DropCounts
from penstock.scheduling import Task
from penstock.testing import RecordingHandler, StepExecutor
from tests.unit.rig import PATIENCE, Rig, Unhelpful, await_event, events, in_background, kinds


class Story(HandlerConsumer[str]):
    """Writes down what happens to it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def consume(self, batch: list[str]) -> None:
        """Write the batch down."""
        self.lines.append("+".join(batch))

    def on_idle(self) -> None:
        """Write the flush down."""
        self.lines.append("flush")


class Stuck(HandlerConsumer[Any]):
    """A handler that does not return before it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()

    def consume(self, batch: list[Any]) -> None:
        """Keep *batch* until it is let go."""
        del batch
        self.entered.set()
        await_event(self.go)


# -- in good order --------------------------------------------------------------------------------


def test_a_shutdown_drains_then_flushes() -> None:
    """What waits is delivered, and each handler gets one last on_idle after it."""
    rig = Rig()
    queue = rig.queue()
    story = Story()
    queue.add_handler(str, story)
    queue.produce_many(["a", "b"])
    report = queue.shutdown()
    assert story.lines == ["a+b", "flush"]
    assert (report.queue, report.consumed, report.undelivered) == ("q", 2, ())
    assert (report.in_handlers, report.unflushed, report.finished) == (0, (), True)
    assert report.complete
    rig.steps.advance(3600.0)
    assert story.lines == ["a+b", "flush"]


def test_an_empty_queue_is_flushed_all_the_same() -> None:
    """A cache may hold what came long ago; every handler is flushed once."""
    queue = Rig().queue(threads=ThreadPolicy.fixed(3), partitions=PartitionPolicy.fixed(6))
    stories = [Story() for _ in range(7)]
    for kind, story in zip(kinds(7), stories, strict=True):
        queue.add_handler(kind, story)
    report = queue.shutdown()
    assert [story.lines for story in stories] == [["flush"]] * 7
    assert report.complete


def test_a_consumer_is_flushed_too() -> None:
    """Once, whatever the number of threads, and after everything."""
    story = Story()
    queue = Rig().queue(
        consumer=story, threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
    )
    queue.produce_many(["a", "b", "c"])
    assert queue.shutdown().complete
    assert story.lines == ["a+c", "b", "flush"]


def test_what_a_handler_produces_during_shutdown_is_refused() -> None:
    """New items are refused from the start, also those of the queue's own handlers."""
    queue = Rig().queue()
    answers: list[bool] = []
    queue.add_handler(str, lambda _batch: answers.append(queue.produce("more")))
    queue.produce("a")
    report = queue.shutdown()
    assert answers == [False]
    assert report.complete
    assert queue.stats().dropped == DropCounts(closed=1)


def test_a_report_counts_from_the_start_of_the_shutdown() -> None:
    """What was consumed before is not in it; the time is that of the clock."""
    rig = Rig()
    queue = rig.queue()
    queue.add_handler(str, lambda _batch: rig.clock.advance(1.5))
    queue.produce_many("abc")
    rig.drain()
    queue.produce_many("de")
    report = queue.shutdown()
    assert (report.consumed, report.elapsed) == (2, 1.5)


def test_failing_handlers_do_not_hold_up_a_shutdown() -> None:
    """Items whose handler raised count as consumed, a flush that raised as flushed."""

    class Failing(RecordingHandler[str]):
        def on_idle(self) -> None:
            super().on_idle()
            raise ValueError

    queue = Rig().queue()
    handler = Failing(fail=ValueError())
    queue.add_handler(str, handler)
    queue.produce("a")
    assert queue.shutdown().complete
    assert (handler.items, handler.idle_calls) == (["a"], 1)


def test_items_without_a_handler_do_not_hold_up_a_shutdown() -> None:
    """They are dropped and counted as ever."""
    queue = Rig().queue()
    queue.produce("a")
    report = queue.shutdown()
    assert (report.complete, report.consumed) == (True, 0)
    assert queue.stats().dropped == DropCounts(no_handler=1)


def test_a_queue_is_a_context_manager() -> None:
    """Leaving it shuts it down, also by an exception, which passes through."""
    rig = Rig()
    handler = RecordingHandler[str]()
    queue = rig.queue()

    def use() -> None:
        with queue as entered:
            assert entered is queue
            queue.add_handler(str, handler)
            queue.produce("a")
            raise LookupError

    with pytest.raises(LookupError):
        use()
    assert handler.items == ["a"]
    assert not queue.is_running


def test_a_queue_without_a_manager_works_alone() -> None:
    """Made by hand it has its own threads, and ends them."""
    handler = RecordingHandler[str]()
    config = BatchQueueConfig[str](
        threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
    )
    with BatchQueue("tests.alone", config) as queue:
        queue.add_handler(str, handler)
        queue.produce("a")
    assert handler.items == ["a"]


def test_a_rebalanced_queue_ends_its_rebalancer() -> None:
    """Real threads, the rebalancer's included, are gone when shutdown returns."""
    config = BatchQueueConfig[str](
        threads=ThreadPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        balancer=DrainBalancer.throughput_weighted(),
        rebalance_interval=3600.0,
    )
    queue = BatchQueue("tests.rebalanced", config)
    assert queue.shutdown().complete
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith("penstock-tests.rebalanced") for name in names)


def test_a_blocked_producer_is_let_go() -> None:
    """Who waits for room when the queue shuts down is refused, and the item not accepted."""
    rig = Rig(Unhelpful())
    queue = rig.queue(buffer_size=1)
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    queue.produce("a")
    waiting = in_background(lambda: queue.produce("b"))
    rig.clock.await_sleepers(1)
    ending = in_background(queue.shutdown)
    assert waiting.result(PATIENCE) is False
    rig.clock.await_sleepers(1)
    rig.drain()
    assert ending.result(PATIENCE).complete
    assert handler.items == ["a"]
    assert queue.stats().dropped == DropCounts(closed=1)


def test_of_many_items_those_accepted_before_the_shutdown_are_delivered() -> None:
    """A blocked produce_many returns what went in; the rest counts as closed."""
    rig = Rig(Unhelpful())
    queue = rig.queue(buffer_size=2)
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    waiting = in_background(lambda: queue.produce_many("abcde"))
    rig.clock.await_sleepers(1)
    ending = in_background(queue.shutdown)
    assert waiting.result(PATIENCE) == 2
    rig.clock.await_sleepers(1)
    rig.drain()
    assert ending.result(PATIENCE).complete
    assert handler.items == ["a", "b"]
    assert queue.stats().dropped == DropCounts(closed=3)


def test_a_shared_scheduler_goes_on_for_the_others() -> None:
    """One queue's end does not touch the other queues of its scheduler."""
    with BatchQueueManager() as manager:
        config = BatchQueueConfig[str](shared_scheduler=("tests.io", ThreadPolicy.fixed(1)))
        first, second = manager.create("a", config), manager.create("b", config)
        handler = RecordingHandler[str]()
        second.add_handler(str, handler)
        assert first.shutdown().complete
        second.produce("still there")
        assert second.shutdown().complete
        assert handler.items == ["still there"]


def test_without_threads_a_shutdown_drains_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no thread can start any more, the caller of shutdown does the work."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    story = Story()
    queue = BatchQueue("tests.late", BatchQueueConfig[str](threads=ThreadPolicy.fixed(1)))
    queue.add_handler(str, story)
    queue.produce_many(["a", "b"])
    assert queue.shutdown(timeout=0).complete
    assert story.lines == ["a+b", "flush"]


# -- several callers ------------------------------------------------------------------------------


def test_a_shutdown_after_the_end_reports_that_it_is_over() -> None:
    """Nothing more is consumed or flushed."""
    queue = Rig().queue()
    story = Story()
    queue.add_handler(str, story)
    queue.produce("a")
    queue.shutdown()
    report = queue.shutdown()
    assert (report.complete, report.consumed) == (True, 0)
    assert story.lines == ["a", "flush"]


def test_a_second_caller_waits_for_the_first() -> None:
    """Both return when the queue has ended."""
    rig = Rig(Unhelpful())
    queue = rig.queue()
    queue.add_handler(str, print)
    first = in_background(queue.shutdown)
    rig.clock.await_sleepers(1)
    second = in_background(queue.shutdown)
    rig.clock.await_sleepers(2)
    assert not first.done()
    assert not second.done()
    rig.drain()
    assert first.result(PATIENCE).complete
    assert second.result(PATIENCE).complete


def test_a_second_caller_with_less_time_learns_that_it_goes_on() -> None:
    """Its report is not finished; the first caller's shutdown is not cut short."""
    rig = Rig(Unhelpful())
    queue = rig.queue()
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    queue.produce("a")
    first = in_background(queue.shutdown)
    rig.clock.await_sleepers(1)
    report = queue.shutdown(timeout=0)
    assert (report.finished, report.complete, report.undelivered) == (False, False, ())
    rig.drain()
    assert first.result(PATIENCE).complete
    assert handler.items == ["a"]


@pytest.mark.parametrize("where", ["consume", "on_idle"])
def test_a_handler_may_shut_its_own_queue_down(where: str) -> None:
    """From inside it only begins; the queue ends by itself when the handler has returned."""
    rig = Rig()
    queue = rig.queue(min_idle=1.0, max_idle=1.0)
    reports: list[Any] = []

    class Ending(HandlerConsumer[str]):
        def consume(self, batch: list[str]) -> None:
            del batch
            if where == "consume":
                reports.append(queue.shutdown())

        def on_idle(self) -> None:
            if where == "on_idle" and not reports:
                reports.append(queue.shutdown())

    queue.add_handler(str, Ending())
    queue.produce("a")
    rig.drain()
    rig.steps.advance(1.0)
    (report,) = reports
    assert (report.finished, report.complete) == (False, False)
    assert (report.in_handlers, report.unflushed) == (0, ())
    assert queue.stats().state == "closed"
    assert queue.shutdown().complete


# -- out of time ----------------------------------------------------------------------------------


def test_what_was_not_delivered_in_time_is_in_the_report(caplog: pytest.LogCaptureFixture) -> None:
    """All items that waited, in the order of their partitions; counted and logged."""
    rig = Rig(Unhelpful())
    queue = rig.queue(partitions=PartitionPolicy.fixed(2), selector=lambda item, _n: int(item[1]))
    story = Story()
    queue.add_handler(str, story)
    queue.produce_many(["a1", "b0", "c0"])
    report = queue.shutdown(timeout=0)
    assert report.undelivered == ("b0", "c0", "a1")
    assert (report.finished, report.complete) == (True, False)
    assert report.unflushed == ("Story",)
    assert queue.stats().dropped == DropCounts(abandoned=3)
    assert queue.stats().types[str].dropped == DropCounts(abandoned=3)
    assert (queue.stats().state, queue.stats().total_used) == ("abandoned", 0)
    assert events(caplog) == ["queue.shutdown_timed_out"]
    rig.drain()
    assert story.lines == []


def test_a_timeout_with_nothing_left_is_not_worth_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An empty queue whose threads were late has lost nothing."""
    rig = Rig(Unhelpful())
    report = rig.queue().shutdown(timeout=0)
    assert report.complete
    assert events(caplog) == []


def test_a_queue_that_ran_out_of_time_frees_its_name() -> None:
    """Its manager and shared scheduler let go of it."""
    rig = Rig(Unhelpful())
    queue = rig.queue(shared_scheduler=("io", ThreadPolicy.fixed(1)))
    queue.shutdown(timeout=0)
    assert rig.manager.get("q") is None
    assert rig.manager._schedulers.names() == ()
    assert queue.produce("late") is False


def test_the_time_is_that_of_the_configuration_unless_told() -> None:
    """shutdown_timeout is how long a shutdown waits by default."""
    rig = Rig(Unhelpful())
    queue = rig.queue(shutdown_timeout=7.0)
    queue.produce("a")
    ending = in_background(queue.shutdown)
    rig.clock.await_sleepers(1)
    rig.clock.advance(6.9)
    rig.clock.await_sleepers(1)
    assert not ending.done()
    rig.clock.advance(0.2)
    report = ending.result(PATIENCE)
    assert report.undelivered == ("a",)
    assert report.elapsed == pytest.approx(7.1)


def test_a_stuck_handler_is_left_with_what_it_has() -> None:
    """Its own batch is in its hands; what was taken with it, and what waited, is reported."""
    rig = Rig(Unhelpful())
    queue = rig.queue()
    stuck, other = Stuck(), RecordingHandler[int]()
    queue.add_handler(str, stuck)
    queue.add_handler(int, other)
    queue.produce_many(["a", "b", 1])
    draining = in_background(rig.drain)
    await_event(stuck.entered)
    queue.produce("waits")
    report = queue.shutdown(timeout=0)
    assert sorted(map(str, report.undelivered)) == ["1", "waits"]
    assert (report.in_handlers, report.consumed, report.complete) == (2, 0, False)
    assert report.unflushed == ("RecordingHandler",)
    stuck.go.set()
    draining.result(PATIENCE)
    assert other.items == []
    stats = queue.stats()
    assert (stats.consumed, stats.dropped) == (2, DropCounts(abandoned=2))
    assert stats.in_flight == 0


def test_a_flush_that_is_stuck_is_reported() -> None:
    """Handlers whose last on_idle has not returned, or was not reached, are named."""
    rig = Rig(Unhelpful())
    queue = rig.queue()
    gate = Stuck()

    class Slow(RecordingHandler[str]):
        def on_idle(self) -> None:
            gate.consume([])

    queue.add_handler(str, Slow())
    queue.add_handler(int, RecordingHandler())
    ending = in_background(lambda: queue.shutdown(timeout=5.0))
    rig.clock.await_sleepers(1)
    draining = in_background(rig.drain)
    await_event(gate.entered)
    rig.clock.advance(5.0)
    report = ending.result(PATIENCE)
    assert report.undelivered == ()
    assert [name.rpartition(".")[2] for name in report.unflushed] == ["Slow", "RecordingHandler"]
    assert not report.complete
    gate.go.set()
    draining.result(PATIENCE)


def test_a_queue_that_lost_items_is_complete_for_nobody() -> None:
    """Whoever asks again after an abandoned shutdown is not told that all went well."""
    queue = Rig(Unhelpful()).queue()
    queue.produce("lost")
    assert not queue.shutdown(timeout=0).complete
    assert not queue.shutdown(timeout=0).complete


def test_a_consumer_that_ran_out_of_time_is_counted_whole() -> None:
    """Its types are never looked at, but what it did not get is in the totals."""
    queue = Rig(Unhelpful()).queue(consumer=print)
    queue.produce_many(["a", 1])
    report = queue.shutdown(timeout=0)
    assert report.undelivered == ("a", 1)
    stats = queue.stats()
    assert (stats.dropped, dict(stats.types)) == (DropCounts(abandoned=2), {})


def test_time_that_runs_out_in_the_last_moment_does_no_harm() -> None:
    """One caller gives up while the last drainer lets go: everything is let go of once."""
    reports: list[DrainReport] = []

    class LastMoment(StepExecutor):
        is_last = True

        def close(self, timeout: float) -> bool:
            if self.is_last:
                self.is_last = False  # the other caller comes by here as well
                reports.append(in_background(lambda: queue.shutdown(0)).result(PATIENCE))
            return super().close(timeout)

    rig = Rig(LastMoment())
    queue = rig.queue()
    story = Story()
    queue.add_handler(str, story)
    queue.produce("a")
    reports.append(queue.shutdown())
    assert [report.complete for report in reports] == [True, True]
    assert story.lines == ["a", "flush"]
    assert rig.manager.get("q") is None


# -- at the wrong moment --------------------------------------------------------------------------


def test_a_shutdown_that_begins_while_a_drainer_parks_is_noticed() -> None:
    """Between a drainer's last look and its sleep, the phase alone is enough to wake it."""

    class Late(StepExecutor):
        begun = False

        def _settle(self, task: Task, delay: float | None) -> None:
            if not self.begun:
                self.begun = True
                queue._refuse_producers()
                queue._shutdown.begin()  # and nobody has woken the drainers yet
            super()._settle(task, delay)

    rig = Rig(Late())
    queue = rig.queue()
    rig.drain()
    assert queue.stats().state == "closed"


def test_an_item_that_slipped_in_before_the_sealing_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer that was on its way when the shutdown began is not forgotten."""
    queue = Rig().queue()
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    (part,) = queue._table.partitions
    seal = queue._table.seal
    late = ["late"]

    def append_then_seal(drainer: Any) -> bool:  # noqa: ANN401 - whatever seal() takes
        if late:
            part.buffer.append(late.pop())
        return seal(drainer)

    monkeypatch.setattr(queue._table, "seal", append_then_seal)
    assert queue.shutdown().complete
    assert handler.items == ["late"]


# -- the end of the interpreter -------------------------------------------------------------------


def test_at_exit_a_queue_is_drained() -> None:
    """The time it took is returned, for the deadline that all queues share."""
    rig = Rig()
    queue = rig.queue()
    queue.add_handler(str, lambda _batch: rig.clock.advance(2.0))
    queue.produce("a")
    assert queue.drain_at_exit(timeout=5.0) == 2.0
    assert queue.stats().consumed == 1
    assert queue.drain_at_exit(timeout=5.0) == 0.0


def test_at_exit_what_could_not_be_drained_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The last words of a process say how much it lost."""
    rig = Rig(Unhelpful())
    queue = rig.queue()
    queue.produce_many("ab")
    assert queue.drain_at_exit(timeout=0.0) == 0.0
    assert events(caplog)[-1] == "queue.exit_incomplete"
    assert "2 items of queue 'q' undelivered, 0 in handlers" in caplog.text


# -- fork -----------------------------------------------------------------------------------------


def fork(queue: BatchQueue[Any], rig: Rig) -> None:
    """Do to *queue* what happens in the child of a fork, in the order in which it happens."""
    rig.steps._ready.clear()  # as a real scheduler does
    rig.steps._timers.clear()
    rig.manager._schedulers.renew_after_fork()
    rig.manager.renew_after_fork()
    queue.renew_after_fork()


def test_after_a_fork_a_queue_is_empty_and_works() -> None:
    """The parent's items and counts stay with the parent; handlers are still there."""
    rig = Rig()
    queue = rig.queue()
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    queue.produce("parent's")
    fork(queue, rig)
    assert (queue.stats().accepted, queue.stats().total_used) == (0, 0)
    queue.produce("child's")
    assert queue.shutdown().complete
    assert handler.items == ["child's"]


def test_after_a_fork_no_thread_is_started_before_it_is_needed() -> None:
    """A queue that the child does not use costs it nothing, not even at exit."""
    rig = Rig()
    queue = rig.queue()
    queue.add_handler(str, print)
    rig.drain()
    fork(queue, rig)
    assert rig.steps.ready() == ()
    assert queue.drain_at_exit(timeout=5.0) == 0.0
    assert queue.is_running


def test_after_a_fork_a_queue_that_was_used_is_drained_at_exit() -> None:
    """What the child produced is delivered before it ends."""
    rig = Rig()
    queue = rig.queue()
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    fork(queue, rig)
    queue.produce("child's")
    queue.drain_at_exit(timeout=5.0)
    assert handler.items == ["child's"]


@pytest.mark.parametrize("handler", [RecordingHandler[str](), [].extend])
def test_after_a_fork_a_handler_that_was_in_use_can_be_entered(handler: Any) -> None:  # noqa: ANN401 - two forms
    """A thread of the parent that was in it does not keep the child out for ever."""
    rig = Rig()
    queue = rig.queue()
    queue.add_handler(str, handler)
    entry = queue._dispatch.admit(str, lambda: False)
    assert entry is not None
    fork(queue, rig)
    assert not entry.lock.locked()


def test_after_a_fork_a_queue_that_was_shut_down_stays_so() -> None:
    """There is nothing to bring back."""
    rig = Rig()
    queue = rig.queue()
    queue.shutdown()
    fork(queue, rig)
    assert not queue.is_running
    assert queue.produce("a") is False


def test_after_a_fork_a_shared_scheduler_closes_with_its_last_user() -> None:
    """Uses are counted anew in the child."""
    rig = Rig()
    queue = rig.queue(shared_scheduler=("io", ThreadPolicy.fixed(1)))
    fork(queue, rig)
    assert queue.shutdown().complete
    assert rig.manager._schedulers.names() == ()


def test_after_a_fork_a_queue_has_as_many_threads_and_partitions_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Growth only: an adaptive queue is not smaller in the child."""
    rig = Rig()
    queue = rig.queue(threads=ThreadPolicy.fixed(4), partitions=PartitionPolicy.adaptive())
    queue.add_handler(str, print)
    before = queue.stats().partition_count, len(queue._drainers)
    fork(queue, rig)
    assert (queue.stats().partition_count, len(queue._drainers)) == before == (4, 4)
    assert events(caplog) == []


# -- repr -----------------------------------------------------------------------------------------


def test_the_repr_says_how_a_queue_is() -> None:
    """Name, state, drainers and filling: the first thing one looks at."""
    rig = Rig(Unhelpful())
    queue = rig.queue(
        "metrics.l1",
        threads=ThreadPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(3),
        buffer_size=10,
    )
    queue.produce("a")
    assert repr(queue) == "<BatchQueue 'metrics.l1' running, 2 drainers, 1/30 used>"
    ending = in_background(queue.shutdown)
    rig.clock.await_sleepers(1)
    assert repr(queue) == "<BatchQueue 'metrics.l1' draining, 2 drainers, 1/30 used>"
    rig.drain()
    ending.result(PATIENCE)
    assert repr(queue) == "<BatchQueue 'metrics.l1' closed, 2 drainers, 0/30 used>"


def test_is_running_until_it_is_shut_down() -> None:
    """From the first moment of the shutdown it is not."""
    rig = Rig()
    queue = rig.queue()
    seen = SimpleNamespace(inside=None)

    def look(_batch: list[str]) -> None:
        seen.inside = queue.is_running

    queue.add_handler(str, look)
    queue.produce("a")
    assert queue.is_running
    queue.shutdown()
    assert seen.inside is False
    assert not queue.is_running


def test_partitions_and_owners_have_a_repr_for_debugging() -> None:
    """A partition shows its filling and who drains it."""
    queue = Rig().queue(buffer_size=5)
    queue.produce("a")
    (part,) = queue._table.partitions
    assert repr(part).startswith("<Partition 0, 1/5 used, of <penstock.batchqueue._drainer.Drainer")
    queue.shutdown()
    assert repr(part) == "<Partition 0, 0/5 used, of CLOSED>"
