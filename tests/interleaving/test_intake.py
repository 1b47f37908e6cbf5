"""Producers against everything that may happen between their route and their append."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock import BatchQueue, BatchQueueConfig, BufferStrategy, PartitionPolicy, ThreadPolicy
from penstock.batchqueue._drainer import Drainer
from penstock.batchqueue._partition import RETIRED
from penstock.batchqueue.selectors import type_hash
from penstock.errors import ReentrantProduceError
from penstock.testing import FakeClock, RecordingHandler, eventually
from tests.interleaving.forcing import (
    WAIT,
    Gate,
    GatedHandler,
    GatedList,
    Stepped,
    running,
    type_that,
    types_for,
)

ONE = ThreadPolicy.fixed(1)


def adaptive(buffer_size: int = 100) -> BatchQueueConfig[Any]:
    """Two drainers, and partitions that grow with the handlers."""
    return BatchQueueConfig(
        threads=ThreadPolicy.fixed(2),
        partitions=PartitionPolicy.adaptive(),
        buffer_size=buffer_size,
    )


def grow_by(stepped: Stepped, extra: int) -> None:
    """Register handlers for *extra* more types than there are partitions."""
    have = int(stepped.queue._weight)
    want = len(stepped.queue._table.partitions) + extra
    for _ in range(want - have):
        stepped.queue.add_handler(type_that(lambda _: True), RecordingHandler())


def moving_type() -> type:
    """A type that two partitions and three partitions place differently."""
    return type_that(lambda k: type_hash(k) % 2 != type_hash(k) % 3)


def test_an_append_that_meets_a_retired_partition_is_routed_anew() -> None:
    """A producer held between its route and its append loses nothing when growth moves the type."""
    stepped = Stepped(adaptive())
    kind, handler = moving_type(), RecordingHandler[Any]()
    stepped.queue.add_handler(kind, handler)
    first, late, after = kind(), kind(), kind()
    stepped.queue.produce(first)
    stepped.settle()
    old = stepped.queue._routes[kind]
    gate = Gate()
    old.buffer = GatedList(gate)
    with running(lambda: stepped.queue.produce(late)):
        gate.await_arrival()
        grow_by(stepped, 1)
        for drainer in stepped.queue._drainers:
            drainer.wake()
        stepped.settle()
        assert old.owner is RETIRED
        gate.open()
    stepped.queue.produce(after)
    stepped.settle()
    assert handler.items == [first, late, after]
    assert stepped.queue._routes[kind] is not old
    assert old.buffer == []
    stepped.close()


def test_an_append_that_meets_a_closed_partition_is_refused() -> None:
    """A producer held before its append while the queue shuts down gets False, not a lost item."""
    stepped = Stepped(BatchQueueConfig(threads=ONE))
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(str, handler)
    stepped.queue.produce("first")
    stepped.settle()
    part = stepped.queue._routes[str]
    gate, answers = Gate(), list[bool]()
    part.buffer = GatedList(gate)
    with running(lambda: answers.append(stepped.queue.produce("late"))):
        gate.await_arrival()
        report = stepped.queue.shutdown()
        gate.open()
    assert answers == [False]
    assert handler.items == ["first"]
    assert report.complete
    assert part.buffer == []
    stats = stepped.queue.stats()
    assert (stats.accepted, stats.consumed, stats.dropped.closed) == (1, 1, 1)


def test_an_append_that_comes_before_the_seal_is_drained() -> None:
    """A late append that the closing drainer sees is accepted and consumed."""
    stepped = Stepped(BatchQueueConfig(threads=ONE))
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(str, handler)
    stepped.queue.produce("first")
    stepped.settle()
    part = stepped.queue._routes[str]
    stepped.queue._close_intake()
    part.buffer.append("in between")  # what a producer with the old route does next
    assert stepped.queue._knock(part, "in between", None)
    assert stepped.queue.shutdown().complete
    assert handler.items == ["first", "in between"]


def test_the_bound_is_soft_by_one_item_per_producer() -> None:
    """A producer that saw room may append after it is gone; the next one sees a full partition."""
    stepped = Stepped(BatchQueueConfig(threads=ONE, buffer_size=2))
    stepped.queue.add_handler(str, RecordingHandler())
    stepped.queue.produce("a")
    stepped.settle()
    part = stepped.queue._routes[str]
    gate = Gate()
    part.buffer = GatedList(gate)
    with running(lambda: stepped.queue.produce("late")):
        gate.await_arrival()
        assert stepped.queue.produce_many(["b", "c"], timeout=0) == 2
        gate.open()
    assert part.used == 3
    assert not stepped.queue.produce("d", timeout=0)
    assert stepped.queue.produce_many(["e", "f"], timeout=0) == 0
    stepped.settle()
    stepped.close()


def test_room_made_while_a_producer_is_about_to_wait_is_not_missed() -> None:
    """Room that comes after the look and before the wait still wakes the producer."""
    clock = FakeClock()
    gate = Gate()

    class SlowToWait(FakeClock):
        def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
            gate.pass_through()  # the producer holds the partition's lock here
            return super().wait(condition, timeout)

    stepped = Stepped(BatchQueueConfig(threads=ONE, buffer_size=1))
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(str, handler)
    stepped.queue._clock = SlowToWait(clock.now())
    stepped.queue.produce("a")
    answers: list[bool] = []
    with running(lambda: answers.append(stepped.queue.produce("b"))) as producer:
        gate.await_arrival()
        with running(stepped.settle):  # blocks on the lock until the producer waits
            gate.open()
        producer.join(WAIT)
        stepped.settle()
    assert answers == [True]
    assert handler.items == ["a", "b"]
    stepped.close()


def test_an_item_appended_while_the_drainer_parks_is_drained() -> None:
    """An append between the drainer's last look and its sleep is not left behind."""
    stepped = Stepped(BatchQueueConfig(threads=ONE))
    items: list[str] = []
    stepped.queue.add_handler(str, items.extend)
    stepped.queue.produce("a")
    stepped.settle()
    drainer, part = stepped.queue._drainers[0], stepped.queue._routes[str]
    assert drainer.parked
    last_look = Drainer._when_idle

    def look_then_append(self: Drainer) -> float:
        delay = last_look(self)
        part.buffer.append("late")
        assert not self.parked  # so the producer of "late" does not wake it
        return delay

    drainer.wake()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drainer, "_when_idle", look_then_append)
        stepped.step(0)
    stepped.settle()
    assert items == ["a", "late"]
    stepped.close()


def test_a_busy_type_is_not_rerouted_by_growth() -> None:
    """A type whose items wait or are being handled stays where it is; order survives growth."""
    stepped = Stepped(adaptive())
    kind, gate = moving_type(), Gate()
    handler = GatedHandler(gate)
    stepped.queue.add_handler(kind, handler)
    items = [kind() for _ in range(4)]
    stepped.queue.produce(items[0])
    old = stepped.queue._routes[kind]
    with running(stepped.settle):
        gate.await_arrival()  # items[0] is being handled
        grow_by(stepped, 1)
        stepped.queue.produce(items[1])
        for drainer in stepped.queue._drainers:
            if drainer is not old.owner:
                stepped.steps.step(drainer)
        assert stepped.queue._routes[kind] is old
        assert handler.items == []
        gate.open()
    stepped.settle()
    stepped.queue.produce(items[2])  # the type is quiet now: it moves
    assert stepped.queue._routes[kind] is not old
    stepped.queue.produce(items[3])
    stepped.settle()
    assert handler.items == items
    assert handler.most_at_once == 1
    stepped.close()


def test_waiting_items_keep_a_type_in_its_partition() -> None:
    """While an item of the type waits, its partition is not retired."""
    stepped = Stepped(adaptive())
    kind, handler = moving_type(), RecordingHandler[Any]()
    stepped.queue.add_handler(kind, handler)
    first, second = kind(), kind()
    stepped.queue.produce(first)
    grow_by(stepped, 1)
    old = stepped.queue._routes[kind]
    assert not stepped.queue._table.retire(old, old.owner)
    stepped.queue.produce(second)
    assert stepped.queue._routes[kind] is old
    stepped.settle()
    assert handler.items == [first, second]
    stepped.close()


@pytest.mark.parametrize("producers", [3])
def test_producers_blocked_across_a_shutdown_return_false(producers: int) -> None:
    """Nobody stays blocked, and nobody is told True for an item that is never consumed."""
    gate = Gate()
    handler = GatedHandler(gate)
    clock = FakeClock()
    queue = BatchQueue[Any]("q", BatchQueueConfig(threads=ONE, buffer_size=1), clock=clock)
    queue.add_handler(str, handler)
    queue.produce("in the handler")
    gate.await_arrival()
    queue.produce("in the buffer")
    answers: dict[str, bool] = {}
    lock = threading.Lock()

    def produce(item: str) -> None:
        answer = queue.produce(item)
        with lock:
            answers[item] = answer

    threads = [threading.Thread(target=produce, args=(f"p{i}",)) for i in range(producers)]
    for thread in threads:
        thread.start()
    clock.await_sleepers(producers)
    with running(lambda: queue.shutdown(60)):
        for thread in threads:
            thread.join(WAIT)
        assert answers == {f"p{i}": False for i in range(producers)}
        gate.open()
    assert handler.items == ["in the handler", "in the buffer"]
    stats = queue.stats()
    assert stats.accepted == stats.consumed == 2
    assert stats.dropped.closed == producers


def test_a_handler_that_fills_its_own_queue_is_told_so() -> None:
    """Producing into the full queue one is draining raises instead of waiting for oneself."""
    stepped = Stepped(adaptive(buffer_size=1))
    left, right = types_for(0, 1, count=2)
    errors: list[ReentrantProduceError] = []

    def cascade(batch: list[Any]) -> None:
        del batch
        stepped.queue.produce(right())
        try:
            stepped.queue.produce_many([right(), right()])
        except ReentrantProduceError as error:
            errors.append(error)

    seen = RecordingHandler[Any]()
    stepped.queue.add_handler(left, cascade)
    stepped.queue.add_handler(right, seen)
    stepped.queue.produce(left())
    stepped.step(0)
    assert [error.accepted for error in errors] == [0]
    assert "its own thread drains" in str(errors[0])
    stepped.settle()
    assert len(seen.items) == 1
    stepped.close()


def test_a_late_item_of_a_rolled_back_retirement_stays_where_it_is() -> None:
    """If the partition found the item and went on, its producer need not do anything."""
    stepped = Stepped(BatchQueueConfig(threads=ONE))
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(str, handler)
    stepped.queue.produce("a")
    stepped.settle()
    part = stepped.queue._routes[str]
    keeper = part.owner
    with part.lock:
        part.owner = RETIRED
        part.buffer.append("late")
        answers: list[bool] = []
        with_lock = threading.Thread(
            target=lambda: answers.append(stepped.queue._knock(part, "late", None))
        )
        with_lock.start()
        part.owner = keeper  # rolled back before the producer gets the lock
    with_lock.join(WAIT)
    assert answers == [True]
    keeper.wake()
    stepped.settle()
    assert handler.items == ["a", "late"]
    stepped.close()


def test_drop_oldest_evicts_while_the_drainer_holds_a_batch() -> None:
    """Eviction and draining never touch the same item."""
    stepped = Stepped(
        BatchQueueConfig(threads=ONE, buffer_size=2, strategy=BufferStrategy.DROP_OLDEST)
    )
    gate = Gate()
    handler = GatedHandler(gate)
    stepped.queue.add_handler(int, handler)
    stepped.queue.produce_many([1, 2])
    with running(stepped.settle):
        gate.await_arrival()
        assert stepped.queue.produce_many([3, 4, 5]) == 3
        gate.open()
    stepped.settle()
    assert handler.items == [1, 2, 4, 5]
    assert stepped.queue.stats().dropped.evicted == 1
    eventually(lambda: stepped.queue.stats().in_flight == 0)
    stepped.close()
