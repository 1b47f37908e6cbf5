"""Queues by name: made once, shared by whoever asks for the name, shut down together."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._process import renew_after_fork
from penstock.batchqueue._queue import BatchQueue
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import QueueExistsError, QueueModeError
from penstock.scheduling import SharedSchedulers, ThreadScheduler

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from penstock.batchqueue.config import BatchQueueConfig
    from penstock.batchqueue.stats import DrainReport
    from penstock.scheduling import SchedulerFactory

__all__ = ["BatchQueueManager"]

T = TypeVar("T")

logger = logging.getLogger("penstock.batchqueue")


class BatchQueueManager:
    """A registry of queues and of the schedulers they share.

    As a context manager it shuts all its queues down on leaving. :meth:`default` is one
    for the whole process, drained when the interpreter ends.
    """

    # Guarded by _lock, which is not held while a queue shuts down:
    #   M1  A name maps to at most one queue that is not shut down
    #       (test_two_threads_that_ask_for_one_name_get_one_queue).

    def __init__(
        self, *, clock: Clock = SYSTEM_CLOCK, factory: SchedulerFactory = ThreadScheduler
    ) -> None:
        self._clock = clock
        self._factory = factory
        self._schedulers = SharedSchedulers(clock, factory)
        # Re-entrant: making a queue may log, and whoever handles the record may ask for one.
        self._lock = threading.RLock()
        self._queues: dict[str, BatchQueue[Any]] = {}
        self._warned: set[tuple[str, tuple[str, ...]]] = set()
        renew_after_fork(self)

    @staticmethod
    def default() -> BatchQueueManager:
        """Return the process-wide manager."""
        return _DEFAULT

    def create(self, name: str, config: BatchQueueConfig[T]) -> BatchQueue[T]:
        """Make a queue and start it.

        Raises:
            QueueExistsError: The name is taken.
        """
        with self._lock:
            if name in self._queues:
                msg = (
                    f"queue {name!r} exists already: choose another name, or share it with "
                    "get_or_create()"
                )
                raise QueueExistsError(msg)
            return self._make(name, config)

    def get_or_create(self, name: str, config: BatchQueueConfig[T]) -> BatchQueue[T]:
        """Return the queue called *name*, made with *config* if there is none.

        A configuration that differs from the queue's is ignored with a warning.

        Raises:
            QueueModeError: One of the two configurations has a consumer, the other has not.
        """
        with self._lock:
            queue = self._queues.get(name)
            if queue is None:
                return self._make(name, config)
        self._compare(queue, config)
        return queue

    def get(self, name: str) -> BatchQueue[Any] | None:
        """Return the queue called *name*, or None."""
        with self._lock:
            return self._queues.get(name)

    def queues(self) -> tuple[BatchQueue[Any], ...]:
        """Return all queues in the order of their creation."""
        with self._lock:
            return tuple(self._queues.values())

    def shutdown(self, name: str, timeout: float | None = None) -> DrainReport | None:
        """Shut the queue called *name* down and forget it; None if there is none."""
        queue = self.get(name)
        return None if queue is None else queue.shutdown(timeout)

    def shutdown_all(
        self, timeout: float | None = None, order: Iterable[str] = ()
    ) -> tuple[DrainReport, ...]:
        """Shut all queues down one by one, each flushed before the next refuses items.

        Args:
            timeout: Seconds for each queue (default: its own ``shutdown_timeout``).
            order: Names that go first; the rest follows in the order of creation.
        """
        first = [self.get(name) for name in dict.fromkeys(order)]
        rest = [queue for queue in self.queues() if queue not in first]
        return tuple(queue.shutdown(timeout) for queue in (*first, *rest) if queue is not None)

    def renew_after_fork(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown_all()

    def __repr__(self) -> str:
        return f"<BatchQueueManager, {len(self._queues)} queues: {', '.join(self._queues)}>"

    def _make(self, name: str, config: BatchQueueConfig[T]) -> BatchQueue[T]:
        queue = BatchQueue(
            name,
            config,
            clock=self._clock,
            schedulers=self._schedulers,
            factory=self._factory,
            on_closed=self._forget,
        )
        self._queues[name] = queue
        return queue

    def _forget(self, queue: BatchQueue[Any]) -> None:
        with self._lock:
            if self._queues.get(queue.name) is queue:
                del self._queues[queue.name]
                self._warned = {w for w in self._warned if w[0] != queue.name}

    def _compare(self, queue: BatchQueue[Any], config: BatchQueueConfig[Any]) -> None:
        if (queue.config.consumer is None) != (config.consumer is None):
            msg = (
                f"queue {queue.name!r} exists and "
                f"{'dispatches by type' if queue.config.consumer is None else 'has a consumer'}; "
                "the configuration given asks for the other mode"
            )
            raise QueueModeError(msg)
        different = queue.config.differences(config)
        with self._lock:
            if not different or (queue.name, different) in self._warned:
                return
            self._warned.add((queue.name, different))
        logger.warning(
            "queue.config_ignored: queue %r exists with another %s; the first configuration stays",
            queue.name,
            ", ".join(different),
            extra={"queue": queue.name, "fields": different},
        )


_DEFAULT = BatchQueueManager()
