"""Which drain thread should own which partition, given what each partition was offered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._checks import finite_number

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DrainBalancer", "longest_first", "thread_loads"]

UNOWNED = -1


class DrainBalancer(ABC):
    """Decides on a new placement of partitions; subclass it to bring your own."""

    @abstractmethod
    def assign(
        self, throughput: Sequence[int], owners: Sequence[int], threads: int
    ) -> Sequence[int] | None:
        """Return the owner of each partition from now on, or None to leave all as it is.

        Args:
            throughput: What each partition was offered since the last call, drops included.
            owners: The thread that owns each partition now.
            threads: How many threads there are; owners are 0 to threads - 1.
        """

    @staticmethod
    def throughput_weighted(skip_below: float = 1.15) -> DrainBalancer:
        """Spread the load evenly, heaviest partition first; leave well alone below a ratio."""
        return _ThroughputWeighted(finite_number("throughput_weighted(skip_below)", skip_below))


@dataclass(frozen=True, slots=True)
class _ThroughputWeighted(DrainBalancer):
    skip_below: float

    def assign(
        self, throughput: Sequence[int], owners: Sequence[int], threads: int
    ) -> Sequence[int] | None:
        before = thread_loads(throughput, owners, threads)
        heaviest, lightest = max(before), min(before)
        if heaviest == 0 or (lightest > 0 and heaviest < self.skip_below * lightest):
            return None
        placed = longest_first(throughput, owners, threads)
        # One partition hotter than all the others together cannot be split: moving the
        # rest around it at every interval would buy nothing.
        if max(thread_loads(throughput, placed, threads)) >= heaviest:
            return None
        return placed


def thread_loads(throughput: Sequence[int], owners: Sequence[int], threads: int) -> list[int]:
    """Return what each thread was offered in sum."""
    loads = [0] * threads
    for load, owner in zip(throughput, owners, strict=True):
        if owner != UNOWNED:
            loads[owner] += load
    return loads


def longest_first(throughput: Sequence[int], owners: Sequence[int], threads: int) -> list[int]:
    """Place partitions by the longest-processing-time rule.

    Heaviest first, each to the thread with the least load so far, the lowest index on a
    tie. A partition that was offered nothing keeps its owner.

    >>> longest_first([7, 0, 5, 4], owners=[0, 1, 0, 1], threads=2)
    [0, 1, 1, 1]
    """
    placed = list(owners)
    loads = [0] * threads
    busy = (p for p, load in enumerate(throughput) if load > 0)
    for partition in sorted(busy, key=lambda p: -throughput[p]):
        lightest = loads.index(min(loads))
        placed[partition] = lightest
        loads[lightest] += throughput[partition]
    return placed
