"""A queue on a clock that stands still, and beside it the little that is known to be true of it.

Every item has a number of its own. From what producers were told, what handlers got and what
reports said follows where each number must be; `World.check` compares that with where it is.

Everything runs on one thread, but not one after the other: a handler may step other drainers and
the rebalancer while it is being called, which is what a second thread could do at that point.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from penstock import (
    BatchQueueConfig,
    BatchQueueManager,
    BatchQueueStats,
    BufferStrategy,
    DrainBalancer,
    DrainReport,
    HandlerConsumer,
    PartitionPolicy,
    PartitionSelector,
    ThreadPolicy,
)
from penstock.batchqueue._dispatch import HandlerDispatch
from penstock.batchqueue._drainer import Drainer
from penstock.batchqueue._partition import CLOSED, MOVING, Partition
from penstock.errors import QueueClosedError, QueueModeError, ReentrantProduceError
from penstock.scheduling import Task, TaskState
from penstock.testing import FakeClock, StepExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MIN_IDLE, MAX_IDLE, INTERVAL = 0.001, 0.05, 0.2


class Item:
    """Something with a number."""

    __slots__ = ("uid",)

    def __init__(self, uid: int) -> None:
        self.uid = uid


def _kind(number: int) -> type[Item]:
    return cast("type[Item]", type(f"Kind{number}", (Item,), {"__slots__": ()}))


KINDS = tuple(_kind(number) for number in range(7))


class BoomError(Exception):
    """What a handler raises on purpose."""


class Rotation(DrainBalancer):
    """Moves every partition at every interval: the most that a balancer can ask for."""

    def assign(
        self, throughput: Sequence[int], owners: Sequence[int], threads: int
    ) -> Sequence[int]:
        """Return the next thread for each partition."""
        del throughput
        return [owner if owner < 0 else (owner + 1) % threads for owner in owners]


class ForwardClock(FakeClock):
    """A clock that handlers may move too, while the steps are on their way to a later time."""

    def advance(self, seconds: float) -> None:
        """Move time forward, never back to where the steps wanted to be."""
        super().advance(max(0.0, seconds))


class Steps(StepExecutor):
    """Steps that help a shutdown only if they are told to."""

    helpful = True

    def help(self, done: Callable[[], bool]) -> bool:
        """Run what is ready until *done*, unless all threads are to be busy elsewhere."""
        return self.helpful and super().help(done)


class Recorder(HandlerConsumer[Item]):
    """Reports to the world what it is called with; has nothing to do when idle."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.inside = 0
        self.trace: list[str] = []

    def consume(self, batch: list[Item]) -> None:
        """Enter, do what is planned, leave."""
        self.trace.append("consume")
        self.world.consume(self, batch)


class IdleRecorder(Recorder):
    """Also notes its idle calls."""

    def on_idle(self) -> None:
        """Note the call, and that nobody else is in here."""
        self.trace.append("idle")
        self.world.expect(
            self.inside == 0 or self.world.setup.consumer, f"{self.name}: on_idle while inside"
        )


@dataclass(frozen=True)
class Setup:
    """What the world's queue is like."""

    strategy: BufferStrategy
    selector: str
    threads: int
    partitions: PartitionPolicy
    balancer: DrainBalancer | None
    buffer_size: int
    consumer: bool = False

    def chosen_selector(self) -> PartitionSelector | None:
        """Return the selector of that name."""
        match self.selector:
            case "round_robin":
                return PartitionSelector.round_robin()
            case "by_key":
                return PartitionSelector.by_key(lambda item: item.uid % 3)
        return None

    def lane(self, item: Item) -> object | None:
        """Return what *item* must not be overtaken in, or None if it may be."""
        if self.consumer or self.selector == "round_robin":
            return None
        if self.selector == "by_key":
            return None if self.partitions.grows else (type(item), item.uid % 3)
        return type(item)


class World:
    """The queue and what must be true of it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clock = ForwardClock()
        self.steps = Steps(self.clock)
        self.handlers: list[Recorder] = [
            (IdleRecorder if n % 2 else Recorder)(self, f"handler{n}") for n in range(1, 6)
        ]
        self.registry: dict[type, Recorder] = {}
        self.weights: dict[type, float] = {}
        self.plan: deque[tuple[str, int]] = deque()
        self.failure: BaseException | None = None
        self.made = 0
        self.accepted: dict[int, type] = {}
        self.delivered: set[int] = set()
        self.undelivered: set[int] = set()
        self.last_in_lane: dict[object, int] = {}
        self.refused_full: Counter[type] = Counter()
        self.refused_closed: Counter[type] = Counter()
        self.consumed = self.errors = self.failed = self.in_handlers = 0
        self.calls: list[tuple[Drainer, type]] = []  # of handlers, that have not returned
        self.closed = False
        balancing = (
            {}
            if setup.balancer is None
            else {"balancer": setup.balancer, "rebalance_interval": INTERVAL}
        )
        config = BatchQueueConfig[Item](
            threads=ThreadPolicy.fixed(setup.threads),
            partitions=setup.partitions,
            selector=setup.chosen_selector(),
            buffer_size=setup.buffer_size,
            strategy=setup.strategy,
            consumer=self.handlers[0] if setup.consumer else None,
            error_handler=self._on_error,
            min_idle=MIN_IDLE,
            max_idle=MAX_IDLE,
            # Nobody else could end the cycle that a hand-over inside a handler waits for.
            handover_timeout=0.0,
            **balancing,  # type: ignore[arg-type]
        )
        self.queue = BatchQueueManager(clock=self.clock, factory=self.steps).create("q", config)

    # -- what producers do --------------------------------------------------------------

    def produce(self, number: int, *, insist: bool = False) -> None:
        """Produce one item; with *insist*, a handler does so without a timeout."""
        item = self._make(number)
        before = self._pressure()
        try:
            accepted = self.queue.produce(item, None if insist else 0)
        except ReentrantProduceError:
            assert insist
            assert self.setup.strategy is BufferStrategy.BLOCKING
            assert any(p.used >= p.capacity for p in self.parts)
            return
        self._settle([item], int(accepted), before)

    def produce_many(self, numbers: Sequence[int]) -> None:
        """Produce several items of mixed types at once."""
        items = [self._make(number) for number in numbers]
        before = self._pressure()
        self._settle(items, self.queue.produce_many(items, timeout=0), before)

    def _make(self, number: int) -> Item:
        self.made += 1
        return KINDS[number % len(KINDS)](self.made)

    def _pressure(self) -> list[int]:
        return [_pushed_out(part) for part in self.parts]

    def _settle(self, items: list[Item], accepted: int, before: list[int]) -> None:
        """Note what became of *items*, given how many the queue says it accepted."""
        kept = items if self.setup.strategy is BufferStrategy.DROP_OLDEST else self._found(items)
        kept = [] if self.closed else kept
        assert accepted == len(kept), f"said {accepted}, kept {len(kept)} of {len(items)}"
        self.accepted.update((item.uid, type(item)) for item in kept)
        refused = Counter(type(item) for item in items if item.uid not in self.accepted)
        (self.refused_closed if self.closed else self.refused_full).update(refused)
        for part, pushed_out in zip(self.parts, before, strict=True):
            if _pushed_out(part) > pushed_out:
                assert part.used == part.capacity, f"{part!r} dropped an item although it had room"

    def _found(self, items: list[Item]) -> list[Item]:
        waiting = set(self._waiting())
        return [item for item in items if item.uid in waiting]

    # -- what handlers do ----------------------------------------------------------------

    def consume(self, handler: Recorder, batch: list[Item]) -> None:
        """Be *handler* while it is called with *batch*."""
        self._check_batch(handler, batch)
        size = len(batch)
        handler.inside += 1
        self.in_handlers += size
        busy = [drainer for drainer, _ in self.calls]
        caller = next(d for d in self.queue._drainers if d.now_handling and d not in busy)
        self.calls.append((caller, type(batch[0])))
        try:
            self._act(handler, type(batch[0]))
            self.check_flow()
        except BoomError:
            self.errors += 1
            self.failed += size
            raise
        finally:
            self.calls.pop()
            handler.inside -= 1
            self.in_handlers -= size
            self.consumed += size

    def _check_batch(self, handler: Recorder, batch: list[Item]) -> None:
        assert batch, "a handler was called with nothing"
        if not self.setup.consumer:
            assert handler.inside == 0, f"{handler.name} was entered twice at once"
            assert {self.registry.get(type(item)) for item in batch} == {handler}
        for item in batch:
            assert item.uid in self.accepted, f"{item.uid} was never accepted"
            assert item.uid not in self.delivered, f"{item.uid} was delivered twice"
            self.delivered.add(item.uid)
            lane = self.setup.lane(item)
            if lane is not None:
                assert self.last_in_lane.get(lane, 0) < item.uid, f"{item.uid} was overtaken"
                self.last_in_lane[lane] = item.uid

    def _act(self, handler: Recorder, kind: type) -> None:
        """Do the next of the planned things, from inside a handler."""
        name, number = self.plan.popleft() if self.plan else ("nothing", 0)
        match name:
            case "raise":
                raise BoomError
            case "produce" | "insist":
                self.produce(number, insist=name == "insist")
            case "produce_many":
                self.produce_many([number, number + 1, number, number])
            case "come_back":
                self.remove_handler(KINDS.index(kind))
                self.add_handler(KINDS.index(kind) + number % 2, self.handlers.index(handler))
                self.step_beside(number)
            case _:
                self._act_beside(name, number)

    def _act_beside(self, name: str, number: int) -> None:
        """Do what would be done by another thread while this one is in its handler."""
        match name:
            case "step":
                self.step_beside(number)
            case "rebalance":
                self.clock.advance(INTERVAL)
                if self.queue._rebalancer is not None:
                    self.steps.step(self.queue._rebalancer)
            case "dwell":
                for _ in range(5):
                    self.clock.advance(MAX_IDLE)
                    self.step_beside(number)
            case "add":
                self.add_handler(number, number * 3)
            case "remove":
                self.remove_handler(number)
            case "shutdown":
                self.shutdown(timeout=1.0)
            case "give_up":
                self.queue._dispatching.discard(threading.get_ident())
                self.shutdown(timeout=0.0, helpful=False)
                self.queue._dispatching.add(threading.get_ident())

    def step(self, number: int) -> None:
        """Run one of the tasks that are ready."""
        ready = self.steps.ready()
        if ready:
            self.steps.step(ready[number % len(ready)])

    def step_beside(self, number: int) -> None:
        """Run another task while this one is in its handler, as another thread would."""
        able = [task for task in self.steps.ready() if not self._would_wait(task)]
        if able:
            self.steps.step(able[number % len(able)])
        # A run notes its thread as one that dispatches, and both runs are on this one.
        self.queue._dispatching.add(threading.get_ident())

    def _would_wait(self, task: Task) -> bool:
        """Whether *task* would have to wait for a handler that is being called below."""
        dispatch = self.queue._dispatch
        if not isinstance(task, Drainer) or not isinstance(dispatch, HandlerDispatch):
            return False
        owned = (part for part in self.parts if part.owner is task)
        kinds = {type(item) for part in owned for item in part.buffer[part.dead :]}
        entries = (dispatch._by_type.get(kind) for kind in kinds)
        return any(entry is not None and entry.lock.locked() for entry in entries)

    # -- registration and the end -----------------------------------------------------------

    def add_handler(self, number: int, which: int, weight: float = 1.0) -> None:
        """Register a handler, new or known, for a type, new or known."""
        kind, handler = KINDS[number % len(KINDS)], self.handlers[which % len(self.handlers)]
        count = len(self.parts)
        try:
            self.queue.add_handler(kind, handler, weight)
        except QueueModeError:
            assert self.setup.consumer
            return
        except QueueClosedError:
            assert self.closed
            return
        assert not self.closed
        assert not self.setup.consumer
        self.registry[kind], self.weights[kind] = handler, weight
        wanted = self.setup.partitions.resolve(self.setup.threads, sum(self.weights.values()))
        assert len(self.parts) == max(count, wanted)

    def remove_handler(self, number: int) -> None:
        """Take a type's handler away."""
        if self.setup.consumer:
            return
        kind = KINDS[number % len(KINDS)]
        self.weights.pop(kind, None)
        assert self.queue.remove_handler(kind) == (self.registry.pop(kind, None) is not None)

    def shutdown(self, timeout: float, *, helpful: bool = True) -> None:
        """Shut down; not *helpful*, as if all threads were busy until the time is up."""
        self.closed = True
        self.steps.helpful = helpful
        report = self.queue.shutdown(timeout)
        self.steps.helpful = True
        self._check_report(report)

    def _check_report(self, report: DrainReport) -> None:
        left = [item.uid for item in report.undelivered]
        assert len(left) == len(set(left))
        # What was given up once is in every later report too.
        assert not self.undelivered or not report.finished or self.undelivered == set(left)
        assert self.delivered.isdisjoint(left)
        assert self.accepted.keys() >= set(left)
        self.undelivered.update(left)
        if report.finished:
            assert self.in_handlers == report.in_handlers
            assert not self._waiting()
        if report.complete:
            flushed = [h for h in self._in_use() if isinstance(h, IdleRecorder)]
            assert all(handler.trace[-1:] == ["idle"] for handler in flushed)

    def _in_use(self) -> list[Recorder]:
        return [self.handlers[0]] if self.setup.consumer else list(self.registry.values())

    # -- what must be true --------------------------------------------------------------------

    @property
    def parts(self) -> tuple[Partition[Item], ...]:
        """The queue's partitions."""
        return self.queue._table.partitions

    def check(self) -> None:
        """Check all that must be true between two calls, when no handler is being called."""
        if self.failure is not None:
            raise self.failure
        self.check_flow()
        assert self.in_handlers == 0
        assert not any(drainer.hand for drainer in self.queue._drainers)
        for part in self.parts:
            owner = part.owner
            assert owner in self.queue._drainers or (owner is CLOSED and self.closed)
            # Nobody would come for what waits with a drainer that sleeps.
            asleep = isinstance(owner, Drainer) and owner.state in (
                TaskState.PARKED,
                TaskState.ENDED,
            )
            assert part.is_empty() or not asleep, f"{part!r} waits for a sleeper"

    def check_flow(self) -> None:
        """Check what must be true at any moment, also while a handler is being called."""
        for part in self.parts:
            assert 0 <= part.used <= part.capacity
            assert part.limit == part.capacity + part.dead
            assert part.owner is not MOVING, "a hand-over left a partition in the air"
        stats = self.queue.stats()
        self._check_places(stats)
        self._check_sums(stats)
        if not self.setup.consumer:
            self._check_types(stats)

    def _check_places(self, stats: BatchQueueStats) -> None:
        waiting = self._waiting()
        hands = [item for d in self.queue._drainers for _, batch in d.hand for item in batch]
        there = Counter([*waiting, *(item.uid for item in hands)])
        assert all(times == 1 for times in there.values()), "an item is in two places"
        assert self.accepted.keys() >= there.keys()
        assert self.delivered.isdisjoint(there)
        assert self.undelivered.isdisjoint(there)
        if self.setup.selector == "type_hash" and not self.setup.consumer:
            self._check_fence()
        self._check_losses(there, stats)

    def _check_fence(self) -> None:
        """While a drainer has items of a type, in hand or in a handler, nobody else gets more."""
        in_hand = [(d, kind) for d in self.queue._drainers for kind, _ in d.hand]
        for drainer, kind in in_hand + self.calls:
            part = self.queue._routes.get(kind)
            assert part is None or part.owner in (drainer, CLOSED), f"{part!r} was moved"

    def _check_losses(self, there: Counter[int], stats: BatchQueueStats) -> None:
        """Whatever is nowhere must have been counted, under its type and a cause."""
        gone = self.accepted.keys() - there.keys() - self.delivered - self.undelivered
        lost = Counter(self.accepted[uid] for uid in gone)
        assert stats.dropped.abandoned == len(self.undelivered)
        assert stats.dropped.evicted + stats.dropped.no_handler == lost.total()
        if self.setup.strategy is not BufferStrategy.DROP_OLDEST:
            assert stats.dropped.evicted == 0
        if not self.setup.consumer:
            counted = {k: t.dropped.evicted + t.dropped.no_handler for k, t in stats.types.items()}
            assert +Counter(counted) == lost
        else:
            assert stats.dropped.no_handler == 0

    def _check_sums(self, stats: BatchQueueStats) -> None:
        in_hand = sum(len(batch) for d in self.queue._drainers for _, batch in d.hand)
        assert stats.accepted == len(self.accepted)
        assert stats.consumed == self.consumed
        assert stats.total_used == len(self._waiting())
        assert stats.in_flight == in_hand + self.in_handlers
        assert (
            stats.accepted
            == stats.consumed + stats.dropped.lost + stats.total_used + stats.in_flight
        )
        assert (stats.errors, stats.failed) == (self.errors, self.failed)
        assert stats.dropped.full == self.refused_full.total()
        assert stats.dropped.closed == self.refused_closed.total()
        assert sum(stats.drained_by_thread) + stats.dropped.abandoned >= sum(
            part.drained for part in stats.partitions
        )
        assert not (self.setup.consumer and stats.types)

    def _check_types(self, stats: BatchQueueStats) -> None:
        types = stats.types.values()
        assert sum(t.accepted for t in types) == stats.accepted
        assert sum(t.consumed for t in types) == stats.consumed
        assert sum(t.waiting for t in types) == stats.total_used
        assert sum(t.errors for t in types) == stats.errors
        assert sum(t.dropped.total for t in types) == stats.dropped.total
        assert +Counter({k: t.dropped.full for k, t in stats.types.items()}) == self.refused_full

    def check_idle(self) -> None:
        """Nothing waits after everything ran, and every handler has its idle calls."""
        self.steps.run_until_idle()
        assert not self._waiting()
        if self.closed:
            return
        before = {handler: len(handler.trace) for handler in self._in_use()}
        self.steps.advance(4 * MAX_IDLE)
        for handler, calls in before.items():
            forgotten = isinstance(handler, IdleRecorder) and len(handler.trace) == calls
            assert not forgotten, f"nobody calls on_idle of {handler.name}"

    def expect(self, holds: object, message: str) -> None:
        """Fail at the next check unless it *holds*: what on_idle raises is only logged."""
        if not holds:
            self.failure = self.failure or AssertionError(message)

    def _on_error(self, batch: list[Any], error: BaseException) -> None:
        del batch
        if not isinstance(error, BoomError):
            self.failure = self.failure or error

    def _waiting(self) -> list[int]:
        return [item.uid for part in self.parts for item in part.buffer[part.dead :]]


def _pushed_out(part: Partition[Any]) -> int:
    """Return how many items *part* has refused or evicted for lack of room."""
    return (part.refused or Counter()).total() + (part.evicted or Counter()).total()
