"""A queue whose drain threads can be held up, so that producing is measured by itself."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.batchqueue import BatchQueue, BatchQueueConfig, HandlerConsumer, PartitionPolicy
from penstock.batchqueue.selectors import type_hash
from penstock.scheduling import ThreadPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["GatedQueue"]

THREADS = 4


class _Handler(HandlerConsumer[Any]):
    """Does nothing but wait while the gate is closed; one object per type, as in real use."""

    __slots__ = ("_gate",)

    def __init__(self, gate: GatedQueue) -> None:
        self._gate = gate

    def consume(self, batch: list[Any]) -> None:
        gate = self._gate
        if not gate.is_open.is_set():
            gate.held.release()
            gate.is_open.wait()
        gate.count(len(batch))


class GatedQueue:
    """A queue of *types* with room for *room* items of each."""

    def __init__(self, types: Sequence[type], room: int) -> None:
        self.is_open = threading.Event()
        self.held = threading.Semaphore(0)  # one permit per drain thread that stands at the gate
        self._lock = threading.Lock()
        self._left = 0
        self._empty = threading.Event()
        policy = PartitionPolicy.adaptive()
        config = BatchQueueConfig[Any](
            threads=ThreadPolicy.fixed(THREADS),
            partitions=policy,
            buffer_size=_crowd(types, policy) * (room + 1),
        )
        self.queue = BatchQueue[Any]("gated", config)
        for kind in types:
            self.queue.add_handler(kind, _Handler(self))
        self._stoppers = [kind() for kind in self._one_type_per_thread(types)]

    def hold(self, items: int) -> None:
        """Bring every drain thread to the gate; *items* are going to be produced."""
        self._left = items + len(self._stoppers)
        self._empty.clear()
        self.is_open.clear()
        for stopper in self._stoppers:
            self.queue.produce(stopper)
        for _ in self._stoppers:
            self.held.acquire()

    def drain(self) -> None:
        """Open the gate and wait until a handler got the last item."""
        self.is_open.set()
        self._empty.wait()

    def count(self, items: int) -> None:
        """Note that a handler got *items*."""
        with self._lock:
            self._left -= items
            if not self._left:
                self._empty.set()

    def _one_type_per_thread(self, types: Sequence[type]) -> list[type]:
        partitions = self.queue.stats().partitions
        owners = {partitions[type_hash(kind) % len(partitions)].thread: kind for kind in types}
        return list(owners.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_open.set()
        self.queue.shutdown()


def _crowd(types: Sequence[type], policy: PartitionPolicy) -> int:
    """Return how many types share the partition that has the most of them."""
    count = policy.resolve(THREADS, len(types))
    return max(Counter(type_hash(kind) % count for kind in types).values())
