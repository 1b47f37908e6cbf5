"""The way in: route, append, and the rare cases after it.

This is the hot path. ``produce`` costs one dictionary look-up, one length, one append
and one flag when all goes well; it takes no lock. Everything else lives in the methods
below it. A compiled twin would replace this module, `Partition.take` and
`_dispatch.group_by_type`, and nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.batchqueue._partition import CLOSED, RETIRED, Partition
from penstock.batchqueue.policies import BufferStrategy
from penstock.errors import ReentrantProduceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.clock import Clock

__all__ = ["Intake"]

T = TypeVar("T")

_GONE = (RETIRED, CLOSED)


def _by_type(batch: list[T]) -> dict[type, list[T]]:
    """Split *batch* by exact type, each type's items in their order."""
    # A look at two items tells most mixed lists from uniform ones, which are not split.
    if batch and type(batch[0]) is type(batch[-1]):
        kind = type(batch[0])
        if list(map(type, batch)).count(kind) == len(batch):
            return {kind: batch}
    groups: defaultdict[type, list[T]] = defaultdict(list)
    for item in batch:
        groups[type(item)].append(item)
    return groups


def _first_none(batch: list[T]) -> int:
    """Return where the first None is, or 0: looking at that item tells if all are sound."""
    kinds = list(map(type, batch))
    return kinds.index(type(None)) if type(None) in kinds else 0


class Intake(Generic[T]):
    """Accepts items into partitions. `BatchQueue` adds who drains them."""

    #   N1  An item is in exactly one partition when produce() returns True, and in none
    #       when it returns False. The append comes first, the look at the owner second;
    #       who retires or closes a partition sets the owner first and looks for items
    #       second. So a late item is either seen by them or taken back here
    #       (test_an_append_that_meets_a_retired_partition_is_routed_anew,
    #        test_an_append_that_meets_a_closed_partition_is_refused).
    #   N2  A parked owner is woken after the append (same order, same argument; see
    #       scheduling.Task) (test_an_item_appended_while_the_drainer_parks_is_drained).
    #   N3  A type's route changes only while none of its items waits or is handled, so
    #       items of one producer and one type stay in order
    #       (test_a_busy_type_is_not_rerouted_by_growth).

    name: str
    _clock: Clock
    _strategy: BufferStrategy
    _routes: dict[type, Partition[T]]
    _closing: bool
    _typed: bool  # all items of a type go the same way
    _by_handler: bool  # ... and to a handler of their own
    _only_one: bool  # there is one partition, now and for ever

    def produce(self, item: T, timeout: float | None = None) -> bool:
        """Accept *item* for its handler.

        Args:
            item: Anything but None.
            timeout: With BLOCKING, how many seconds to wait for room (default: for ever).

        Returns:
            True if the item was accepted, False if it was refused (full or shut down).

        Raises:
            InvalidItemError: The item is None.
            SelectorError: The selector did not answer with a partition index.
            ReentrantProduceError: A handler would have to wait for its own full queue.
        """
        try:
            part = self._routes[type(item)]
        except KeyError:
            return self._produce_unrouted(item, timeout)
        buffer = part.buffer
        if len(buffer) < part.limit:
            buffer.append(item)
            if part.owner.parked:
                return self._knock(part, item, timeout)
            return True
        return self._put(part, [item], timeout) == 1

    def produce_many(self, items: Iterable[T], timeout: float | None = None) -> int:
        """Accept *items* together, which costs far less than one by one.

        Items of one type keep their order. With BLOCKING this waits until all are in (or
        *timeout* seconds have passed); otherwise those that find no room are dropped.

        Returns:
            How many were accepted.

        Raises:
            InvalidItemError, SelectorError: One of the items is at fault, and none of
                them was accepted.
            ReentrantProduceError: As for :meth:`produce`; it says how many were accepted.
        """
        batch = items if type(items) is list else list(items)
        if not self._typed or not self._by_handler:
            return self._put_groups(self._by_partition(batch), timeout)
        groups = _by_type(batch)
        if type(None) in groups:
            self._place(None)  # type: ignore[arg-type] # raises
        routes = self._routes
        accepted = 0
        slow: list[tuple[Partition[T] | None, list[T]]] = []
        for kind, group in groups.items():
            part = routes.get(kind)
            if part is None:
                slow.append((part, group))
                continue
            # Never wait for the lock: who waits gives up the GIL, and if the lock's holder
            # has lost the GIL itself, every producer soon queues up behind that one thread.
            if part.lock.locked():
                accepted = self._produce_each(group, timeout, accepted)
                continue
            with part.lock:
                fits = len(part.buffer) + len(group) <= part.limit and part.owner not in _GONE
                if fits:
                    part.buffer.extend(group)
                owner = part.owner  # after the append (N2): it may have changed hands before
            if not fits:
                slow.append((part, group))
                continue
            accepted += len(group)
            if owner.parked:
                owner.wake()
        return self._put_groups(slow, timeout, accepted) if slow else accepted

    def _produce_each(self, group: list[T], timeout: float | None, accepted: int) -> int:
        """Accept *group* one by one, which takes no lock while there is room."""
        deadline = None if timeout is None else self._clock.now() + timeout
        for item in group:
            left = None if deadline is None else deadline - self._clock.now()
            try:
                accepted += self.produce(item, left)
            except ReentrantProduceError as error:
                error.accepted += accepted
                raise
        return accepted

    def _produce_unrouted(self, item: T, timeout: float | None) -> bool:
        part = self._place(item)
        if part is None:
            self._count_closed([item])
            return False
        buffer = part.buffer
        if len(buffer) < part.limit:
            buffer.append(item)
            if part.owner.parked:
                return self._knock(part, item, timeout)
            return True
        return self._put(part, [item], timeout) == 1

    def _knock(self, part: Partition[T], item: T, timeout: float | None) -> bool:
        """Finish an append whose partition's owner has to be told, or is gone."""
        owner = part.owner
        if owner not in _GONE:
            owner.wake()
            return True
        with part.lock:
            gone = part.owner
            # If it has an owner again, or the item is not here any more, then a drainer
            # has it or will come by it: it was setting the owner that found the item.
            if gone not in _GONE or not part.withdraw(item):
                return True
        if gone is CLOSED:
            self._count_closed([item])
            return False
        self._forget_route(type(item), part)
        return self.produce(item, timeout)

    def _by_partition(self, batch: list[T]) -> list[tuple[Partition[T] | None, list[T]]]:
        """Split *batch* by partition (None: refused), each part in its order."""
        if self._only_one:
            return [(self._place(batch[_first_none(batch)]), batch)] if batch else []
        chosen: defaultdict[Partition[T] | None, list[T]] = defaultdict(list)
        for part, item in [(self._place(item), item) for item in batch]:
            chosen[part].append(item)
        return list(chosen.items())

    def _put_groups(
        self,
        groups: list[tuple[Partition[T] | None, list[T]]],
        timeout: float | None,
        accepted: int = 0,
    ) -> int:
        """Put each group into its partition, or into the one its type has by now."""
        deadline = None if timeout is None else self._clock.now() + timeout
        for known, group in groups:
            part = known or self._place(group[0])
            if part is None:
                self._count_closed(group)
                continue
            left = None if deadline is None else deadline - self._clock.now()
            try:
                accepted += self._put(part, group, left)
            except ReentrantProduceError as error:
                error.accepted += accepted
                raise
        return accepted

    def _put(self, part: Partition[T], batch: list[T], timeout: float | None) -> int:
        """Accept as much of *batch* into *part* as the strategy and *timeout* allow."""
        deadline = None if timeout is None else self._clock.now() + timeout
        evicted: list[T] = []
        with part.lock:
            done = self._fill(part, batch, deadline, evicted)
            owner = part.owner
            closing = self._closing or owner is CLOSED
            rest = batch[done:] if done < len(batch) else ()
            if rest and owner is not RETIRED and not closing:
                part.refuse(rest)
        if owner.parked:
            owner.wake()
        if evicted:
            self._note_drop("evicted")
        if not rest:
            return done
        if closing:
            self._count_closed(rest)
        elif owner is RETIRED:
            # It was replaced while we waited: on to whatever took its place.
            self._forget_route(type(rest[0]), part)
            left = None if deadline is None else deadline - self._clock.now()
            done = self._put_groups([(None, list(rest))], left, done)
        else:
            self._note_drop("full")
        return done

    def _fill(
        self, part: Partition[T], batch: list[T], deadline: float | None, evicted: list[T]
    ) -> int:
        """Move *batch* into *part* until done, refused, closed or retired. Holds its lock."""
        done = 0
        while part.owner not in _GONE and not self._closing:
            if self._strategy is BufferStrategy.DROP_OLDEST:
                evicted += part.evict(len(part.buffer) + len(batch) - done - part.limit)
            fits = part.limit - len(part.buffer)
            if fits > 0:
                chunk = batch if fits >= len(batch) and not done else batch[done : done + fits]
                part.buffer.extend(chunk)
                done += len(chunk)
            if done == len(batch) or not self._wait_for_room(part, done, deadline):
                break
        return done

    def _wait_for_room(self, part: Partition[T], done: int, deadline: float | None) -> bool:
        """Wait for a change in *part*, if it makes sense; False if its items are refused."""
        if self._strategy is BufferStrategy.DROP_OLDEST:
            return True
        left = None if deadline is None else deadline - self._clock.now()
        if self._strategy is BufferStrategy.IF_POSSIBLE or (left is not None and not left > 0):
            return False
        if part.owner.parked:  # what was put here just now, it has not been told of yet
            part.owner.wake()
        self._refuse_reentry(part, done)
        self._clock.wait(part.room_condition(), left)
        return True

    def _refuse_reentry(self, part: Partition[T], done: int) -> None:
        """Raise if the calling thread would wait for what only it can do."""
        if self._drained_by_this_thread():
            msg = (
                f"a handler produced into a queue that its own thread drains, and partition "
                f"{part.index} of {self.name!r} is full: waiting would never end. Use IF_POSSIBLE, "
                "timeout=0, a larger buffer_size, or a queue with threads of its own"
            )
            raise ReentrantProduceError(msg, done)

    def _offer(self, item: T, on_room: Callable[[], None]) -> Partition[T] | bool:
        """Accept or refuse *item* now; if it is full, return where *on_room* was left."""
        while self._strategy is BufferStrategy.BLOCKING:
            part = self._routes.get(type(item)) or self._place(item)
            if part is None:
                break
            with part.lock:
                gone = self._closing or part.owner in _GONE
                full = len(part.buffer) >= part.limit
                if full and not gone:
                    self._refuse_reentry(part, 0)
                    part.watchers = part.watchers or []
                    part.watchers.append(on_room)
                elif not gone:
                    part.buffer.append(item)
                owner = part.owner
            if not gone:
                owner.wake()
                return part if full else True
            self._forget_route(type(item), part)
        return self.produce(item)

    @abstractmethod
    def _place(self, item: T) -> Partition[T] | None:
        """Choose the partition for an item without a route; None if the queue is closed."""

    @abstractmethod
    def _drained_by_this_thread(self) -> bool:
        """Return whether the calling thread is one that this queue's draining waits for."""

    @abstractmethod
    def _forget_route(self, kind: type, part: Partition[T]) -> None:
        """Route *kind* anew at its next item, if it still goes to *part*."""

    @abstractmethod
    def _count_closed(self, items: Iterable[Any]) -> None:
        """Count items that came after the shutdown."""

    @abstractmethod
    def _note_drop(self, cause: str) -> None:
        """Log a drop if it is the first of its cause."""
