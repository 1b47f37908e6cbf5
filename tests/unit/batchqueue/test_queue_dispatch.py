"""From the partitions to the handlers: who gets what, and what happens when one raises."""

import logging
import threading
from typing import Any

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainBalancer,
    HandlerConsumer,
    PartitionPolicy,
    PartitionSelector,
    ThreadPolicy,
)
from penstock.batchqueue import _dispatch
from penstock.testing import FakeClock, RecordingHandler, StepExecutor, eventually
from tests.unit.rig import Rig, events, kinds


class Base:
    """A type with a subclass."""


class Derived(Base):
    """A subclass, which is another type."""


# -- who gets what ------------------------------------------------------------------------------


def test_each_type_goes_to_its_own_handler() -> None:
    """All of a type that waits comes as one batch, in the order in which it was produced."""
    rig = Rig()
    queue = rig.queue()
    strings, numbers = RecordingHandler[str](), RecordingHandler[int]()
    queue.add_handler(str, strings)
    queue.add_handler(int, numbers)
    for item in ("a", 1, "b", 2, "c"):
        queue.produce(item)
    rig.drain()
    assert (strings.batches, numbers.batches) == ([["a", "b", "c"]], [[1, 2]])


def test_a_handler_gets_items_of_exactly_its_type() -> None:
    """A subclass is not caught by the handler of its base, nor a bool by that of int."""
    rig = Rig()
    queue = rig.queue()
    base, derived, whole = RecordingHandler[Any](), RecordingHandler[Any](), RecordingHandler[Any]()
    queue.add_handler(Base, base)
    queue.add_handler(Derived, derived)
    queue.add_handler(int, whole)
    queue.produce_many([Base(), Derived(), True, 1])
    rig.drain()
    assert [type(item) for item in base.items] == [Base]
    assert [type(item) for item in derived.items] == [Derived]
    assert whole.items == [1]
    assert queue.stats().types[bool].dropped.no_handler == 1


def test_one_type_in_several_partitions_is_one_batch() -> None:
    """Seed 002: thread 0 with partitions 0 and 4 hands all A's over in one call."""
    rig = Rig()
    queue = rig.queue(
        partitions=PartitionPolicy.fixed(2), selector=lambda item, _n: 0 if item[0] == "p" else 1
    )
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    for item in ("p1", "q1", "p2", "q2"):
        queue.produce(item)
    rig.drain()
    assert handler.batches == [["p1", "p2", "q1", "q2"]]


def test_a_consumer_gets_everything_as_one_batch() -> None:
    """No grouping: what waits in the thread's partitions comes whole, of whatever types."""
    rig = Rig()
    consumer = RecordingHandler[object]()
    queue = rig.queue(consumer=consumer)
    for item in ("a", 1, "b"):
        queue.produce(item)
    rig.drain()
    assert consumer.batches == [["a", 1, "b"]]


def test_a_consumer_queue_spreads_items_over_its_partitions() -> None:
    """Round robin is the default there: one type uses all partitions and threads."""
    rig = Rig()
    consumer = RecordingHandler[str]()
    queue = rig.queue(
        consumer=consumer, threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(4)
    )
    for item in "abcdef":
        queue.produce(item)
    assert [part.used for part in queue.stats().partitions] == [2, 2, 1, 1]
    rig.drain()
    assert consumer.batches == [["a", "e", "c"], ["b", "f", "d"]]
    assert queue.stats().drained_by_thread == (3, 3)


def test_a_consumer_queue_may_be_told_to_go_by_type() -> None:
    """The selector of the configuration counts, whatever the mode."""
    queue = Rig().queue(
        consumer=print,
        partitions=PartitionPolicy.fixed(8),
        selector=PartitionSelector.type_hash(),
    )
    for item in "abc":
        queue.produce(item)
    assert sorted(part.used for part in queue.stats().partitions) == [0] * 7 + [3]


@pytest.mark.parametrize("mode", ["handler", "consumer"])
@pytest.mark.parametrize("form", ["object", "callable", "method"])
def test_handlers_come_in_three_forms(mode: str, form: str) -> None:
    """An object with consume, a plain callable, and a bound method all work, in both modes."""
    recording = RecordingHandler[str]()
    got: list[str] = []
    forms: dict[str, Any] = {
        "object": recording,
        "callable": got.extend,
        "method": recording.consume,
    }
    handler = forms[form]
    rig = Rig()
    if mode == "consumer":
        queue = rig.queue(consumer=handler)
    else:
        queue = rig.queue()
        queue.add_handler(str, handler)
    queue.produce_many(["a", "b"])
    rig.drain()
    assert (got or recording.items) == ["a", "b"]


def test_a_batch_belongs_to_its_handler() -> None:
    """Emptying it changes neither the counts nor the next batch."""
    rig = Rig()
    queue = rig.queue()
    sizes: list[int] = []

    def empty(batch: list[str]) -> None:
        sizes.append(len(batch))
        batch.clear()

    queue.add_handler(str, empty)
    for items in (["a", "b"], ["c"]):
        queue.produce_many(items)
        rig.drain()
    assert sizes == [2, 1]
    assert queue.stats().consumed == 3


def test_what_a_handler_produces_comes_in_a_later_batch() -> None:
    """A pass is bounded: new items wait for the next one."""
    rig = Rig()
    queue = rig.queue()
    batches: list[list[int]] = []

    def count_down(batch: list[int]) -> None:
        batches.append(batch)
        for number in batch:
            if number:
                queue.produce(number - 1)

    queue.add_handler(int, count_down)
    queue.produce(2)
    rig.drain()
    assert batches == [[2], [1], [0]]


# -- no handler -----------------------------------------------------------------------------------


def test_items_without_a_handler_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Per type one error that says what to do; every item is counted."""
    rig = Rig()
    queue = rig.queue()
    for _ in range(3):
        queue.produce_many(["a", "b", 1])
        rig.drain()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert {record.__dict__["type"] for record in caplog.records} == {"str", "int"}
    assert "add_handler()" in caplog.records[0].getMessage()
    assert queue.stats().dropped.no_handler == 9
    assert queue.stats().types[str].dropped.no_handler == 6
    assert queue.stats().consumed == 0


# -- raising --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(1)])
def test_what_a_handler_raises_is_logged_and_counted(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even SystemExit ends the drain; other types and later batches are delivered."""
    rig = Rig()
    queue = rig.queue()
    failing, fine = RecordingHandler[str](fail=error), RecordingHandler[int]()
    queue.add_handler(str, failing)
    queue.add_handler(int, fine)
    queue.produce_many(["a", "b", 1])
    rig.drain()
    queue.produce_many(["c", 2])
    rig.drain()
    assert (failing.items, fine.items) == (["a", "b", "c"], [1, 2])
    assert events(caplog) == ["queue.handler_failed"] * 2
    record = caplog.records[0]
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert (record.__dict__["handler"], record.__dict__["count"]) == ("RecordingHandler", 2)
    stats = queue.stats()
    assert (stats.consumed, stats.errors, stats.failed) == (5, 2, 3)


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_an_error_handler_is_told_instead_of_the_log(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets the batch and the error; nothing is logged."""
    told: list[tuple[list[str], BaseException]] = []
    rig = Rig()
    queue = rig.queue(error_handler=lambda batch, raised: told.append((batch, raised)))
    queue.add_handler(str, RecordingHandler(fail=error))
    queue.produce_many(["a", "b"])
    rig.drain()
    assert told == [(["a", "b"], error)]
    assert events(caplog) == []


def test_an_error_handler_works_for_a_consumer_too() -> None:
    """The whole batch is handed to it."""
    told: list[list[object]] = []
    rig = Rig()
    queue = rig.queue(
        consumer=RecordingHandler(fail=ValueError()),
        error_handler=lambda batch, _error: told.append(batch),
    )
    queue.produce_many(["a", "b"])
    rig.drain()
    assert told == [["a", "b"]]
    assert (queue.stats().errors, queue.stats().failed) == (1, 2)


@pytest.mark.parametrize("error", [RuntimeError("worse"), SystemExit(2)])
def test_an_error_handler_that_raises_does_no_harm(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own error is logged, and the queue goes on."""

    def fail(_batch: list[str], _error: BaseException) -> None:
        raise error

    rig = Rig()
    queue = rig.queue(error_handler=fail)
    handler = RecordingHandler[str](fail=ValueError("bad"))
    queue.add_handler(str, handler)
    for item in "ab":
        queue.produce(item)
        rig.drain()
    assert handler.items == ["a", "b"]
    assert events(caplog) == ["queue.error_handler_failed"] * 2


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_what_on_idle_raises_is_logged_and_it_is_called_again(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing flush is tried again at its next time."""

    class Failing(RecordingHandler[str]):
        def on_idle(self) -> None:
            super().on_idle()
            raise error

    rig = Rig()
    queue = rig.queue(min_idle=1.0, max_idle=1.0)
    handler = Failing()
    queue.add_handler(str, handler)
    rig.steps.advance(3.0)
    assert handler.idle_calls == 3
    assert events(caplog) == ["queue.on_idle_failed"] * 3
    queue.shutdown()


def test_a_handler_is_named_by_its_function_or_type(caplog: pytest.LogCaptureFixture) -> None:
    """The log says which handler failed."""

    def my_handler(_batch: list[str]) -> None:
        raise ValueError

    rig = Rig()
    queue = rig.queue()
    queue.add_handler(str, my_handler)
    queue.produce("a")
    rig.drain()
    assert caplog.records[0].__dict__["handler"].endswith("my_handler")


# -- idle ------------------------------------------------------------------------------------


class IdleTimes(HandlerConsumer[Any]):
    """Notes when it was idle, in seconds since it was made or last got something."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.since = clock.now()
        self.times: list[float] = []

    def consume(self, batch: list[Any]) -> None:
        """Start counting anew."""
        del batch
        self.since = self.clock.now()
        self.times.clear()

    def on_idle(self) -> None:
        """Note the time."""
        self.times.append(self.clock.now() - self.since)


# In seconds here what the defaults are in milliseconds: 1, doubling, up to 50.
IDLE = {"min_idle": 1.0, "max_idle": 50.0}
GAPS = [1, 2, 4, 8, 16, 32, 50, 50]
TIMES = [sum(GAPS[: n + 1]) for n in range(len(GAPS))]


def test_on_idle_comes_at_doubling_gaps_up_to_the_longest() -> None:
    """With nothing to do: 1, 2, 4, 8, 16, 32, then 50 each time."""
    rig = Rig()
    queue = rig.queue(**IDLE)
    handler = IdleTimes(rig.clock)
    queue.add_handler(str, handler)
    rig.steps.advance(sum(GAPS))
    assert handler.times == TIMES


def test_an_item_starts_the_gaps_over() -> None:
    """After the next item, on_idle comes after the shortest gap again."""
    rig = Rig()
    queue = rig.queue(**IDLE)
    handler = IdleTimes(rig.clock)
    queue.add_handler(str, handler)
    for _ in range(2):
        rig.steps.advance(1000.0)
        queue.produce("a")
        rig.drain()
        rig.steps.advance(sum(GAPS))
        assert handler.times == TIMES


def test_on_idle_comes_the_shortest_gap_after_the_last_item() -> None:
    """Also if that item came soon after another, or soon after the queue was made."""
    rig = Rig()
    queue = rig.queue(**IDLE)
    handler = IdleTimes(rig.clock)
    queue.add_handler(str, handler)
    queue.produce("a")
    rig.drain()
    rig.steps.advance(1.0)
    assert handler.times == [1.0]


def test_idle_calls_do_not_delay_an_item() -> None:
    """However long the queue has been idle, an item is drained at once."""
    rig = Rig()
    queue = rig.queue(**IDLE)
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    rig.steps.advance(10_000.0)
    queue.produce("a")
    assert len(rig.steps.ready()) == 1
    rig.drain()
    assert handler.items == ["a"]


def test_a_queue_without_idle_work_does_not_wake() -> None:
    """No timer is set for handlers that have no on_idle of their own."""
    rig = Rig()
    queue = rig.queue()
    queue.add_handler(str, print)
    rig.drain()
    assert rig.steps._timers == []
    assert all(drainer.parked for drainer in queue._drainers)


def test_a_quiet_handler_on_a_busy_drainer_is_not_starved() -> None:
    """While one type keeps the thread busy, the other's handler is idle every max_idle."""
    rig = Rig()
    queue = rig.queue(min_idle=1.0, max_idle=10.0)
    busy, quiet = RecordingHandler[str](), IdleTimes(rig.clock)
    queue.add_handler(str, busy)
    queue.add_handler(int, quiet)
    for _ in range(60):
        queue.produce("a")
        rig.drain()
        rig.clock.advance(0.5)
    assert quiet.times == [1.0, 11.0, 21.0]
    assert busy.idle_calls == 0


def test_a_consumer_is_idle_on_one_thread_only() -> None:
    """With several threads, on_idle is the first one's business."""
    rig = Rig()
    consumer = IdleTimes(rig.clock)
    rig.queue(
        consumer=consumer,
        threads=ThreadPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(4),
        **IDLE,
    )
    rig.steps.advance(sum(GAPS))
    assert consumer.times == TIMES


def test_with_many_threads_each_handler_has_one_that_idles_it() -> None:
    """The thread that owns a type's partition calls its handler's on_idle, and no other."""
    rig = Rig()
    queue = rig.queue(threads=ThreadPolicy.fixed(3), partitions=PartitionPolicy.fixed(6), **IDLE)
    handlers = [IdleTimes(rig.clock) for _ in range(12)]
    for kind, handler in zip(kinds(12), handlers, strict=True):
        queue.add_handler(kind, handler)
    rig.steps.advance(sum(GAPS))
    assert [handler.times for handler in handlers] == [TIMES] * 12


def test_a_handler_that_is_busy_elsewhere_is_not_idle() -> None:
    """With a selector of its own, a handler may be at work while its own thread has nothing."""
    rig = Rig()
    partition = 0
    queue = rig.queue(
        threads=ThreadPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda _item, _n: partition,
        min_idle=1.0,
        max_idle=1.0,
    )
    (kind,) = kinds(1, lambda number: number % 2 == 1)
    handler = RecordingHandler[object]()
    queue.add_handler(kind, handler)
    for _ in range(10):
        queue.produce(kind())
        rig.drain()
        rig.steps.advance(1.0)
    assert (len(handler.items), handler.idle_calls) == (10, 0)
    rig.steps.advance(1.0)
    assert handler.idle_calls == 1


def test_a_handler_in_use_on_another_thread_is_left_alone() -> None:
    """on_idle never waits for a consume under way: its turn is skipped."""
    rig = Rig()
    queue = rig.queue(min_idle=1.0, max_idle=1.0)
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    (entry,) = queue._dispatch.idlers()
    with entry.lock:
        rig.steps.advance(3.0)
    assert handler.idle_calls == 0
    rig.steps.advance(1.0)
    assert handler.idle_calls == 1


# -- threads and rebalancing ----------------------------------------------------------------------


def test_fewer_partitions_than_threads_means_fewer_threads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thread without a partition would have nothing to do: the queue warns and has fewer."""
    queue = Rig().queue(threads=ThreadPolicy.fixed(4), partitions=PartitionPolicy.fixed(2))
    assert len(queue._drainers) == 2
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "queue.threads_reduced: queue 'q' has 2 partitions for 4 threads; using 2"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"threads": ThreadPolicy.fixed(1)},
        {"shared_scheduler": ("io", ThreadPolicy.fixed(4))},
    ],
)
def test_one_thread_has_nothing_to_balance(
    settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """For one thread or a shared scheduler a balancer is silently without effect."""
    rig = Rig()
    queue = rig.queue(
        partitions=PartitionPolicy.fixed(4),
        balancer=DrainBalancer.throughput_weighted(),
        rebalance_interval=1.0,
        **settings,
    )
    assert queue._rebalancer is None
    rig.steps.advance(10.0)
    assert queue.stats().load_ratio is None
    assert events(caplog) == []


def balanced(
    rig: Rig, balancer: DrainBalancer | None = None, **settings: object
) -> BatchQueue[Any]:
    """Make a queue of two threads and four partitions that is rebalanced every 10 seconds."""
    return rig.queue(
        threads=ThreadPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(4),
        selector=lambda item, _n: item,
        balancer=balancer or DrainBalancer.throughput_weighted(),
        rebalance_interval=10.0,
        **settings,
    )


def test_a_skewed_load_is_spread_at_the_interval(caplog: pytest.LogCaptureFixture) -> None:
    """What each partition was offered decides; the log says how much it helped."""
    caplog.set_level(logging.INFO)
    rig = Rig()
    queue = balanced(rig)
    queue.add_handler(int, RecordingHandler())
    queue.produce_many([0] * 60 + [2] * 40)
    rig.steps.advance(9.0)
    assert [part.thread for part in queue.stats().partitions] == [0, 1, 0, 1]
    rig.steps.advance(1.0)
    stats = queue.stats()
    assert [part.thread for part in stats.partitions] == [0, 1, 1, 1]
    assert (stats.rebalances, stats.partitions_moved, stats.handovers_abandoned) == (1, 1, 0)
    assert stats.load_ratio == float("inf")
    (record,) = caplog.records
    assert record.getMessage() == (
        "queue.rebalanced: rebalanced 1 partitions, max thread load delta: 40.0%"
    )


def test_a_level_load_is_left_alone() -> None:
    """Below the threshold nothing moves, but the ratio is known."""
    rig = Rig()
    queue = balanced(rig)
    queue.add_handler(int, RecordingHandler())
    queue.produce_many([0] * 110 + [1] * 100)
    rig.steps.advance(10.0)
    stats = queue.stats()
    assert (stats.rebalances, stats.load_ratio) == (0, 1.1)
    rig.steps.advance(10.0)
    assert queue.stats().load_ratio is None


def test_drops_count_as_load() -> None:
    """A partition that refuses most of what it is offered is a hot one."""
    rig = Rig()
    queue = balanced(rig, buffer_size=1)
    queue.add_handler(int, RecordingHandler())
    for item in (0, 0, 0, 2, 2, 1):
        queue.produce(item, timeout=0)
    rig.steps.advance(10.0)
    assert queue.stats().load_ratio == 5.0
    assert [part.thread for part in queue.stats().partitions] == [0, 1, 1, 1]


class Foolish(DrainBalancer):
    """Answers with whatever it was made with, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def assign(self, throughput: object, owners: object, threads: object) -> Any:  # noqa: ANN401 - wrong on purpose
        """Give the answer."""
        del throughput, owners, threads
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        ([0, 1, 0], "queue.balancer_ignored"),
        ([0, 1, 0, 2], "queue.balancer_ignored"),
        ([0, 1, 0, -1], "queue.balancer_ignored"),
        ([0, 1, 0, True], "queue.balancer_ignored"),
        ([0, 1, 0, 1.0], "queue.balancer_ignored"),
        (7, "queue.balancer_failed"),
        (ValueError("no plan"), "queue.balancer_failed"),
        (SystemExit(1), "queue.balancer_failed"),
    ],
)
def test_a_balancer_that_makes_no_sense_is_ignored(
    answer: object, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its plan is logged, nothing moves, and it is asked again at the next interval."""
    rig = Rig()
    queue = balanced(rig, Foolish(answer))
    rig.steps.advance(20.0)
    assert events(caplog) == [event] * 2
    assert [part.thread for part in queue.stats().partitions] == [0, 1, 0, 1]


def test_a_balancer_of_ones_own_is_followed() -> None:
    """Any placement that makes sense is carried out; what was moved is counted."""
    rig = Rig()
    queue = balanced(rig, Foolish((1, 1, 0, 0)))
    rig.steps.advance(10.0)
    assert [part.thread for part in queue.stats().partitions] == [1, 1, 0, 0]
    assert queue.stats().partitions_moved == 2
    rig.steps.advance(10.0)
    assert queue.stats().rebalances == 1


def test_a_busy_owner_keeps_its_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """If an owner does not come back in time, nothing moves, which is counted and logged."""
    rig = Rig()
    queue = balanced(rig, Foolish([1, 1, 0, 1]), handover_timeout=0.0)
    queue._table.enter(queue._drainers[0])
    assert queue._rebalancer is not None
    assert queue._rebalancer.rebalance() == 0
    assert events(caplog) == ["queue.rebalance_abandoned"]
    assert [part.thread for part in queue.stats().partitions] == [0, 1, 0, 1]
    assert queue.stats().handovers_abandoned == 1


def test_a_shutdown_is_not_the_fault_of_a_busy_owner(caplog: pytest.LogCaptureFixture) -> None:
    """A hand-over that the end of the queue prevents is neither counted nor logged."""
    rig = Rig()
    queue = balanced(rig, Foolish([1, 1, 0, 1]))
    queue._close_intake()
    assert queue._rebalancer is not None
    assert queue._rebalancer.rebalance() == 0
    assert queue.stats().handovers_abandoned == 0
    assert events(caplog) == []


def test_who_waits_for_a_handler_can_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """While another thread is in it, the wait asks now and then whether it still makes sense."""
    monkeypatch.setattr(_dispatch, "_ENTRY_POLL", 0.001)
    queue = Rig().queue()
    queue.add_handler(str, print)
    answers = iter([False, False, True])
    inside = queue._dispatch.admit(str, lambda: False)
    assert inside is not None
    assert queue._dispatch.admit(str, lambda: next(answers)) is None
    assert next(answers, None) is None
    queue._dispatch.dismiss(inside)
    assert queue._dispatch.admit(str, lambda: True) is inside


def test_real_threads_drain_and_idle_too() -> None:
    """The same on the system's clock: produced, consumed, then idle, without anybody stepping."""
    handler = RecordingHandler[str]()
    with BatchQueueManager() as manager:
        config = BatchQueueConfig[str](threads=ThreadPolicy.fixed(1))
        queue = manager.create("tests.real", config)
        queue.add_handler(str, handler)
        queue.produce("a")
        eventually(lambda: handler.items == ["a"] and handler.idle_calls)
        names = {thread.name for thread in threading.enumerate()}
        assert "penstock-tests.real-0" in names


def test_queues_on_one_executor_keep_to_themselves() -> None:
    """Two queues on one scheduler each drain into their own handlers."""
    rig = Rig(StepExecutor())
    shared = {"shared_scheduler": ("io", ThreadPolicy.fixed(1))}
    first, second = rig.queue("a", **shared), rig.queue("b", **shared)
    one, two = RecordingHandler[str](), RecordingHandler[str]()
    first.add_handler(str, one)
    second.add_handler(str, two)
    first.produce("for one")
    second.produce("for two")
    rig.drain()
    assert (one.items, two.items) == (["for one"], ["for two"])
