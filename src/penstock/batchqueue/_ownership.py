"""Which drainer may touch which partition.

The owner stands on the partition and nowhere else; this table is the only place that
changes it. Growth, rebalancing, re-routing and shutdown all come through here.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.batchqueue._partition import CLOSED, MOVING, RETIRED, Owner, Partition
from penstock.clock import Clock, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["OwnershipTable"]

T = TypeVar("T")


class OwnershipTable(Generic[T]):
    """Gives every partition to at most one drainer. Thread-safe."""

    # Guarded by _changed, which is taken twice per drain cycle (never per item) and is
    # never held while a handler runs. A partition's own lock may be taken inside it.
    #
    #   O1  A drainer inside a cycle touches only what it owned on entry
    #       (test_a_cycle_sees_what_it_owned_on_entry).
    #   O2  A partition changes from one drainer to another only after the old owner has
    #       left the cycle during which it was revoked
    #       (test_the_new_owner_waits_for_the_interrupted_cycle).
    #   O3  A hand-over ends: by its deadline (everything goes back) or by close()
    #       (test_a_busy_owner_keeps_its_partition_when_time_is_up,
    #        test_closing_ends_a_hand_over_and_gives_everything_back).
    #   O4  After growth every partition has an owner, whatever moved before or moves now
    #       (test_growth_after_a_rebalance_strands_nothing,
    #        test_growth_during_the_fence_strands_nothing).
    #   O5  A partition is retired only by its owner, outside any cycle, and only empty
    #       (test_a_partition_with_items_is_not_retired).
    #
    # A cycle is one bounded pass, not "until empty": that is the drainer's part of O3.

    def __init__(self, capacity: int, drainers: Sequence[Owner], clock: Clock) -> None:
        self._capacity = capacity
        self._drainers = tuple(drainers)
        self._clock = clock
        self._changed = threading.Condition()
        self._one_hand_over = threading.Lock()
        self._cycle_ids = itertools.count()
        self._inside: dict[Owner, int] = {}  # drainer -> the cycle it is in
        self._moving: dict[Partition[T], Owner] | None = None  # where to go back to
        self.is_closed = False
        self.version = 0  # grows with every change of owners or partitions
        self.partitions: tuple[Partition[T], ...] = ()

    def grow(self, count: int) -> None:
        """Have at least *count* partitions; new ones go to the drainers in turn."""
        with self._changed:
            known = self.partitions
            if self.is_closed or count <= len(known):
                return
            added = (
                Partition[T](p, self._capacity, self._drainers[p % len(self._drainers)])
                for p in range(len(known), count)
            )
            self.partitions = (*known, *added)
            self.version += 1

    def enter(self, drainer: Owner) -> int:
        """Begin a drain cycle of *drainer*; return the version it begins at."""
        with self._changed:
            self._inside[drainer] = next(self._cycle_ids)
            return self.version

    def leave(self, drainer: Owner) -> None:
        """End the drain cycle of *drainer*."""
        with self._changed:
            del self._inside[drainer]
            self._changed.notify_all()

    def owned_by(self, drainer: Owner) -> tuple[int, tuple[Partition[T], ...]]:
        """Return the partitions of *drainer*, and the version at which that is true."""
        with self._changed:
            owned = tuple(p for p in self.partitions if p.owner is drainer)
            return self.version, owned

    def owners(self) -> list[int]:
        """Return the index of each partition's drainer; -1 for those that have none."""
        index = {drainer: i for i, drainer in enumerate(self._drainers)}
        with self._changed:
            return [index.get(p.owner, -1) for p in self.partitions]

    def hand_over(self, targets: Mapping[int, int], timeout: float) -> int:
        """Give each partition in *targets* to its new drainer; return how many moved.

        Revoke all, wait for the old owners together, assign all. If an old owner is
        still in its cycle after *timeout* seconds, nothing has moved: a slow handler
        delays a rebalance, it never leaves a partition that nobody drains.
        """
        with self._one_hand_over, self._changed:
            if self.is_closed:
                return 0
            moves = self._revoke(targets)
            old = set((self._moving or {}).values())
            fence = {d: c for d, c in self._inside.items() if d in old}
            settled = wait_until(
                self._clock,
                self._changed,
                lambda: self._moving is None or self._left(fence),
                timeout,
            )
            if self._moving is None:  # closed meanwhile, which gave everything back
                return 0
            chosen = moves if settled else self._moving
            self._assign(chosen)
            self._moving = None
        for owner in set(chosen.values()):
            owner.wake()
        return len(moves) if settled else 0

    def retire(self, part: Partition[T], drainer: Owner) -> bool:
        """Replace an empty partition of *drainer*, so that its types are routed anew."""
        with self._changed, part.lock:
            if not self._withdraw_owner(part, drainer, RETIRED):
                return False
            fresh = part.successor()
            head, tail = self.partitions[: part.index], self.partitions[part.index + 1 :]
            self.partitions = (*head, fresh, *tail)
            self.version += 1
        return True

    def seal(self, drainer: Owner) -> bool:
        """Close the partitions of *drainer* if they are empty; False if one is not."""
        _, owned = self.owned_by(drainer)
        empty = True
        for part in owned:
            with self._changed, part.lock:
                empty &= self._withdraw_owner(part, drainer, CLOSED)
                self.version += 1
        return empty

    def close(self) -> None:
        """End a hand-over under way, giving everything back, and allow no other."""
        with self._changed:
            self.is_closed = True
            if self._moving is not None:
                self._assign(self._moving)
                self._moving = None
            self._changed.notify_all()

    def abandon(self) -> list[Any]:
        """Close every partition as it is; return what was still in them."""
        left: list[Any] = []
        for part in self.partitions:
            with self._changed, part.lock:
                part.owner = CLOSED
            left += part.take()[1]
        return left

    def _withdraw_owner(self, part: Partition[T], drainer: Owner, stand_in: Owner) -> bool:
        """Put *stand_in* in the place of *drainer* unless something waits there (see N1)."""
        if part.owner is not drainer:
            return False
        part.owner = stand_in
        if part.is_empty():
            return True
        part.owner = drainer
        return False

    def _revoke(self, targets: Mapping[int, int]) -> dict[Partition[T], Owner]:
        parts = {self.partitions[index]: drainer for index, drainer in targets.items()}
        self._moving = {part: part.owner for part in parts}
        for part in parts:
            part.owner = MOVING
        self.version += 1
        return {part: self._drainers[drainer] for part, drainer in parts.items()}

    def _left(self, fence: Mapping[Owner, int]) -> bool:
        return all(self._inside.get(d) != cycle for d, cycle in fence.items())

    def _assign(self, owners: Mapping[Partition[T], Owner]) -> None:
        for part, owner in owners.items():
            part.owner = part.keeper = owner
        self.version += 1
