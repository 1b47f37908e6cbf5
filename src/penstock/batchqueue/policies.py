"""How many partitions a queue has, and what happens when one is full."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from penstock._checks import whole_number

__all__ = ["BufferStrategy", "PartitionPolicy"]


class BufferStrategy(enum.Enum):
    """What ``produce`` does when the item's partition is full."""

    BLOCKING = "blocking"
    """Wait for room (for ever, or for the ``timeout`` given); nothing is dropped."""

    IF_POSSIBLE = "if_possible"
    """Refuse the new item: ``produce`` returns False and counts a drop."""

    DROP_OLDEST = "drop_oldest"
    """Accept the new item and evict the partition's oldest one, which is counted."""


@dataclass(frozen=True, slots=True, repr=False)
class PartitionPolicy:
    """A partition count stated as intent, resolved from threads and registered handlers.

    >>> PartitionPolicy.adaptive().resolve(threads=8, weighted_handlers=500)
    350
    """

    kind: str
    factor: int

    @classmethod
    def fixed(cls, count: int) -> PartitionPolicy:
        """Exactly *count* partitions."""
        return cls("fixed", whole_number("PartitionPolicy.fixed(count)", count, least=1))

    @classmethod
    def thread_multiply(cls, multiplier: int) -> PartitionPolicy:
        """*multiplier* partitions per drain thread."""
        return cls(
            "thread_multiply", whole_number("PartitionPolicy.thread_multiply", multiplier, least=1)
        )

    @classmethod
    def adaptive(cls, multiplier: int = 25) -> PartitionPolicy:
        """Grow with the handlers: one partition each up to *multiplier* per thread, then half."""
        return cls(
            "adaptive", whole_number("PartitionPolicy.adaptive(multiplier)", multiplier, least=1)
        )

    @property
    def grows(self) -> bool:
        """Whether the count depends on the handlers registered."""
        return self.kind == "adaptive"

    def resolve(self, threads: int, weighted_handlers: float = 0.0) -> int:
        """Return the partition count for *threads* threads and the handlers' summed weight."""
        if self.kind == "fixed":
            return self.factor
        if self.kind == "thread_multiply":
            return self.factor * threads
        # Weights such as 0.05 add up with a little noise; without the rounding, twenty
        # of them could come to a hair above 1 and cost a partition.
        handlers = math.ceil(round(weighted_handlers, 6))
        if handlers == 0:
            return max(1, threads)
        threshold = self.factor * threads
        return min(handlers, threshold) + max(0, handlers - threshold) // 2

    def __repr__(self) -> str:
        argument = f"multiplier={self.factor}" if self.grows else str(self.factor)
        return f"PartitionPolicy.{self.kind}({argument})"
