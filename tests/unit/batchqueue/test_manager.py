"""Queues by name: one each, shared by whoever asks, shut down in order."""

import threading
from dataclasses import replace
from types import TracebackType

import pytest

from penstock import BatchQueueConfig, BatchQueueManager, HandlerConsumer, ThreadPolicy
from penstock.clock import Clock
from penstock.errors import QueueExistsError, QueueModeError
from penstock.testing import RecordingHandler, StepExecutor
from tests.unit.rig import PATIENCE, Rig, await_event, events, in_background

HANDLERS: BatchQueueConfig[str] = BatchQueueConfig(threads=ThreadPolicy.fixed(1))
CONSUMER: BatchQueueConfig[str] = replace(HANDLERS, consumer=RecordingHandler())
SHARED: BatchQueueConfig[str] = BatchQueueConfig(shared_scheduler=("io", ThreadPolicy.fixed(1)))


class AnnouncedLock:
    """A lock that tells when somebody comes to take it."""

    def __init__(self) -> None:
        self.visitors = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.visitors.release()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


def test_two_threads_that_ask_for_one_name_get_one_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M1: who asks while the queue is being made waits for it instead of making another."""
    made: list[str] = []
    making, go_on = threading.Event(), threading.Event()

    class Slow(StepExecutor):
        def __call__(self, name: str, threads: int, clock: Clock) -> StepExecutor:
            made.append(name)
            making.set()
            await_event(go_on)
            return super().__call__(name, threads, clock)

    lock = AnnouncedLock()
    manager = BatchQueueManager(factory=Slow())
    monkeypatch.setattr(manager, "_lock", lock)
    first = in_background(lambda: manager.get_or_create("q", HANDLERS))
    await_event(making)
    second = in_background(lambda: manager.get_or_create("q", HANDLERS))
    for _ in range(2):
        assert lock.visitors.acquire(timeout=PATIENCE)
    go_on.set()
    assert first.result(PATIENCE) is second.result(PATIENCE)
    assert made == ["q-0"]
    assert manager.queues() == (first.result(),)


# -- making and finding -----------------------------------------------------------------------


def test_a_queue_is_found_by_its_name() -> None:
    """What was made can be got; what was not is None."""
    manager = Rig().manager
    queue = manager.create("metrics.l1", HANDLERS)
    assert manager.get("metrics.l1") is queue
    assert manager.get("metrics.l2") is None
    assert manager.get_or_create("metrics.l1", HANDLERS) is queue


def test_create_insists_on_a_new_name() -> None:
    """A name that is taken raises, and the message says how to share it."""
    manager = Rig().manager
    manager.create("q", HANDLERS)
    with pytest.raises(QueueExistsError, match=r"queue 'q' exists already.*get_or_create"):
        manager.create("q", HANDLERS)
    assert len(manager.queues()) == 1


def test_a_name_that_is_taken_costs_no_shared_scheduler() -> None:
    """A refused create takes no reference that nobody would give back."""
    manager = Rig().manager
    queue = manager.create("q", SHARED)
    with pytest.raises(QueueExistsError):
        manager.create("q", SHARED)
    queue.shutdown()
    assert manager._schedulers.names() == ()


def test_queues_are_listed_in_the_order_of_their_creation() -> None:
    """The order is that in which data usually flows, and shutdown goes by it."""
    manager = Rig().manager
    for name in ("l1", "l2", "topn"):
        manager.create(name, HANDLERS)
    assert [queue.name for queue in manager.queues()] == ["l1", "l2", "topn"]
    assert repr(manager) == "<BatchQueueManager, 3 queues: l1, l2, topn>"


def test_managers_do_not_know_each_other() -> None:
    """The same name in two managers means two queues."""
    one, other = Rig().manager, Rig().manager
    assert one.create("q", HANDLERS) is not other.create("q", HANDLERS)


def test_there_is_one_default_manager() -> None:
    """The process-wide instance is always the same, and works with real threads."""
    manager = BatchQueueManager.default()
    assert BatchQueueManager.default() is manager
    handler = RecordingHandler[str]()
    queue = manager.create("tests.default", HANDLERS)
    queue.add_handler(str, handler)
    assert queue.produce("a")
    report = manager.shutdown("tests.default")
    assert report is not None
    assert report.complete
    assert handler.items == ["a"]
    assert manager.get("tests.default") is None


# -- sharing a name ---------------------------------------------------------------------------


def test_the_mode_of_a_queue_is_settled_by_its_first_configuration() -> None:
    """Asking for a consumer where handlers are used raises, and the other way round."""
    manager = Rig().manager
    manager.create("by_type", HANDLERS)
    manager.create("one", CONSUMER)
    with pytest.raises(QueueModeError, match="queue 'by_type' exists and dispatches by type"):
        manager.get_or_create("by_type", CONSUMER)
    with pytest.raises(QueueModeError, match="queue 'one' exists and has a consumer"):
        manager.get_or_create("one", HANDLERS)


def test_another_configuration_is_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first one stays; each set of differing fields is reported once per name."""
    manager = Rig().manager
    queue = manager.create("q", HANDLERS)
    other = replace(HANDLERS, buffer_size=7, max_idle=1.0)
    for _ in range(3):
        assert manager.get_or_create("q", other) is queue
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("queue.config_ignored: queue 'q'")
    assert record.__dict__["fields"] == ("buffer_size", "max_idle")
    assert queue.config.buffer_size == 10_000
    manager.get_or_create("q", replace(HANDLERS, buffer_size=7))
    assert len(caplog.records) == 2


def test_an_equal_configuration_is_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    """Two places that write the same configuration share in silence."""
    manager = Rig().manager
    manager.create("q", HANDLERS)
    manager.get_or_create("q", BatchQueueConfig(threads=ThreadPolicy.fixed(1)))
    assert events(caplog) == []


# -- shutting down ------------------------------------------------------------------------------


def test_a_queue_that_was_shut_down_frees_its_name() -> None:
    """By the manager or by itself: the name can be used for a new queue."""
    manager = Rig().manager
    first = manager.create("q", HANDLERS)
    report = manager.shutdown("q")
    assert report is not None
    assert (report.queue, report.finished) == ("q", True)
    second = manager.create("q", HANDLERS)
    assert second is not first
    second.shutdown()
    assert manager.get("q") is None
    assert manager.create("q", CONSUMER) is not second


def test_an_old_queue_does_not_take_its_successor_with_it() -> None:
    """Shutting the old object down once more leaves the new queue of that name alone."""
    manager = Rig().manager
    old = manager.create("q", HANDLERS)
    old.shutdown()
    new = manager.create("q", HANDLERS)
    old.shutdown()
    manager._forget(old)
    assert manager.get("q") is new


def test_shutting_down_an_unknown_name_is_none() -> None:
    """There is nothing to report."""
    assert Rig().manager.shutdown("nobody") is None


def test_all_queues_are_shut_down_in_the_order_of_their_creation() -> None:
    """The reports come in that order too, and the manager is empty afterwards."""
    manager = Rig().manager
    for name in ("l1", "l2", "topn"):
        manager.create(name, HANDLERS)
    reports = manager.shutdown_all()
    assert [report.queue for report in reports] == ["l1", "l2", "topn"]
    assert manager.queues() == ()


def test_named_queues_are_shut_down_first() -> None:
    """The order given goes first, names that do not exist are skipped, the rest follows."""
    manager = Rig().manager
    for name in ("a", "b", "c", "d"):
        manager.create(name, HANDLERS)
    reports = manager.shutdown_all(order=["d", "nobody", "b"])
    assert [report.queue for report in reports] == ["d", "b", "a", "c"]


def test_the_last_flush_of_one_queue_still_reaches_the_next() -> None:
    """Each queue is flushed before the next one refuses items: L1's cache goes into L2."""
    rig = Rig()
    l1, l2 = rig.queue("l1"), rig.queue("l2")
    stored = RecordingHandler[int]()

    class Merge(HandlerConsumer[str]):
        count = 0

        def consume(self, batch: list[str]) -> None:
            self.count += len(batch)

        def on_idle(self) -> None:
            assert l2.produce(self.count)

    l1.add_handler(str, Merge())
    l2.add_handler(int, stored)
    l1.produce_many(["a", "b", "c"])
    reports = rig.manager.shutdown_all()
    assert stored.items == [3]
    assert all(report.complete for report in reports)


def test_a_manager_shuts_its_queues_down_on_leaving() -> None:
    """As a context manager it drains them all."""
    rig = Rig()
    handler = RecordingHandler[str]()
    with rig.manager as manager:
        queue = manager.create("q", HANDLERS)
        queue.add_handler(str, handler)
        queue.produce("a")
    assert handler.items == ["a"]
    assert not queue.is_running


def test_a_shared_scheduler_lives_as_long_as_its_queues() -> None:
    """Queues on one scheduler count; the last to shut down lets it go."""
    manager = Rig().manager
    manager.create("a", SHARED)
    manager.create("b", SHARED)
    manager.shutdown("a")
    assert manager._schedulers.names() == ("io",)
    manager.shutdown("b")
    assert manager._schedulers.names() == ()


def test_after_a_fork_the_manager_is_not_locked() -> None:
    """A thread of the parent that was inside does not block the child."""
    manager = Rig().manager
    assert in_background(manager._lock.acquire).result(PATIENCE)
    manager.renew_after_fork()
    manager.create("q", HANDLERS)
