"""A handler is entered by one thread at a time, and a drain cycle is one bounded pass."""

from __future__ import annotations

import itertools
from typing import Any

from penstock import BatchQueue, BatchQueueConfig, PartitionPolicy, ThreadPolicy
from penstock.testing import RecordingHandler, eventually
from tests.interleaving.forcing import Gate, GatedHandler, Stepped, running, types_for

TWO = BatchQueueConfig[Any](
    threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2), shutdown_timeout=60
)


def enters_once(stepped: Stepped, handler: GatedHandler, gate: Gate) -> None:
    """Hold the first drainer in the handler, and see that the second waits for it."""
    second = stepped.queue._drainers[1]
    with running(lambda: stepped.step(0)):
        gate.await_arrival()
        with running(lambda: stepped.step(1)):
            eventually(lambda: second in stepped.queue._table._inside and second.hand)
            assert handler.items == []
            gate.open()
    assert handler.most_at_once == 1


def test_a_handler_of_two_types_is_entered_once_at_a_time() -> None:
    """Two drainers with items for one handler object take turns."""
    stepped = Stepped(TWO)
    gate = Gate()
    handler = GatedHandler(gate)
    kinds = types_for(0, 1, count=2)
    for kind in kinds:
        stepped.queue.add_handler(kind, handler)
        stepped.queue.produce(kind())
    enters_once(stepped, handler, gate)
    assert {type(item) for item in handler.items} == set(kinds)
    stepped.close()


def test_a_custom_selector_never_enters_a_handler_twice() -> None:
    """A selector that spreads one type over all partitions does not break the exclusion."""
    turn = itertools.count()
    config = BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda _item, count: next(turn) % count,
    )
    stepped = Stepped(config)
    gate = Gate()
    handler = GatedHandler(gate)
    stepped.queue.add_handler(int, handler)
    stepped.queue.produce(1)
    stepped.queue.produce(2)
    enters_once(stepped, handler, gate)
    assert sorted(handler.items) == [1, 2]
    stepped.close()


def test_one_method_of_one_object_is_one_handler() -> None:
    """Two bound methods of the same object and function exclude each other as well."""
    stepped = Stepped(TWO)
    gate = Gate()
    handler = GatedHandler(gate)
    for kind in types_for(0, 1, count=2):
        stepped.queue.add_handler(kind, handler.consume)
        stepped.queue.produce(kind())
    enters_once(stepped, handler, gate)
    stepped.close()


def test_on_idle_does_not_enter_a_handler_that_is_consuming() -> None:
    """The drainer that looks after an idle handler leaves it alone while another is in it."""
    stepped = Stepped(TWO)
    gate = Gate()
    handler = GatedHandler(gate)
    home, away = types_for(1, 0, count=2)
    stepped.queue.add_handler(home, handler)  # the second drainer calls on_idle
    stepped.queue.add_handler(away, handler)
    stepped.settle()
    stepped.queue.produce(away())
    with running(lambda: stepped.step(0)):
        gate.await_arrival()
        stepped.clock.advance(1)
        stepped.step(1)
        assert handler.idle_calls == 0
        gate.open()
    assert handler.most_at_once == 1
    stepped.close()


def test_a_consumer_is_entered_by_several_threads() -> None:
    """Consumer mode serialises per partition only, and uses all partitions for one type."""
    gates = [Gate(), Gate()]
    waiting = iter(gates)

    def consume(batch: list[int]) -> None:
        del batch
        next(waiting).pass_through()

    config = BatchQueueConfig[int](
        threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2), consumer=consume
    )
    with BatchQueue("q", config) as queue:
        assert queue.produce_many([1, 2]) == 2
        for gate in gates:
            gate.await_arrival()  # both are inside at once
        for gate in gates:
            gate.open()


def test_a_homogeneous_queue_uses_all_its_partitions() -> None:
    """Items of one type reach every thread of a consumer queue."""
    stepped = Stepped(
        BatchQueueConfig(
            threads=ThreadPolicy.fixed(4),
            partitions=PartitionPolicy.fixed(4),
            consumer=RecordingHandler(),
        )
    )
    for number in range(400):
        stepped.queue.produce(number)
    assert [p.used for p in stepped.queue.stats().partitions] == [100] * 4
    stepped.settle()
    assert stepped.queue.stats().drained_by_thread == (100, 100, 100, 100)
    stepped.close()


def test_a_run_is_one_bounded_pass() -> None:
    """What arrives during a run is left for the next one, however much there is."""
    stepped = Stepped(BatchQueueConfig(threads=ThreadPolicy.fixed(1)))
    batches: list[list[int]] = []

    def echo(batch: list[int]) -> None:
        batches.append(batch)
        if len(batches) < 5:
            stepped.queue.produce(batch[-1] + 1)

    stepped.queue.add_handler(int, echo)
    stepped.settle()
    stepped.queue.produce(0)
    for turn in range(5):
        stepped.step(0)
        assert batches == [[n] for n in range(turn + 1)]
    stepped.close()
