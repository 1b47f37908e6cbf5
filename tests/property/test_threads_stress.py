"""Real threads, as hasty as they can be: what was accepted arrives, once and in order.

The seeds of trouble are all on at once: more producers than cores, buffers that fill up, types
that come in while others are busy, partitions that change hands every few milliseconds.
"""

import itertools
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BufferStrategy,
    DrainBalancer,
    PartitionPolicy,
    PartitionSelector,
    ThreadPolicy,
)
from penstock.errors import QueueClosedError
from tests.property.world import Rotation

PRODUCERS, DRAINERS = 8, 4
ITEMS = 25_000
"""Per producer."""
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Item:
    """One of a producer's, in its order."""

    producer: int
    number: int


KINDS = tuple(type(f"Kind{number}", (Item,), {"__slots__": ()}) for number in range(40))


class Strict:
    """A handler that keeps what it gets and cannot bear company."""

    def __init__(self) -> None:
        self.alone = threading.Lock()
        self.intruders = 0
        self.got: list[Item] = []

    def consume(self, batch: list[Item]) -> None:
        """Keep *batch*."""
        if not self.alone.acquire(blocking=False):
            self.intruders += 1
            return
        try:
            self.got += batch
        finally:
            self.alone.release()

    def on_idle(self) -> None:
        """Be alone here too."""
        self.consume([])


class Producer:
    """Produces its items one by one and in lists, and brings a new type now and then."""

    def __init__(self, index: int, stress: "Stress") -> None:
        self.index = index
        self.stress = stress
        self.accepted: defaultdict[type, int] = defaultdict(int)
        self.numbers = itertools.count()

    def run(self) -> None:
        """Produce until all is done or the queue has been shut down."""
        own = iter(KINDS[self.index :: PRODUCERS])
        rounds = ITEMS // 10
        for number in range(rounds):
            if number % (rounds // 5) == 0:
                try:
                    self.stress.introduce(next(own))
                except QueueClosedError:
                    return
            self._produce(number)

    def _produce(self, number: int) -> None:
        """Produce six items one by one and four in a list."""
        known = self.stress.known
        kind = known[(number + self.index) % len(known)]
        for item in [kind(self.index, next(self.numbers)) for _ in range(6)]:
            self.accepted[kind] += self.stress.queue.produce(item)
        other = known[(number * 7) % len(known)]
        items = [other(self.index, next(self.numbers)) for _ in range(4)]
        self.accepted[other] += self.stress.queue.produce_many(items)


class Stress:
    """A queue, its producers and its handlers."""

    def __init__(self, **settings: object) -> None:
        config = BatchQueueConfig[Item](
            threads=ThreadPolicy.fixed(DRAINERS),
            partitions=PartitionPolicy.adaptive(3),
            rebalance_interval=0.003,
            min_idle=0.001,
            max_idle=0.004,
            **{"buffer_size": 64, "balancer": Rotation(), **settings},  # type: ignore[arg-type]
        )
        self.queue = BatchQueue("stress", config)
        self.known: list[type] = []
        self.handlers: dict[type, Strict] = {}
        self.half_way = threading.Event()
        self.producers = [Producer(index, self) for index in range(PRODUCERS)]

    def introduce(self, kind: type) -> None:
        """Register a handler for *kind*; every third serves the type before it as well."""
        shared = len(self.known) % 3 == 2
        handler = self.handlers[self.known[-1]] if shared and self.known else Strict()
        self.handlers[kind] = handler
        self.queue.add_handler(kind, handler)
        self.known.append(kind)
        if len(self.known) > len(KINDS) // 2:
            self.half_way.set()

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Let all producers run, to their end."""
        with ThreadPoolExecutor(PRODUCERS, "stress") as pool:
            running = [pool.submit(producer.run) for producer in self.producers]
            try:
                yield
            finally:
                for producer in running:
                    producer.result(PATIENCE)

    def shutdown(self) -> None:
        """Shut down; everything accepted by then must have come through."""
        report = self.queue.shutdown(timeout=PATIENCE)
        assert report.complete, report

    def check_sums(self) -> None:
        """What producers were told, the statistics and the handlers agree."""
        stats = self.queue.stats()
        accepted = sum(sum(producer.accepted.values()) for producer in self.producers)
        assert (stats.accepted, stats.consumed) == (accepted, accepted)
        assert stats.total_used == stats.in_flight == stats.dropped.lost == 0
        assert sum(kind.consumed for kind in stats.types.values()) == accepted
        assert all(handler.intruders == 0 for handler in self.handlers.values())

    def arrivals(self) -> dict[tuple[int, type], list[int]]:
        """Return the numbers that arrived, in their order, by producer and type."""
        found: defaultdict[tuple[int, type], list[int]] = defaultdict(list)
        for handler in set(self.handlers.values()):
            for item in handler.got:
                found[item.producer, type(item)].append(item.number)
        return found

    def check_arrivals(self, *, in_order: bool) -> None:
        """Nothing is missing or came twice; in order, as far as that is promised."""
        arrived = self.arrivals()
        for producer in self.producers:
            for kind, count in producer.accepted.items():
                numbers = arrived[producer.index, kind]
                assert len(numbers) == len(set(numbers)) == count
                assert not in_order or numbers == sorted(numbers)


@pytest.fixture(autouse=True)
def haste() -> Iterator[None]:
    """Threads take turns about as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


STRATEGIES = (BufferStrategy.BLOCKING, BufferStrategy.IF_POSSIBLE)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.value)
@pytest.mark.parametrize(
    "balancer", [Rotation(), DrainBalancer.throughput_weighted(1.0)], ids=["rotate", "weighted"]
)
def test_types_arrive_whole_and_in_order(strategy: BufferStrategy, balancer: DrainBalancer) -> None:
    """With growth and rebalancing under load, each producer's items of a type keep their order."""
    stress = Stress(strategy=strategy, balancer=balancer)
    with stress.producing():
        pass
    moved = stress.queue.stats().partitions_moved
    stress.shutdown()
    stress.check_sums()
    stress.check_arrivals(in_order=True)
    assert moved > 0, "nothing was rebalanced, so nothing was tried"
    assert stress.queue.stats().partition_count > DRAINERS


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.value)
def test_a_type_on_all_drainers_at_once_arrives_whole(strategy: BufferStrategy) -> None:
    """Round robin spreads a type; its handler is still entered by one thread at a time."""
    stress = Stress(strategy=strategy, selector=PartitionSelector.round_robin())
    with stress.producing():
        pass
    stress.shutdown()
    stress.check_sums()
    stress.check_arrivals(in_order=False)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.value)
def test_a_shutdown_under_load_delivers_what_was_accepted(strategy: BufferStrategy) -> None:
    """Producers, blocked ones too, are refused from some moment on; nothing before is lost."""
    stress = Stress(strategy=strategy, buffer_size=16)
    with stress.producing():
        assert stress.half_way.wait(PATIENCE)
        stress.shutdown()
    assert len(stress.known) < len(KINDS), "the producers were done before the shutdown"
    stress.check_sums()
    stress.check_arrivals(in_order=True)
