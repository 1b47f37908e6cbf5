"""Frozen snapshots of what a queue holds, has done and has lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BatchQueueStats", "DrainReport", "DropCounts", "PartitionStats", "TypeStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCounts:
    """Items that no handler got, by cause."""

    full: int = 0
    """Refused because the partition was full; never accepted."""
    closed: int = 0
    """Refused because the queue was shut down; never accepted."""
    evicted: int = 0
    """Accepted, then pushed out by a newer item (``DROP_OLDEST``)."""
    no_handler: int = 0
    """Accepted, but no handler was registered for the type when it was drained."""
    abandoned: int = 0
    """Accepted, and still undelivered when the shutdown's time was over."""

    @property
    def refused(self) -> int:
        """Dropped before they were accepted."""
        return self.full + self.closed

    @property
    def lost(self) -> int:
        """Dropped after they had been accepted."""
        return self.evicted + self.no_handler + self.abandoned

    @property
    def total(self) -> int:
        """Dropped for whatever cause."""
        return self.refused + self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    """One partition. Only drops that happen in a partition are counted here: full, evicted."""

    index: int
    used: int
    capacity: int
    accepted: int
    drained: int
    dropped: DropCounts
    thread: int | None
    """The drain thread that owns it; None while it changes hands or after shutdown."""

    @property
    def used_percentage(self) -> float:
        """How full it is, 0 to 100."""
        return 100.0 * self.used / self.capacity

    @property
    def offered(self) -> int:
        """What producers brought, accepted or not: the throughput that balancing goes by."""
        return self.accepted + self.dropped.full


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeStats:
    """One exact type of item."""

    accepted: int = 0
    consumed: int = 0
    errors: int = 0
    """Calls of the handler that raised."""
    failed: int = 0
    """Items in those calls; they count as consumed too."""
    waiting: int = 0
    dropped: DropCounts = field(default_factory=DropCounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQueueStats:
    """A queue at one moment. Partitions are read one after the other, not all at once."""

    name: str
    state: str
    buffer_size: int
    partitions: tuple[PartitionStats, ...]
    types: Mapping[type, TypeStats]
    """Per exact type; empty for a queue with a single consumer, which never looks at types."""
    accepted: int
    consumed: int
    errors: int
    failed: int
    dropped: DropCounts
    drained_by_thread: tuple[int, ...]
    load_ratio: float | None
    """Heaviest over lightest thread in the last balancing interval; None before the first."""
    rebalances: int
    partitions_moved: int
    handovers_abandoned: int
    """Rebalances rolled back because an owner did not finish its cycle in time."""

    @property
    def partition_count(self) -> int:
        """How many partitions there are now."""
        return len(self.partitions)

    @property
    def total_capacity(self) -> int:
        """The slots of all partitions together."""
        return sum(p.capacity for p in self.partitions)

    @property
    def total_used(self) -> int:
        """Items that wait in all partitions together."""
        return sum(p.used for p in self.partitions)

    @property
    def total_used_percentage(self) -> float:
        """How full the queue is, 0 to 100."""
        return 100.0 * self.total_used / self.total_capacity

    @property
    def in_flight(self) -> int:
        """Accepted and taken out of a partition, but not through a handler yet."""
        return max(0, self.accepted - self.total_used - self.consumed - self.dropped.lost)

    def top_n(self, n: int) -> tuple[PartitionStats, ...]:
        """Return the *n* fullest partitions, fullest first, ties by index."""
        ranked = sorted(self.partitions, key=lambda p: (-p.used, p.index))
        return tuple(ranked[: max(0, n)])


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """How a shutdown ended."""

    queue: str
    consumed: int
    """Items that handlers got from the start of the shutdown on."""
    undelivered: tuple[Any, ...]
    """Accepted items that no handler got in time: yours to store or to log."""
    in_handlers: int
    """Items in the hands of handlers that had not returned: delivered, outcome unknown."""
    unflushed: tuple[str, ...]
    """Handlers whose last ``on_idle`` was not reached or had not returned."""
    elapsed: float
    finished: bool
    """False if the queue was still draining when the report was made."""

    @property
    def complete(self) -> bool:
        """Whether every accepted item was consumed and every handler flushed."""
        return self.finished and not (self.undelivered or self.in_handlers or self.unflushed)
