"""What surroundings can do to a queue: loggers, finalizers, cancellations, growth, no threads."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    BatchQueueStats,
    BufferStrategy,
    DrainBalancer,
    DrainReport,
    HandlerConsumer,
    PartitionPolicy,
    ThreadPolicy,
)
from penstock.errors import ConfigError, ReentrantProduceError
from penstock.scheduling import ThreadScheduler
from penstock.testing import FakeClock, RecordingHandler, StepExecutor, eventually
from tests.unit.rig import PATIENCE, Rig, events, in_background, kinds

ADAPTIVE = PartitionPolicy.adaptive()
ONE = ThreadPolicy.fixed(1)
TWO = ThreadPolicy.fixed(2)


def ignore(batch: list[Any]) -> None:
    """Take a batch and do nothing."""
    del batch


# -- idle work ------------------------------------------------------------------------------------


def moves_with_growth(number: int) -> bool:
    """Whether a type of that hash is the first thread's of two partitions, and not of three."""
    return number % 2 == 0 and number % 3 == 1


def idle_rig() -> tuple[Rig, BatchQueue[Any], type, RecordingHandler[Any]]:
    """Return a queue of two threads that grows, and a type with idle work which growth moves."""
    rig = Rig()
    queue = rig.queue(threads=TWO, partitions=ADAPTIVE, min_idle=0.01, max_idle=0.1)
    (kind,) = kinds(1, moves_with_growth)
    handler = RecordingHandler[Any]()
    queue.add_handler(kind, handler)
    rig.steps.advance(1.0)
    return rig, queue, kind, handler


def test_idle_work_goes_on_when_growth_gives_it_to_a_sleeping_thread() -> None:
    """Also if the handlers that made the queue grow have no idle work themselves."""
    rig, queue, _, handler = idle_rig()
    before = handler.idle_calls
    assert before > 0
    for other in (str, int):
        queue.add_handler(other, ignore)
    assert queue.stats().partition_count == 3
    rig.steps.advance(1.0)
    assert handler.idle_calls >= before + 10


def test_idle_work_goes_on_when_a_busy_type_moves_late() -> None:
    """The new thread looks before the type has moved, and is told once it has."""
    rig, queue, kind, handler = idle_rig()
    queue.produce(kind())
    for other in (str, int):
        queue.add_handler(other, ignore)
    rig.steps.step(queue._drainers[1])  # the type is still the first thread's: nothing to do
    rig.drain()  # it is drained now, and moves
    before = handler.idle_calls
    rig.steps.advance(1.0)
    assert len(handler.items) == 1
    assert handler.idle_calls >= before + 10


def test_the_first_idle_call_comes_the_shortest_gap_after_an_item_that_ended_a_long_rest() -> None:
    """After the item: 1, 3, 7, 15, 31. None comes with the item, however long the rest before."""
    rig = Rig()
    queue = rig.queue(min_idle=1.0, max_idle=50.0)
    calls: list[float] = []

    class Idle(HandlerConsumer[int]):
        def consume(self, batch: list[int]) -> None:
            del batch

        def on_idle(self) -> None:
            calls.append(rig.clock.now())

    queue.add_handler(int, Idle())
    for rest in (500.0, 40.0, 0.5):
        rig.steps.advance(rest)
        calls.clear()
        produced = rig.clock.now()
        queue.produce(1)
        rig.drain()
        assert calls == []
        rig.steps.advance(40.0)
        assert [at - produced for at in calls] == [1.0, 3.0, 7.0, 15.0, 31.0]


# -- counting -------------------------------------------------------------------------------------


def test_what_is_in_flight_counts_as_accepted_for_its_type() -> None:
    """The number of accepted items never goes down, waiting, in a handler or consumed."""
    rig = Rig()
    queue = rig.queue()
    accepted: list[int] = []

    def look(batch: list[int] | None = None) -> None:
        del batch
        accepted.append(queue.stats().types[int].accepted)

    queue.add_handler(int, look)
    queue.produce_many([1, 2, 3])
    look()
    rig.drain()
    look()
    assert accepted == [3, 3, 3]


# -- deadlines ------------------------------------------------------------------------------------


def one_by_one(queue: BatchQueue[Any]) -> int:
    """Produce as produce_many does while the partition is locked."""
    return queue._produce_each([1, 2, 3], 10.0, 0)


def together(queue: BatchQueue[Any]) -> int:
    """Produce items of several types, each of which has to wait."""
    return queue.produce_many([1, "a", 2.0], timeout=10.0)


@pytest.mark.parametrize("produce", [one_by_one, together])
def test_the_timeout_is_for_all_items_of_a_call(produce: Callable[[BatchQueue[Any]], int]) -> None:
    """Many items that find no room are refused together, not after a timeout each."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    queue.produce(0)
    producing = in_background(lambda: produce(queue))
    rig.clock.await_sleepers(1)
    rig.clock.advance(10.0)
    assert producing.result(PATIENCE) == 0
    assert queue.stats().dropped.full == 3


# -- from an event loop ---------------------------------------------------------------------------


def test_cancelled_coroutines_leave_nothing_at_a_full_partition() -> None:
    """A client that tries again and again with a timeout does not pile up watchers."""
    queue = Rig().queue(buffer_size=1)
    queue.produce(0)
    (part,) = queue._table.partitions
    most: list[int] = []

    async def main() -> None:
        for _ in range(20):
            trying = asyncio.create_task(queue.aproduce(1))
            await asyncio.sleep(0)
            most.append(len(part.watchers or ()))
            trying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trying

    asyncio.run(main())
    assert most == [1] * 20
    assert not part.watchers


def test_aproduce_in_a_handler_does_not_wait_for_its_own_queue() -> None:
    """It raises as produce does: room would have to come from the very thread that waits."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    errors: list[ReentrantProduceError] = []

    def feed_back(batch: list[int]) -> None:
        if batch == [0]:
            assert asyncio.run(queue.aproduce(1))
            with pytest.raises(ReentrantProduceError) as raised:
                asyncio.run(queue.aproduce(2))
            errors.append(raised.value)

    queue.add_handler(int, feed_back)
    queue.produce(0)
    rig.drain()
    assert [error.accepted for error in errors] == [0]
    assert queue.stats().consumed == 2
    assert not queue._table.partitions[0].watchers


@pytest.mark.parametrize("strategy", BufferStrategy)
def test_aproduce_asks_the_selector_once(strategy: BufferStrategy) -> None:
    """Else round robin over two partitions would use one of them only."""
    rig = Rig()
    queue = rig.queue(
        threads=TWO, partitions=PartitionPolicy.fixed(2), consumer=ignore, strategy=strategy
    )

    async def main() -> None:
        for number in range(10):
            await queue.aproduce(number)

    asyncio.run(main())
    assert [part.used for part in queue.stats().partitions] == [5, 5]


# -- loggers --------------------------------------------------------------------------------------


class CallingHandler(logging.Handler):
    """A logging handler that calls a function with each record."""

    def __init__(self, call: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self.call = call

    def emit(self, record: logging.LogRecord) -> None:
        """Call."""
        self.call(record)


@contextmanager
def logging_to(call: Callable[[logging.LogRecord], object]) -> Iterator[None]:
    """Have everything that penstock logs handled by *call* for the length of the block."""
    handler = CallingHandler(call)
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def test_a_logging_handler_may_use_the_manager_that_logs() -> None:
    """Records can be sent through a queue, those about the making of a queue as well."""
    rig = Rig()
    records: list[logging.LogRecord] = []
    rig.queue("logs", consumer=records.extend)

    def send(record: logging.LogRecord) -> None:
        logs = rig.manager.get("logs")
        assert logs is not None
        logs.produce(record)

    with logging_to(send):
        making = in_background(lambda: rig.queue("reduced", threads=TWO))
        assert making.result(PATIENCE).name == "reduced"
    rig.drain()
    assert [record.getMessage().partition(":")[0] for record in records] == [
        "queue.threads_reduced"
    ]


def test_a_logging_handler_that_raises_does_not_end_the_thread() -> None:
    """A full disk costs a log line: the batch is counted and the next one delivered."""
    refused: list[str] = []

    def refuse(record: logging.LogRecord) -> None:
        refused.append(record.getMessage())
        raise OSError

    batches: list[list[int]] = []

    def fail_once(batch: list[int]) -> None:
        batches.append(batch)
        if len(batches) == 1:
            raise ValueError

    queue = BatchQueue("q", BatchQueueConfig[int](threads=ONE), clock=FakeClock())
    queue.add_handler(int, fail_once)
    with logging_to(refuse):
        queue.produce(1)
        eventually(lambda: refused == ["queue.handler_failed", "scheduler.task_failed"])
        queue.produce(2)
        eventually(lambda: len(batches) == 2)
        assert queue.shutdown(60).complete
    stats = queue.stats()
    assert (stats.accepted, stats.consumed, stats.failed, stats.in_flight) == (2, 2, 1, 0)


# -- user code under locks ------------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True])
def test_an_evicted_item_may_look_at_the_queue_when_it_is_deleted(together: bool) -> None:  # noqa: FBT001 - a column
    """Evicted items are let go of without the partition's lock."""
    queue = Rig().queue(buffer_size=1, strategy=BufferStrategy.DROP_OLDEST)
    seen: list[BatchQueueStats] = []

    class Item:
        def __del__(self) -> None:
            seen.append(queue.stats())

    def produce() -> None:
        queue.produce(Item())
        if together:
            queue.produce_many([Item()])
        else:
            queue.produce(Item())

    in_background(produce).result(PATIENCE)
    assert [(stats.dropped.evicted, stats.total_used) for stats in seen] == [(1, 1)]


def test_a_handler_may_look_at_the_queue_when_it_is_registered() -> None:
    """Its attributes are read before any lock is taken: they may be properties."""
    queue = Rig().queue()
    seen: list[str] = []

    class Lazy:
        @property
        def consume(self) -> Callable[[list[Any]], None]:
            seen.append(queue.stats().state)
            return ignore

        @property
        def on_idle(self) -> Callable[[], None]:
            seen.append(queue.stats().state)
            return lambda: None

    in_background(lambda: queue.add_handler(int, Lazy())).result(PATIENCE)
    assert set(seen) == {"running"}
    assert len(seen) >= 2


# -- threads --------------------------------------------------------------------------------------


def refuse_threads(patch: pytest.MonkeyPatch) -> None:
    """Have no thread start from now on, as at the system's limit."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError

    patch.setattr(threading.Thread, "start", refuse)


def test_a_thread_that_could_not_be_started_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was accepted meanwhile waits, and is delivered once there can be threads again."""
    items: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        refuse_threads(patch)
        queue = BatchQueue("q", BatchQueueConfig[int](threads=ONE))
        queue.add_handler(int, items.extend)
        queue.produce(1)
    assert set(events(caplog)) == {"scheduler.no_thread"}
    assert items == []
    queue.produce(2)
    eventually(lambda: items == [1, 2])
    assert queue.shutdown(60).complete


def test_without_threads_a_shutdown_does_the_work_of_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several drainers that wait for each other all come to their end on the caller's thread."""
    refuse_threads(monkeypatch)
    config = BatchQueueConfig[Any](threads=TWO, partitions=PartitionPolicy.fixed(2))
    queue = BatchQueue("q", config)
    handlers = {
        kind: RecordingHandler[Any]()
        for index in range(2)
        for kind in kinds(1, lambda number, index=index: number % 2 == index)  # type: ignore[misc]
    }
    for kind, handler in handlers.items():
        queue.add_handler(kind, handler)
        queue.produce(kind())
    assert queue.shutdown(timeout=0).complete
    assert [len(handler.items) for handler in handlers.values()] == [1, 1]


def test_a_chain_of_queues_on_one_shared_thread_does_not_wait_for_itself() -> None:
    """A handler that would wait for room in a queue which only its own thread drains is told so."""
    shared = ("io", ONE)
    errors: list[ReentrantProduceError] = []
    stored: list[int] = []
    with BatchQueueManager() as queues:
        first = queues.create("l1", BatchQueueConfig[int](shared_scheduler=shared))
        second = queues.create("l2", BatchQueueConfig[int](shared_scheduler=shared, buffer_size=1))

        def forward(batch: list[int]) -> None:
            try:
                second.produce_many(batch)
            except ReentrantProduceError as error:
                errors.append(error)

        first.add_handler(int, forward)
        second.add_handler(int, stored.extend)
        first.produce_many([1, 2, 3])
        eventually(lambda: errors)
    assert [error.accepted for error in errors] == [1]
    assert "'l2' is full" in str(errors[0])
    assert stored == [1]


def test_timers_do_not_pile_up_while_items_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is woken before its time keeps the timer it has, and on_idle is on time still."""
    refuse_threads(monkeypatch)  # so that the test runs the tasks of a real scheduler
    clock = FakeClock()
    queue = BatchQueue(
        "q", BatchQueueConfig[int](threads=ONE, min_idle=60.0, max_idle=60.0), clock=clock
    )
    handler = RecordingHandler[int]()
    queue.add_handler(int, handler)
    (scheduler,) = queue._own_schedulers
    assert isinstance(scheduler, ThreadScheduler)

    def advance(seconds: float) -> None:
        clock.advance(seconds)
        scheduler.help(lambda: False)

    advance(0.0)
    for number in range(50):
        queue.produce(number)
        advance(1.0)
    assert handler.items == list(range(50))
    assert len(scheduler._timers) == 1
    advance(59.0)  # the last item was drained when the clock had been moved for it
    assert handler.idle_calls == 0
    advance(1.0)
    assert handler.idle_calls == 1
    assert len(scheduler._timers) == 1
    assert queue.shutdown(timeout=0).complete


# -- order ----------------------------------------------------------------------------------------


def test_a_consumer_with_one_partition_gets_all_types_in_their_order() -> None:
    """Types do not matter to a consumer: produce_many keeps the order as produce does."""
    rig = Rig()
    items: list[object] = []
    queue = rig.queue(consumer=items.extend)
    queue.produce_many([1, "a", 2, "b"])
    queue.produce(3)
    queue.produce("c")
    rig.drain()
    assert items == [1, "a", 2, "b", 3, "c"]


# -- fork -----------------------------------------------------------------------------------------


class CountingBalancer(DrainBalancer):
    """Counts how often it is asked, and leaves everything as it is."""

    def __init__(self) -> None:
        self.asked = 0

    def assign(self, throughput: Sequence[int], owners: Sequence[int], threads: int) -> None:
        """Count."""
        del throughput, owners, threads
        self.asked += 1


def fork(queue: BatchQueue[Any], rig: Rig) -> StepExecutor:
    """Do to *queue* what a fork does to it in the child; return what runs its tasks there."""
    child = StepExecutor(rig.clock)  # the parent's threads, and what they would run, are gone
    queue._factory = child
    queue.renew_after_fork()
    return child


def test_after_a_fork_a_queue_is_balanced_as_before() -> None:
    """The first use brings the rebalancer back as well as the drainers."""
    rig, balancer = Rig(), CountingBalancer()
    queue = rig.queue(
        threads=TWO,
        partitions=PartitionPolicy.fixed(4),
        balancer=balancer,
        rebalance_interval=10.0,
    )
    queue.add_handler(int, ignore)
    rig.steps.advance(30.0)
    assert balancer.asked == 3
    child = fork(queue, rig)
    child.advance(30.0)
    assert balancer.asked == 3  # not used yet: nothing runs in the child
    queue.produce(1)
    child.advance(30.0)
    assert balancer.asked == 6
    assert queue.shutdown().complete


def test_after_a_fork_during_a_shutdown_nobody_waits_for_the_parents_threads() -> None:
    """The shutdown is the parent's: in the child it is over, with nothing of its items."""
    rig = Rig()
    queue = rig.queue()
    queue.add_handler(int, ignore)
    queue.produce(1)
    queue._close_intake()
    assert queue.stats().state == "draining"
    fork(queue, rig)
    assert queue.drain_at_exit(timeout=3600.0) == 0.0
    report = queue.shutdown(timeout=3600.0)
    assert report.finished
    assert report.undelivered == ()


def test_a_handler_may_shut_down_a_queue_that_its_own_thread_drains() -> None:
    """On a shared scheduler of one thread it only begins the shutdown, which ends by itself."""
    reports: list[DrainReport] = []
    shared = BatchQueueConfig[str](shared_scheduler=("one", ThreadPolicy.fixed(1)))
    with BatchQueueManager() as queues:
        first, second = queues.create("first", shared), queues.create("second", shared)
        kept: list[str] = []
        second.add_handler(str, kept.extend)
        second.produce("kept")
        first.add_handler(str, lambda _batch: reports.append(second.shutdown(60)))
        first.produce("x")
        eventually(lambda: reports)
        assert second.shutdown(60).finished
    assert not reports[0].finished
    assert kept == ["kept"]


def test_a_queue_that_was_closing_at_a_fork_is_closed_and_forgotten_in_the_child() -> None:
    """Also if another thread of the parent held its locks: they are new in the child."""
    steps = StepExecutor()
    queues = BatchQueueManager(clock=steps.clock, factory=steps)
    config = BatchQueueConfig[str](threads=ThreadPolicy.fixed(1))
    queue = queues.create("q", config)
    queue.add_handler(str, print)
    queue._refuse_producers()
    queue._route_lock.acquire()
    queue._table.partitions[0].lock.acquire()
    queues.renew_after_fork()
    queue.renew_after_fork()
    assert queue.shutdown(0).complete
    assert not queue.produce("x")
    assert queues.get("q") is None


def test_a_queue_named_twice_in_the_order_is_shut_down_once() -> None:
    """There is one report for each queue."""
    steps = StepExecutor()
    queues = BatchQueueManager(clock=steps.clock, factory=steps)
    queues.create("a", BatchQueueConfig[str](threads=ThreadPolicy.fixed(1)))
    assert [report.queue for report in queues.shutdown_all(order=["a", "a"])] == ["a"]


def test_a_new_queue_of_an_old_name_warns_anew(caplog: pytest.LogCaptureFixture) -> None:
    """What was said of the queue before says nothing of this one."""
    steps = StepExecutor()
    queues = BatchQueueManager(clock=steps.clock, factory=steps)
    one = BatchQueueConfig[str](threads=ThreadPolicy.fixed(1))
    other = BatchQueueConfig[str](threads=ThreadPolicy.fixed(1), buffer_size=5)
    for _ in range(2):
        queues.create("q", one)
        queues.get_or_create("q", other)
        queues.shutdown("q")
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == [
        "queue.config_ignored"
    ] * 2


@pytest.mark.parametrize("timeout", ["1", float("nan"), -1])
def test_a_shutdown_with_a_senseless_timeout_does_not_begin(timeout: float) -> None:
    """The queue goes on as if nothing had been asked."""
    steps = StepExecutor()
    config = BatchQueueConfig[str](threads=ThreadPolicy.fixed(1))
    queue = BatchQueue("q", config, clock=steps.clock, factory=steps)
    with pytest.raises(ConfigError, match=r"shutdown\(timeout\) must be seconds"):
        queue.shutdown(timeout)
    assert queue.is_running
    queue.shutdown()
