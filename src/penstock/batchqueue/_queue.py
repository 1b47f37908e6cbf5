"""The queue itself: partitions, drainers and dispatch put together."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._process import drain_at_exit, renew_after_fork
from penstock.batchqueue import _snapshot
from penstock.batchqueue._dispatch import (
    ConsumerDispatch,
    HandlerDispatch,
    HandlerEntry,
)
from penstock.batchqueue._drainer import Drainer, DrainerParts, IdleBackoff
from penstock.batchqueue._intake import Intake
from penstock.batchqueue._ownership import OwnershipTable
from penstock.batchqueue._partition import RETIRED, Partition
from penstock.batchqueue._rebalancer import Rebalancer, RebalanceSettings
from penstock.batchqueue._shutdown import Shutdown
from penstock.batchqueue.selectors import PartitionSelector, type_hash
from penstock.batchqueue.stats import BatchQueueStats, DrainReport
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import ConfigError, InvalidItemError, QueueClosedError, QueueModeError
from penstock.scheduling import SharedSchedulers, ThreadScheduler

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from penstock.batchqueue.config import BatchQueueConfig, Handler
    from penstock.scheduling import Scheduler, SchedulerFactory, Task

__all__ = ["BatchQueue"]

T = TypeVar("T")

logger = logging.getLogger("penstock.batchqueue")

_default_schedulers = SharedSchedulers()


class BatchQueue(Intake[T]):
    """A partitioned queue that drains itself into handlers, on threads it looks after.

    Usually made by a :class:`BatchQueueManager`; on its own it is a context manager that
    shuts down on leaving.
    """

    # Locks, outermost first: a handler entry's (the only one held while user code runs;
    # it keeps that very handler to itself) > _registering > _route_lock > drainer > table
    # > partition > scheduler, counts. The numbered invariants stand in the modules that
    # keep them: P _partition, N _intake, O _ownership, D _dispatch, R _drainer,
    # X _shutdown.

    # Made by _assemble(), anew in a forked child:
    _dormant: bool  # in a child that has not used it yet
    _disposed: bool
    _left_over: tuple[Any, ...]
    _shutdown: Shutdown
    _table: OwnershipTable[T]
    _drainers: tuple[Drainer, ...]
    _rebalancer: Rebalancer | None
    _own_schedulers: list[Scheduler]

    def __init__(  # noqa: PLR0913 - what tests and managers put in place of the defaults
        self,
        name: str,
        config: BatchQueueConfig[T],
        *,
        clock: Clock = SYSTEM_CLOCK,
        schedulers: SharedSchedulers | None = None,
        factory: SchedulerFactory = ThreadScheduler,
        on_closed: Callable[[BatchQueue[Any]], None] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            msg = f"a queue's name must be a non-empty str, not {name!r}"
            raise ConfigError(msg)
        self.name = name
        self.config = config
        self._clock = clock
        self._schedulers = schedulers or _default_schedulers
        self._factory = factory
        self._on_closed = on_closed
        self._strategy = config.strategy
        self._dispatch: ConsumerDispatch | HandlerDispatch = (
            HandlerDispatch(name, config.error_handler)
            if config.consumer is None
            else ConsumerDispatch(name, config.consumer, config.error_handler)
        )
        self._selector = self._choose_selector()
        self._weight = 0.0
        self._assemble(at_once=True)
        renew_after_fork(self)
        drain_at_exit(self)

    # -- registration ---------------------------------------------------------------

    def add_handler(self, type_: type, handler: Handler[Any], weight: float = 1.0) -> None:
        """Send items of exactly *type_* to *handler*, which replaces one registered before.

        With adaptive partitions the queue may grow, also while it runs; *weight* is what
        the type counts for there (1.0: a partition of its own, 0.05: a twentieth).

        Raises:
            ConfigError: One of the arguments makes no sense.
            QueueModeError: The queue has a single consumer.
            QueueClosedError: The queue was shut down.
        """
        dispatch = self._handlers()
        with self._registering:
            if self._closing:
                msg = f"queue {self.name!r} was shut down and takes no more handlers"
                raise QueueClosedError(msg)
            self._weight = dispatch.add(type_, handler, weight)
            self._table.grow(self.config.partitions.resolve(self._planned_threads, self._weight))
        self._share_idlers()

    def _share_idlers(self) -> None:
        """Have the drainers find out anew which handlers they look after when idle."""
        if self._dispatch.idlers():
            for drainer in self._drainers:
                drainer.wake()

    def remove_handler(self, type_: type) -> bool:
        """Forget the handler of *type_*; False if there was none.

        Items of the type that still come are counted as drops. Partitions are kept.
        """
        return self._handlers().remove(type_)

    def _handlers(self) -> HandlerDispatch:
        if isinstance(self._dispatch, HandlerDispatch):
            return self._dispatch
        msg = (
            f"queue {self.name!r} has a single consumer, which gets every item: handlers by type "
            "need a queue without consumer="
        )
        raise QueueModeError(msg)

    # -- producing (the rest is in Intake) --------------------------------------------

    async def aproduce(self, item: T) -> bool:
        """Accept *item* like :meth:`produce`, waiting for room without blocking the loop.

        If the wait is cancelled the item was not accepted. Limit it with
        ``asyncio.timeout``.
        """
        import asyncio  # noqa: PLC0415 - costs every importer 50 ms and few need it

        loop = asyncio.get_running_loop()
        while True:
            room: asyncio.Future[None] = loop.create_future()

            def announce(room: asyncio.Future[None] = room) -> None:
                try:
                    loop.call_soon_threadsafe(_resolve, room)
                except RuntimeError:  # the loop was closed; nobody waits any more
                    logger.debug("queue.waiter_gone", extra={"queue": self.name})

            outcome = self._offer(item, announce)
            if isinstance(outcome, bool):
                return outcome
            try:
                await room
            except BaseException:
                outcome.unwatch(announce)
                raise

    def _place(self, item: T) -> Partition[T] | None:
        if item is None:
            msg = "None cannot be produced: it has no handler; leave it out, or wrap it"
            raise InvalidItemError(msg)
        with self._route_lock:
            if self._closing:
                return None
            if self._dormant:
                self._dormant = False
                self._wake_all()
            partitions = self._table.partitions
            if self._typed:
                return self._route(type(item), partitions)
        count = len(partitions)
        return partitions[self._selector.index(item, count) if count > 1 else 0]

    def _route(self, kind: type, partitions: tuple[Partition[T], ...]) -> Partition[T]:
        """Give *kind* a route, or the one that another producer has given it meanwhile (N3)."""
        part = self._routes.get(kind)
        if part is None or part.owner is RETIRED:
            part = partitions[type_hash(kind) % len(partitions)]
            part.kinds |= {kind}
            self._routes[kind] = part
        return part

    def _drained_by_this_thread(self) -> bool:
        if threading.get_ident() in self._dispatching:
            return True
        scheduler = self._drainers[0].scheduler
        return scheduler is not None and scheduler.has_only_this_thread()

    def _forget_route(self, kind: type, part: Partition[T]) -> None:
        with self._route_lock:
            if self._routes.get(kind) is part:
                del self._routes[kind]

    def _count_closed(self, items: Iterable[Any]) -> None:
        with self._closed_lock:
            self._closed_drops.update(map(type, items))
        self._note_drop("closed")

    def _note_drop(self, cause: str) -> None:
        if cause in self._noted:
            return
        self._noted.add(cause)
        logger.warning(
            "queue.items_dropped: queue %r dropped an item (%s); further drops are only counted, "
            "see stats().dropped",
            self.name,
            cause,
            extra={"queue": self.name, "cause": cause},
        )

    # -- looking ------------------------------------------------------------------------

    def stats(self) -> BatchQueueStats:
        """Return what the queue holds, has done and has lost, cheaply enough to poll."""
        with self._closed_lock:
            closed = Counter(self._closed_drops)
        return _snapshot.stats(
            _snapshot.Sources(
                name=self.name,
                state=self._shutdown.phase.value,
                buffer_size=self.config.buffer_size,
                partitions=self._table.partitions,
                dispatch=self._dispatch,
                drainers=self._drainers,
                rebalancer=self._rebalancer,
                closed=closed,
            )
        )

    @property
    def is_running(self) -> bool:
        """Whether the queue accepts items."""
        return not self._closing

    def __repr__(self) -> str:
        partitions = self._table.partitions
        used, slots = sum(p.used for p in partitions), sum(p.capacity for p in partitions)
        return (
            f"<BatchQueue {self.name!r} {self._shutdown.phase.value}, "
            f"{len(self._drainers)} drainers, {used}/{slots} used>"
        )

    # -- ending -------------------------------------------------------------------------

    def shutdown(self, timeout: float | None = None) -> DrainReport:
        """Refuse new items, drain what is there, flush every handler, stop the threads.

        Another call waits for the first. Called from one of the queue's own handlers it
        only starts the shutdown, which ends by itself; the report then says so.

        Args:
            timeout: Seconds until what is left is given up and reported (default: the
                configuration's ``shutdown_timeout``).
        """
        timeout = self.config.shutdown_timeout if timeout is None else timeout
        started = self._clock.now()
        before = self._consumed()
        self._close_intake()
        if threading.get_ident() in self._dispatching:
            return self._report(started, before, finished=False)
        self._help()
        over = self._shutdown.wait(timeout)
        if not over and self._shutdown.abandon():
            self._give_up()
        if not self._shutdown.is_over():
            return self._report(started, before, finished=False)
        remaining = max(0.0, started + timeout - self._clock.now())
        for scheduler in self._own_schedulers:
            scheduler.close(remaining if over else 0.0)
        return self._report(started, before)

    def drain_at_exit(self, timeout: float) -> float:
        """Shut down because the interpreter ends; return the seconds it took."""
        if self._shutdown.is_over() or self._dormant:
            return 0.0
        report = self.shutdown(timeout)
        if not report.complete:
            logger.warning(
                "queue.exit_incomplete: the interpreter ended with %d items of queue %r "
                "undelivered, %d in handlers",
                len(report.undelivered),
                self.name,
                report.in_handlers,
                extra={"queue": self.name},
            )
        return report.elapsed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _close_intake(self) -> None:
        """Refuse producers, then let the drainers close down (X3). Harmless when repeated."""
        self._refuse_producers()
        self._shutdown.begin()
        self._wake_all()

    def _refuse_producers(self) -> None:
        with self._route_lock:
            self._closing = True
            self._routes = {}
        self._table.close()
        for part in self._table.partitions:
            with part.lock:
                watchers = part.announce_room()
            for notify in watchers:
                notify()

    def _wake_all(self) -> None:
        for task in self._tasks():
            task.wake()

    def _tasks(self) -> Iterable[Task]:
        return (*self._drainers, self._rebalancer) if self._rebalancer else self._drainers

    def _help(self) -> None:
        """Run the drainers here if their scheduler has no threads to do it."""
        schedulers = [task.scheduler for task in self._tasks() if task.scheduler is not None]
        helped = [True]
        while any(helped):
            helped = [s.help(self._shutdown.is_over) for s in schedulers]

    def _give_up(self) -> None:
        in_hand = [item for drainer in self._drainers for item in drainer.give_up()]
        waiting = self._table.abandon()
        self._dispatch.abandon(in_hand, waiting)
        self._left_over = left = (*in_hand, *waiting)
        self._wake_all()
        self._dispose()
        if left:
            logger.warning(
                "queue.shutdown_timed_out: %d items of queue %r were not delivered in time; "
                "they are in the report",
                len(left),
                self.name,
                extra={"queue": self.name},
            )

    def _dispose(self) -> None:
        """Let go of the schedulers and of the manager, once nothing more is to be delivered."""
        with self._closed_lock:
            done, self._disposed = self._disposed, True
        if done:
            return
        for scheduler in self._own_schedulers:
            scheduler.close(0.0)
        if self.config.shared_scheduler is not None:
            self._schedulers.release(self.config.shared_scheduler[0])
        if self._on_closed is not None:
            self._on_closed(self)
        self._shutdown.finish()

    def _report(self, started: float, before: int, *, finished: bool = True) -> DrainReport:
        unflushed = [e.name for e in self._dispatch.idlers() if not e.flushed]
        return DrainReport(
            queue=self.name,
            consumed=self._consumed() - before,
            undelivered=self._left_over,
            in_handlers=sum(d.now_handling for d in self._drainers) if finished else 0,
            unflushed=tuple(unflushed) if finished else (),
            elapsed=self._clock.now() - started,
            finished=finished,
        )

    def _consumed(self) -> int:
        with self._dispatch.lock:
            return sum(c.consumed for c in self._dispatch.counts.values())

    # -- putting together -----------------------------------------------------------------

    def _choose_selector(self) -> PartitionSelector:
        config = self.config
        if config.selector is not None:
            return PartitionSelector.of(config.selector)
        # By type, a queue of one type would use one of its partitions and one thread.
        many = config.consumer is not None
        return PartitionSelector.round_robin() if many else PartitionSelector.type_hash()

    def _assemble(self, *, at_once: bool) -> None:
        """Build partitions and drainers: at the start, and anew in a forked child."""
        config = self.config
        self._registering = threading.Lock()
        self._route_lock = threading.Lock()
        self._closed_lock = threading.Lock()
        self._closed_drops: Counter[type] = Counter()
        self._noted: set[str] = set()
        self._dispatching: set[int] = set()  # threads that run one of the drainers
        self._left_over = ()
        self._disposed = False
        self._routes = {}
        self._closing = False
        self._dormant = not at_once
        self._planned_threads = 1 if config.threads is None else config.threads.resolve()
        count = config.partitions.resolve(self._planned_threads, self._weight)
        self._by_handler = config.consumer is None
        self._typed = self._selector == PartitionSelector.type_hash() or (
            count == 1 and not config.partitions.grows
        )
        threads = self._usable_threads(count)
        self._shutdown = Shutdown(threads, self._clock)
        parts = DrainerParts(
            queue=self.name,
            clock=self._clock,
            dispatch=self._dispatch,
            shutdown=self._shutdown,
            backoff=IdleBackoff(config.min_idle, config.max_idle),
            dispatching=self._dispatching,
            stale=self._stale,
            home=self._home,
            closed=self._dispose,
            wake_all=self._wake_all,
            share_idlers=self._share_idlers,
        )
        self._drainers = tuple(Drainer(index, parts) for index in range(threads))
        self._table = OwnershipTable[T](config.buffer_size, self._drainers, self._clock)
        self._table.grow(count)
        self._rebalancer = self._make_rebalancer(threads)
        self._attach(at_once=at_once)

    def _usable_threads(self, partitions: int) -> int:
        planned = self._planned_threads
        if partitions < planned:
            logger.warning(
                "queue.threads_reduced: queue %r has %d partitions for %d threads; using %d",
                self.name,
                partitions,
                planned,
                partitions,
                extra={"queue": self.name},
            )
        return min(partitions, planned)

    def _make_rebalancer(self, threads: int) -> Rebalancer | None:
        config = self.config
        if config.balancer is None or threads == 1:
            return None
        settings = RebalanceSettings(
            queue=self.name,
            balancer=config.balancer,
            interval=config.rebalance_interval,
            handover_timeout=config.handover_timeout,
            threads=threads,
        )
        return Rebalancer(settings, self._table, self._shutdown)

    def _attach(self, *, at_once: bool) -> None:
        """Give every task a thread of its own, or the drainer to the shared scheduler."""
        self._own_schedulers = []
        for drainer in self._drainers:
            drainer.use(self._table)
        if self.config.shared_scheduler is not None:
            name, policy = self.config.shared_scheduler
            shared = self._schedulers.acquire(name, policy)
            for drainer in self._drainers:
                shared.attach(drainer, at_once=at_once)
            return
        names = itertools.chain(map(str, range(len(self._drainers))), ["rebalance"])
        for task, label in zip(self._tasks(), names, strict=False):
            scheduler = self._factory(f"{self.name}-{label}", 1, self._clock)
            scheduler.attach(task, at_once=at_once)
            self._own_schedulers.append(scheduler)

    def renew_after_fork(self) -> None:
        """Start empty in a child process; threads come back with the first use."""
        self._dispatch.renew_after_fork()
        if self._shutdown.is_begun():
            self._shutdown = Shutdown(0, self._clock)
            self._shutdown.finish()
            return
        self._assemble(at_once=False)

    # -- callbacks of the drainers ----------------------------------------------------------

    def _stale(self, owned: tuple[Partition[Any], ...]) -> list[Partition[Any]]:
        if not self._typed:
            return []
        count = len(self._table.partitions)
        with self._route_lock:
            return [p for p in owned if any(type_hash(k) % count != p.index for k in p.kinds)]

    def _home(self, entry: HandlerEntry) -> object:
        """Return the drainer that looks after *entry* when it is idle."""
        if not entry.exclusive:
            return self._drainers[0]
        part = self._routes.get(entry.kind)
        if part is None or part.owner is RETIRED:
            partitions = self._table.partitions
            part = partitions[entry.hash % len(partitions)]
        return part.keeper


def _resolve(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)
