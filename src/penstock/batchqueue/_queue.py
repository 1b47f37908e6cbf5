"""The queue as its users see it: handlers, items, figures and an end."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._checks import seconds
from penstock._process import drain_at_exit, renew_after_fork
from penstock.batchqueue import _snapshot
from penstock.batchqueue._dispatch import HandlerDispatch
from penstock.batchqueue._machinery import Machinery
from penstock.batchqueue.stats import BatchQueueStats, DrainReport
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import QueueClosedError, QueueModeError
from penstock.scheduling import SharedSchedulers, ThreadScheduler

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from penstock.batchqueue.config import BatchQueueConfig, Handler
    from penstock.scheduling import SchedulerFactory

__all__ = ["BatchQueue"]

T = TypeVar("T")

logger = logging.getLogger("penstock.batchqueue")

_default_schedulers = SharedSchedulers()


class BatchQueue(Machinery[T]):
    """A partitioned queue that drains itself into handlers, on threads it looks after.

    Usually made by a :class:`BatchQueueManager`; on its own it is a context manager that
    shuts down on leaving.
    """

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
        self._on_closed = on_closed
        super().__init__(name, config, clock, schedulers or _default_schedulers, factory)
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

    def remove_handler(self, type_: type) -> bool:
        """Forget the handler of *type_*; False if there was none.

        Items of the type that still come are counted as drops. Partitions are kept.
        """
        removed = self._handlers().remove(type_)
        self._share_idlers()
        return removed

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
        timeout = seconds(
            "shutdown(timeout)", self.config.shutdown_timeout if timeout is None else timeout
        )
        started = self._clock.now()
        before = self._consumed()
        if not self._shutdown.is_over():
            self._close_intake()
        if not self._shutdown.is_over() and self._drained_by_this_thread():
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

    def renew_after_fork(self) -> None:
        """Start empty in a child process; threads come back with the first use."""
        ended = self._closing
        self._dispatch.renew_after_fork()
        self._assemble(at_once=False)
        if ended:
            self._closing = True
            self._dispose()


def _resolve(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)
