"""Races that a second reader found: each forced at the point where it went wrong."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    BufferStrategy,
    DrainBalancer,
    PartitionPolicy,
    ThreadPolicy,
)
from penstock.batchqueue import _dispatch
from penstock.batchqueue._partition import RETIRED, Partition
from penstock.batchqueue.selectors import type_hash
from penstock.testing import FakeClock, RecordingHandler
from tests.interleaving.forcing import (
    WAIT,
    Gate,
    GatedHandler,
    Stepped,
    running,
    type_that,
    types_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ONE = BatchQueueConfig[Any](threads=ThreadPolicy.fixed(1))
TWO = BatchQueueConfig[Any](threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2))
GROWING = BatchQueueConfig[Any](
    threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.adaptive()
)


class Interrupted(list[Any]):
    """A partition's buffer during whose next use something else happens, on another thread."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def append(self, item: object) -> None:
        """Let it happen, then append."""
        self._interrupt()
        super().append(item)

    def extend(self, items: Any) -> None:  # noqa: ANN401 - as list has it
        """Let it happen, then extend."""
        self._interrupt()
        super().extend(items)

    def _interrupt(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            with running(meanwhile):
                pass


class InterruptedTake(Interrupted):
    """... namely when its length is asked for, which is how a take begins."""

    def __init__(self, items: list[Any], meanwhile: Callable[[], object]) -> None:
        super().__init__(meanwhile)
        super(Interrupted, self).extend(items)

    def __bool__(self) -> bool:
        """Tell whether there is anything without a take having begun."""
        return super().__len__() > 0

    def __len__(self) -> int:
        """Let it happen, then count."""
        self._interrupt()
        return super().__len__()


# -- routes ---------------------------------------------------------------------------------------


def test_a_type_that_comes_during_a_take_goes_to_its_own_handler() -> None:
    """Which types can be among the items is looked at after they were taken, not before."""
    stepped = Stepped(ONE)
    known, new = types_for(0, 0, count=1)
    handlers = {kind: RecordingHandler[Any]() for kind in (known, new)}
    for kind, handler in handlers.items():
        stepped.queue.add_handler(kind, handler)
    first, late = known(), new()
    stepped.queue.produce(first)
    part = stepped.queue._routes[known]
    assert part.kinds == {known}
    part.buffer = InterruptedTake(part.buffer, lambda: stepped.queue.produce(late))
    stepped.step(0)
    assert stepped.queue.stats().total_used == 0  # the late one was taken as well
    assert handlers[known].items == [first]
    assert handlers[new].items == [late]
    stepped.close()


def test_the_types_of_a_partition_are_replaced_and_never_changed() -> None:
    """Who reads them without the route lock has a value that stays as it is."""
    stepped = Stepped(ONE)
    first, second = types_for(0, 0, count=1)
    stepped.queue.produce(first())
    part = stepped.queue._routes[first]
    seen = part.kinds
    reading = iter(seen)
    with running(lambda: stepped.queue.produce(second())):
        pass
    assert next(reading) is first  # of a set that had changed this would raise
    assert seen == {first}
    assert part.kinds == {first, second}
    stepped.close()


def test_a_route_given_by_another_producer_meanwhile_is_kept() -> None:
    """Two producers that both met a type without a route agree on the first one's, despite growth.

    Else the second would send the type elsewhere while items of it still wait (N3).
    """
    stepped = Stepped(GROWING)
    kind = type_that(lambda k: type_hash(k) % 2 == 0 and type_hash(k) % 3 == 1)
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(kind, handler)
    stepped.settle()
    late, *others = (kind() for _ in range(3))
    gate, place = Gate(), stepped.queue._place

    def place_late(item: object) -> Any:  # noqa: ANN401 - a partition of anything
        if item is late:
            gate.pass_through()
        return place(item)

    stepped.queue._place = place_late  # type: ignore[method-assign]
    with running(lambda: stepped.queue.produce(late)):
        gate.await_arrival()
        stepped.queue.produce(others[0])
        route = stepped.queue._routes[kind]
        for other in types_for(0, 0, count=1):
            stepped.queue.add_handler(other, RecordingHandler())
        assert stepped.queue.stats().partition_count == 3
        gate.open()
    stepped.queue.produce(others[1])
    assert stepped.queue._routes[kind] is route
    stepped.step(1)  # whoever would have the type by its new place goes first
    stepped.settle()
    assert handler.items == [others[0], late, others[1]]
    stepped.close()


def test_a_retirement_that_is_taken_back_leaves_the_route_alone() -> None:
    """A producer that routes while a partition looks retired for a moment does not move the type.

    The look that follows finds an item and takes the retirement back: the item must not be
    overtaken by those that come after it (N3).
    """
    stepped = Stepped(GROWING)
    kind = type_that(lambda k: type_hash(k) % 2 == 0 and type_hash(k) % 3 == 1)
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(kind, handler)
    first, second = kind(), kind()
    stepped.queue.produce(kind())
    stepped.settle()
    for other in types_for(0, 0, count=1):
        stepped.queue.add_handler(other, RecordingHandler())
    part = stepped.queue._routes[kind]
    stepped.queue.produce(first)
    look = Partition.is_empty

    def route_while_looking(self: Partition[Any]) -> bool:
        if self.owner is RETIRED:
            stepped.queue._place(kind())  # what a producer does that found no route before
        return look(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "is_empty", route_while_looking)
        assert not stepped.queue._table.retire(part, part.owner)
    stepped.queue.produce(second)
    assert stepped.queue._routes[kind] is part
    stepped.settle()
    assert handler.items[1:] == [first, second]
    stepped.close()


def test_a_stale_partition_that_changes_hands_is_retired_by_its_new_owner() -> None:
    """A rebalance that moves it before it was empty does not keep its type from its new place.

    The drainer that gets it has looked at the new partition count already.
    """
    stepped = Stepped(GROWING)
    kind = type_that(lambda k: type_hash(k) % 2 == 0 and type_hash(k) % 3 == 1)
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(kind, handler)
    stepped.settle()
    stepped.queue.produce(kind())
    for other in types_for(0, 0, count=1):
        stepped.queue.add_handler(other, RecordingHandler())
    stepped.step(1)
    assert stepped.queue._table.hand_over({0: 1}, timeout=0) == 1
    stepped.settle()
    stepped.queue.produce(kind())
    assert stepped.queue._routes[kind].index == 1
    stepped.settle()
    assert len(handler.items) == 2
    stepped.close()


# -- wake-ups -------------------------------------------------------------------------------------

WAYS: dict[str, Callable[[BatchQueue[Any], Any], object]] = {
    "produce": lambda queue, item: queue.produce(item),
    "produce, unrouted": lambda queue, item: queue._produce_unrouted(item, None),
    "produce_many": lambda queue, item: queue.produce_many([item]),
    "produce_many, the slow way": lambda queue, item: queue._put(
        queue._routes[type(item)], [item], None
    ),
    "aproduce": lambda queue, item: asyncio.run(queue.aproduce(item)),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_owner_that_is_woken_is_the_one_after_the_append(way: str) -> None:
    """A hand-over before the append, whose new owner finds nothing and parks, loses nothing."""
    stepped = Stepped(TWO)
    (kind,) = types_for(0, count=2)
    items: list[Any] = []
    stepped.queue.add_handler(kind, items.extend)
    stepped.queue.produce(kind())
    stepped.settle()
    items.clear()
    part, new_owner = stepped.queue._routes[kind], stepped.queue._drainers[1]

    def change_hands() -> None:
        assert stepped.queue._table.hand_over({0: 1}, timeout=0) == 1
        stepped.settle()
        assert new_owner.parked

    part.buffer = Interrupted(change_hands)
    item = kind()
    assert WAYS[way](stepped.queue, item)
    assert part.owner is new_owner
    stepped.settle()
    assert items == [item]
    stepped.close()


# -- one handler, one lock ------------------------------------------------------------------------


@contextmanager
def held_in(stepped: Stepped, kind: type, gate: Gate) -> Iterator[None]:
    """Have the first drainer stand at *gate* inside the handler of *kind* for the block."""
    stepped.queue.produce(kind())
    with running(lambda: stepped.step(0)):
        gate.await_arrival()
        try:
            yield
        finally:
            gate.open()


def lets_in(stepped: Stepped, kind: type) -> bool:
    """Whether a drainer would enter the handler of *kind* now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_dispatch, "_ENTRY_POLL", 0)
        entry = stepped.queue._dispatch.admit(kind, lambda: True)
    stepped.queue._dispatch.dismiss(entry)
    return entry is not None


def add_again(queue: BatchQueue[Any], kind: type, handler: GatedHandler) -> None:
    """Register the handler with another weight."""
    queue.add_handler(kind, handler, weight=2.0)


def remove(queue: BatchQueue[Any], kind: type, handler: GatedHandler) -> None:
    """Take the handler's only type away."""
    del handler
    assert queue.remove_handler(kind)


def replace(queue: BatchQueue[Any], kind: type, handler: GatedHandler) -> None:
    """Give the handler's only type to another."""
    del handler
    queue.add_handler(kind, RecordingHandler())


@pytest.mark.parametrize("change", [add_again, remove, replace])
def test_a_handler_registered_again_while_it_runs_is_still_entered_once(
    change: Callable[[BatchQueue[Any], type, GatedHandler], None],
) -> None:
    """Whatever becomes of its types, a handler object keeps its lock while a thread is in it."""
    stepped = Stepped(TWO)
    here, there = types_for(0, 1, count=2)
    gate = Gate()
    handler = GatedHandler(gate)
    stepped.queue.add_handler(here, handler)
    with held_in(stepped, here, gate):
        change(stepped.queue, here, handler)
        stepped.queue.add_handler(there, handler)
        assert not lets_in(stepped, there)
        stepped.queue.produce(there())
    assert lets_in(stepped, there)
    stepped.settle()
    assert [type(item) for item in handler.items] == [here, there]
    assert handler.most_at_once == 1
    stepped.close()


def test_a_handler_and_its_consume_method_are_one_handler() -> None:
    """Registered as an object for one type and as its method for another, it is entered once."""
    stepped = Stepped(TWO)
    here, there = types_for(0, 1, count=2)
    gate = Gate()
    handler = GatedHandler(gate)
    stepped.queue.add_handler(here, handler)
    stepped.queue.add_handler(there, handler.consume)
    with held_in(stepped, here, gate):
        assert not lets_in(stepped, there)
        stepped.queue.produce(there())
    stepped.settle()
    assert [type(item) for item in handler.items] == [here, there]
    assert handler.most_at_once == 1
    stepped.close()


# -- eviction -------------------------------------------------------------------------------------


def test_a_partition_drained_before_the_eviction_keeps_what_came_since() -> None:
    """A producer that saw a full partition evicts nothing if there is room once it has the lock."""
    stepped = Stepped(
        BatchQueueConfig(
            threads=ThreadPolicy.fixed(1), buffer_size=10, strategy=BufferStrategy.DROP_OLDEST
        )
    )
    items: list[int] = []
    stepped.queue.add_handler(int, items.extend)
    for number in range(10):
        stepped.queue.produce(number)
    gate, put = Gate(), stepped.queue._put

    def put_late(part: Any, batch: list[int], timeout: float | None) -> int:  # noqa: ANN401 - see above
        gate.pass_through()
        return put(part, batch, timeout)

    stepped.queue._put = put_late  # type: ignore[method-assign]
    with running(lambda: stepped.queue.produce(15)):
        gate.await_arrival()
        stepped.settle()
        for number in range(10, 15):
            stepped.queue.produce(number)
        gate.open()
    stepped.settle()
    assert items == list(range(16))
    assert stepped.queue.stats().dropped.evicted == 0
    stepped.close()


# -- shutdown -------------------------------------------------------------------------------------


def test_a_shutdown_interrupted_before_it_refuses_producers_has_not_begun() -> None:
    """Ctrl-C at the very start leaves a queue that accepts, delivers and can be shut down."""
    stepped = Stepped(ONE)
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(str, handler)
    stepped.queue.produce("a")
    stepped.settle()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepped.queue, "_refuse_producers", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stepped.queue.shutdown()
    stepped.queue._wake_all()
    stepped.settle()  # a drainer that thought it had begun would seal its partition here
    assert stepped.queue.stats().state == "running"
    assert stepped.queue.produce_many(["b", "c"]) == 2
    assert stepped.queue.shutdown().complete
    assert handler.items == ["a", "b", "c"]


def test_a_shutdown_interrupted_halfway_is_finished_by_the_next_call() -> None:
    """Ctrl-C after producers were refused: no partition is sealed yet, and nothing is lost."""
    stepped = Stepped(ONE)
    handler = RecordingHandler[Any]()
    stepped.queue.add_handler(str, handler)
    stepped.queue.produce("a")
    (part,) = stepped.queue._table.partitions

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepped.queue._table, "close", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stepped.queue.shutdown()
    stepped.queue._wake_all()
    stepped.settle()
    assert part.owner is stepped.queue._drainers[0]
    assert not stepped.queue.produce("b")
    assert stepped.queue.shutdown().complete
    assert handler.items == ["a"]


def test_a_queue_is_not_over_before_its_manager_has_forgotten_it() -> None:
    """When shutdown() returns the name is free and the shared scheduler given back."""
    gate = Gate()
    clock = FakeClock()
    queues = BatchQueueManager(clock=clock)
    shared = BatchQueueConfig[Any](shared_scheduler=("io", ThreadPolicy.fixed(1)))
    queue = queues.create("q", shared)
    forget = queues._forget

    def forget_late(closed: BatchQueue[Any]) -> None:
        gate.pass_through()
        forget(closed)

    queue._on_closed = forget_late
    with running(lambda: queue.shutdown(60)) as shutting:
        gate.await_arrival()
        assert queue.stats().state == "flushing"
        gate.open()
        shutting.join(WAIT)
        assert queues.get("q") is None
    assert queues._schedulers.names() == ()


class Swap(DrainBalancer):
    """A balancer that always wants the partitions the other way round."""

    def assign(self, throughput: object, owners: object, threads: int) -> list[int]:
        """Swap the two."""
        del throughput, owners, threads
        return [1, 0]


def test_a_rebalance_that_meets_a_shutdown_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hand-over that a shutdown ended is neither counted nor logged as a handler that hangs."""
    stepped = Stepped(
        BatchQueueConfig(
            threads=ThreadPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(2),
            balancer=Swap(),
            rebalance_interval=10.0,
            handover_timeout=3600.0,
        )
    )
    gate = Gate()
    handler = GatedHandler(gate)
    (kind,) = types_for(0, count=2)
    stepped.queue.add_handler(kind, handler)
    stepped.settle()
    stepped.queue.produce(kind())
    rebalancer, table = stepped.queue._rebalancer, stepped.queue._table
    assert rebalancer is not None
    ended, hand_over = Gate(), table.hand_over

    def hand_over_slowly(targets: dict[int, int], timeout: float) -> int:
        moved = hand_over(targets, timeout)
        ended.pass_through()
        return moved

    table.hand_over = hand_over_slowly  # type: ignore[method-assign,assignment]
    with running(lambda: stepped.step(0)):
        gate.await_arrival()
        with running(rebalancer.rebalance):
            stepped.clock.await_sleepers(1)  # the fence is up
            stepped.queue._close_intake()
            ended.open()
        gate.open()
    assert stepped.queue.shutdown().complete
    assert stepped.queue.stats().handovers_abandoned == 0
    assert caplog.records == []
