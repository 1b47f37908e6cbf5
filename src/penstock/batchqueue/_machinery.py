"""What works inside a queue: routes, partitions, drainers and the threads they run on."""

from __future__ import annotations

import itertools
import logging
import threading
from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.batchqueue._dispatch import ConsumerDispatch, HandlerDispatch, HandlerEntry
from penstock.batchqueue._drainer import Drainer, DrainerParts, IdleBackoff
from penstock.batchqueue._intake import Intake
from penstock.batchqueue._ownership import OwnershipTable
from penstock.batchqueue._rebalancer import Rebalancer, RebalanceSettings
from penstock.batchqueue._shutdown import Shutdown
from penstock.batchqueue.config import BatchQueueConfig
from penstock.batchqueue.selectors import PartitionSelector, type_hash
from penstock.errors import ConfigError, InvalidItemError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.batchqueue._partition import Partition
    from penstock.clock import Clock
    from penstock.scheduling import Scheduler, SchedulerFactory, SharedSchedulers, Task

__all__ = ["Machinery"]

T = TypeVar("T")

logger = logging.getLogger("penstock.batchqueue")


class Machinery(Intake[T]):
    """The inside of a `BatchQueue`, which adds what a user sees of it."""

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

    def __init__(
        self,
        name: str,
        config: BatchQueueConfig[T],
        clock: Clock,
        schedulers: SharedSchedulers,
        factory: SchedulerFactory,
    ) -> None:
        if not isinstance(name, str) or not name:
            msg = f"a queue's name must be a non-empty str, not {name!r}"
            raise ConfigError(msg)
        if not isinstance(config, BatchQueueConfig):
            msg = f"the configuration of queue {name!r} must be a BatchQueueConfig, not {config!r}"
            raise ConfigError(msg)
        self.name = name
        self.config = config
        self._clock = clock
        self._schedulers = schedulers
        self._factory = factory
        self._strategy = config.strategy
        self._dispatch: ConsumerDispatch | HandlerDispatch = (
            HandlerDispatch(name, config.error_handler)
            if config.consumer is None
            else ConsumerDispatch(name, config.consumer, config.error_handler)
        )
        self._selector = self._choose_selector()
        self._weight = 0.0
        self._assemble(at_once=True)

    # -- what Intake asks for ---------------------------------------------------------

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
        if part is None:
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

    # -- the drainers: how they are woken, and what they ask for ------------------------

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

    def _share_idlers(self) -> None:
        """Have the drainers find out anew which handlers they look after when idle."""
        if self._dispatch.idlers():
            for drainer in self._drainers:
                drainer.wake()

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
        partitions = self._table.partitions
        part = self._routes.get(entry.kind)
        if part is None or partitions[part.index] is not part:  # not routed yet, or anew
            part = partitions[entry.hash % len(partitions)]
        return part.keeper

    @abstractmethod
    def _dispose(self) -> None:
        """Let go of the schedulers, once nothing more is to be delivered."""

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
        # In a child there are handlers already, and perhaps fewer than threads: it never shrinks.
        resolve = config.partitions.resolve
        count = max(resolve(self._planned_threads, w) for w in (0.0, self._weight))
        self._by_handler = config.consumer is None
        self._only_one = count == 1 and not config.partitions.grows
        self._typed = self._only_one or self._selector == PartitionSelector.type_hash()
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
