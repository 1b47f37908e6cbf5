"""One bounded FIFO of a queue: the record of its items, its owner and its counts."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["CLOSED", "MOVING", "RETIRED", "Nobody", "Owner", "Partition"]

T = TypeVar("T")


class Owner(Protocol):
    """Who drains a partition: a drainer, or one of the stand-ins below."""

    parked: bool
    """A producer that reads True after its append must take the slow way (see `_intake`)."""

    def wake(self) -> None:
        """Have the owner look at its partitions soon."""
        ...


class Nobody:
    """A stand-in owner of a partition that no drainer may touch."""

    __slots__ = ("name", "parked")

    def __init__(self, name: str, *, parked: bool) -> None:
        self.name = name
        self.parked = parked

    def wake(self) -> None:
        """Nobody is there to be woken."""

    def __repr__(self) -> str:
        return self.name


MOVING = Nobody("MOVING", parked=False)
"""Between two owners: items gather, and whoever gets the partition is woken then."""
RETIRED = Nobody("RETIRED", parked=True)
"""Replaced by another partition: a late item is taken back and routed anew."""
CLOSED = Nobody("CLOSED", parked=True)
"""The queue is shut down: a late item is taken back and refused."""


class Partition(Generic[T]):
    """A list that many producers append to and one drainer empties.

    What is relied on, with and without the GIL: ``list.append``, ``list.extend``,
    slicing a list and deleting a slice are each one atomic step (one bytecode with the
    GIL; the list's own lock on free-threaded builds). Producers append at the end
    without ``lock``; everything that removes holds ``lock``, so the first n items cannot
    change between reading and deleting them.
    """

    __slots__ = (
        "buffer",
        "capacity",
        "dead",
        "drained",
        "evicted",
        "index",
        "keeper",
        "kinds",
        "limit",
        "lock",
        "mark",
        "owner",
        "refused",
        "room",
        "watchers",
    )

    #   P1  Removing from `buffer`, `dead`, `limit`, the counts and leaving an owner for
    #       RETIRED or CLOSED happen under `lock`
    #       (test_an_append_that_meets_a_retired_partition_is_routed_anew).
    #   P2  len(buffer) - dead never exceeds capacity by more than one item per thread
    #       that is inside produce() (test_the_bound_is_soft_by_one_item_per_producer).
    #   P3  Who waits for room was enlisted under `lock` while it was full, and each
    #       removal announces room to all of them: no waiter is forgotten
    #       (test_room_made_while_a_producer_is_about_to_wait_is_not_missed).

    def __init__(self, index: int, capacity: int, owner: Owner) -> None:
        self.index = index
        self.capacity = capacity
        self.owner: Owner = owner
        self.keeper: Owner = owner  # the last real owner, kept when CLOSED takes its place
        self.lock = threading.Lock()
        self.buffer: list[T] = []
        self.dead = 0  # evicted items at the head of buffer, not yet deleted
        self.limit = capacity  # capacity + dead: what producers compare len(buffer) with
        self.drained = 0
        self.mark = 0  # `offered` at the last balancing
        self.evicted: Counter[type] | None = None
        self.refused: Counter[type] | None = None
        # Types routed here. Replaced, never changed, so that it can be read without the
        # route lock under which it grows.
        self.kinds: frozenset[type] = frozenset()
        self.room: threading.Condition | None = None
        self.watchers: list[Callable[[], None]] | None = None

    @property
    def used(self) -> int:
        """How many items wait here."""
        return len(self.buffer) - self.dead

    @property
    def offered(self) -> int:
        """How many items producers brought here, refused ones included."""
        with self.lock:
            return self.drained + self.used + count(self.evicted) + count(self.refused)

    def is_empty(self) -> bool:
        """Return whether nothing waits, ordered after what this thread published before.

        The slice takes the list's own lock on free-threaded builds, as does an append,
        so of "append, then read owner" and "set owner, then look here" at least one side
        sees the other. A bare length would not be ordered so.
        """
        return not self.buffer[self.dead : self.dead + 1]

    def take(self) -> tuple[type | None, list[T]]:
        """Remove and return everything that waits, and its type if there can be but one.

        Only for the owner. A type is entered in ``kinds`` before its first item comes, so
        looking after taking is safe.
        """
        with self.lock:
            end = len(self.buffer)
            batch = self.buffer[self.dead : end]
            self._delete(end)
            self.drained += len(batch)
            watchers = self.announce_room()
        for notify in watchers:
            notify()
        return self.sole_kind(), batch

    def sole_kind(self) -> type | None:
        """Return the only type that can be here; None if there are several, or any may be."""
        kinds = self.kinds
        return next(iter(kinds)) if len(kinds) == 1 else None

    def announce_room(self) -> Iterable[Callable[[], None]]:
        """Wake waiting threads; return who else wants to know. Call with ``lock`` held."""
        if self.room is not None:
            self.room.notify_all()
        if self.watchers:
            watchers, self.watchers = self.watchers, None
            return watchers
        return ()

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Forget *watcher*, if it has not been told of room already."""
        with self.lock:
            if self.watchers and watcher in self.watchers:
                self.watchers.remove(watcher)

    def room_condition(self) -> threading.Condition:
        """Return what to wait on for room. Call with ``lock`` held."""
        if self.room is None:
            self.room = threading.Condition(self.lock)
        return self.room

    def evict(self, wanted: int) -> list[T]:
        """Push out the oldest *wanted* items, if that many are here. Call with ``lock`` held.

        They are returned so that they can be let go of without the lock: what they do when
        they are deleted is not ours.
        """
        gone = self.buffer[self.dead : self.dead + max(0, wanted)]
        self.evicted = Counter() if self.evicted is None else self.evicted
        self.evicted.update(map(type, gone))
        # Deleting at the head shifts the whole list: blank the slots and delete in bulk.
        self.buffer[self.dead : self.dead + len(gone)] = [None] * len(gone)  # type: ignore[list-item]
        self.dead += len(gone)
        self.limit += len(gone)
        if self.dead >= self.capacity:
            self._delete(self.dead)
        return gone

    def refuse(self, items: Iterable[object]) -> None:
        """Count items that found no room. Call with ``lock`` held."""
        self.refused = Counter() if self.refused is None else self.refused
        self.refused.update(map(type, items))

    def withdraw(self, item: T) -> bool:
        """Take *item* back out, the very object; False if it is no longer here."""
        for position in range(len(self.buffer) - 1, self.dead - 1, -1):
            if self.buffer[position] is item:
                del self.buffer[position]
                return True
        return False

    def successor(self) -> Partition[T]:
        """Return a fresh partition in this one's place, with its counts. With ``lock`` held."""
        fresh: Partition[T] = Partition(self.index, self.capacity, self.keeper)
        fresh.drained, fresh.mark = self.drained, self.mark
        fresh.evicted, fresh.refused = self.evicted, self.refused
        return fresh

    def waiting_by_type(self) -> Counter[type]:
        """Count what waits here per type; one look at the length if there is but one type."""
        sole = self.sole_kind()
        if sole is not None:
            return Counter({sole: self.used})
        with self.lock:
            waiting: list[Any] = self.buffer[self.dead :]
        return Counter(map(type, waiting))

    def _delete(self, end: int) -> None:
        del self.buffer[:end]
        self.dead = 0
        self.limit = self.capacity

    def __repr__(self) -> str:
        return f"<Partition {self.index}, {self.used}/{self.capacity} used, of {self.owner!r}>"


def count(counts: Counter[type] | None) -> int:
    """Return the sum of *counts*, which are not made before they are needed."""
    return 0 if counts is None else counts.total()
