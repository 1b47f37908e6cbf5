"""What waits to be sent, and what of it is due. Pure: no lock, no clock, no thread."""

from __future__ import annotations

import enum
import math
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from penstock.batcher._sinks import Sink
    from penstock.batcher.settings import BatchSettings

__all__ = ["Entry", "Reason", "Staging"]

# (item, size, when it was accepted, who is told, and for whom): a plain tuple, because one is
# made for every item.
Entry: TypeAlias = "tuple[Any, int, float, Sink, Any]"


class Reason(enum.Enum):
    """What makes a batch due."""

    OVERFLOW = "overflow"
    """More waits than fits into it."""
    SIZE = "size"
    AGE = "age"
    FLUSH = "flush"
    PRESSURE = "pressure"
    """Somebody found no room."""


class Staging:
    """A queue of entries whose head is the batch being formed. The caller holds the lock."""

    #   G1  Entries leave in the order in which they came, in batches of consecutive ones
    #       (test_batches_keep_the_order).
    #   G2  `size` is the sum of the entries' sizes (test_the_size_is_kept_exactly).

    __slots__ = ("_max", "_wait", "entries", "size", "threshold")

    def __init__(self, settings: BatchSettings) -> None:
        self._max = settings.max_batch_size
        self._wait = settings.min_wait_time
        # A full queue is due even if it is below the smallest batch.
        self.threshold = min(settings.min_batch_size, settings.capacity or math.inf)
        self.entries: deque[Entry] = deque()
        self.size = 0

    def due(self, now: float, urgent: Reason | None = None) -> Reason | None:
        """Return why a batch is to be sent at *now*, or None if it is not."""
        entries = self.entries
        if not entries:
            return None
        if self.size > self._max and len(entries) > 1:
            return Reason.OVERFLOW
        if self.size >= self.threshold:
            return Reason.SIZE
        if self.delay(now) <= 0:
            return Reason.AGE
        return urgent

    def delay(self, now: float) -> float:
        """Return the seconds from *now* until the first entry is old enough to go."""
        return self.entries[0][2] + self._wait - now

    def take(self) -> list[Entry]:
        """Remove and return the next batch: what fits, and at least one."""
        entries = self.entries
        if self.size <= self._max:
            return self.take_all()
        # Sizes are at least 1, so as many entries as size means that each of them is 1.
        taken = count = self._max if self.size == len(entries) else 0
        if not count:
            for entry in entries:
                if count and taken + entry[1] > self._max:
                    break
                taken += entry[1]
                count += 1
        popleft = entries.popleft
        self.size -= taken
        return [popleft() for _ in range(count)]

    def take_all(self) -> list[Entry]:
        """Remove and return everything."""
        batch = list(self.entries)
        self.entries.clear()
        self.size = 0
        return batch
