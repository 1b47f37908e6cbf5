"""From a drained batch to the user's code: group by type, call, count, carry on."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from penstock._checks import finite_number
from penstock.batchqueue.handlers import consume_of, identity_of, on_idle_of
from penstock.batchqueue.selectors import type_hash
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from penstock.batchqueue.handlers import QueueErrorHandler

__all__ = ["ConsumerDispatch", "Dispatch", "Group", "HandlerDispatch", "HandlerEntry"]

logger = logging.getLogger("penstock.batchqueue")

Group = tuple[type, list[Any]]
Taken = tuple[type | None, list[Any]]  # a partition's items, and their type if there is but one

_ENTRY_POLL = 0.1  # seconds between looks at `abandoned` while another thread is in the handler


def group_by_type(taken: Iterable[Taken]) -> dict[type, list[Any]]:
    """Join what was *taken* by exact type, each type's items in their order."""
    groups: dict[type, list[Any]] = {}
    for sole, batch in taken:
        # The usual case: the default selector keeps types apart.
        split = _split(batch) if sole is None else {sole: batch}
        for kind, items in split.items():
            known = groups.setdefault(kind, items)
            if known is not items:
                known += items
    return groups


def _split(batch: list[Any]) -> dict[type, list[Any]]:
    split: defaultdict[type, list[Any]] = defaultdict(list)
    for item in batch:
        split[type(item)].append(item)
    return split


@dataclass(slots=True, eq=False, weakref_slot=True)
class HandlerEntry:
    """A handler in use, with what keeps it from being entered twice."""

    handler: object
    consume: Callable[[list[Any]], object]
    on_idle: Callable[[], object] | None
    exclusive: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)
    calls: int = 0  # consume() calls so far
    calls_seen: int = 0  # ... when its idleness was last looked at
    consumed_by: object = None  # who called consume() last
    flushed: bool = False  # its last on_idle has returned
    kind: type = object  # the type whose partition's owner also calls on_idle

    @property
    def hash(self) -> int:
        """What places `kind`, and with it the handler's home."""
        return type_hash(self.kind)

    @property
    def name(self) -> str:
        """What to call it in logs and reports."""
        named = self.handler
        return getattr(named, "__qualname__", None) or type(named).__qualname__


@dataclass(slots=True)
class _Counts:
    taken: int = 0
    consumed: int = 0
    errors: int = 0
    failed: int = 0
    no_handler: int = 0
    abandoned: int = 0


class Dispatch(Protocol):
    """Where drained batches go. `ConsumerDispatch` or `HandlerDispatch`."""

    counts: defaultdict[type, _Counts]
    lock: threading.Lock
    version: int

    def gather(self, taken: Iterable[Taken]) -> list[Group]:
        """Arrange what was *taken* into the groups that are delivered."""
        ...

    def admit(self, kind: type, given_up: Callable[[], bool]) -> HandlerEntry | None:
        """Return the handler of *kind* once no other thread is in it; None if there is none."""
        ...

    def deliver(self, entry: HandlerEntry | None, group: Group) -> None:
        """Hand *group* to the handler that was admitted for it."""
        ...

    def dismiss(self, entry: HandlerEntry | None) -> None:
        """Let other threads into the handler again."""
        ...

    def idlers(self) -> list[HandlerEntry]:
        """Return the entries that have something to do when idle."""
        ...

    def abandon(self, in_hand: list[Any], waiting: list[Any]) -> None:
        """Count items that were taken, or still waited, when the shutdown's time was over."""
        ...

    def renew_after_fork(self) -> None:
        """Replace locks and counts in a child process."""
        ...


class _Delivery:
    """What both ways of dispatch share: calling user code so that it can do no harm."""

    def __init__(self, queue: str, error_handler: QueueErrorHandler[Any] | None) -> None:
        self._queue = queue
        self._error_handler = error_handler
        self.version = 0
        self._warned: set[type] = set()
        self.renew_after_fork()

    def renew_after_fork(self) -> None:
        """Replace locks and counts, which other threads of the parent may have been using."""
        self.lock = threading.Lock()
        self.counts: defaultdict[type, _Counts] = defaultdict(_Counts)
        for entry in self.entries():
            entry.lock = threading.Lock()

    def entries(self) -> list[HandlerEntry]:
        """Return all handlers in use."""
        raise NotImplementedError

    def idlers(self) -> list[HandlerEntry]:
        """Return the handlers that have something to do when idle."""
        return [entry for entry in self.entries() if entry.on_idle is not None]

    def abandon(self, in_hand: list[Any], waiting: list[Any]) -> None:
        """Count items that were taken, or still waited, when the shutdown's time was over."""
        with self.lock:
            for item in waiting:
                self.counts[self.kind_of(item)].taken += 1
            for item in (*in_hand, *waiting):
                self.counts[self.kind_of(item)].abandoned += 1

    def note_taken(self, groups: list[Group]) -> list[Group]:
        """Count what came out of the partitions; return it."""
        with self.lock:
            for kind, batch in groups:
                self.counts[kind].taken += len(batch)
        return groups

    def kind_of(self, item: object) -> type:
        """Return what *item* is counted under."""
        return type(item)

    def deliver(self, entry: HandlerEntry | None, group: Group) -> None:
        """Call the handler and count; whatever it raises stays here."""
        if entry is None:
            self._drop(group)
            return
        kind, batch = group
        size = len(batch)  # the handler may keep or empty the list
        entry.calls += 1
        raised: BaseException | None = None
        try:
            entry.consume(batch)
        except BaseException as error:  # noqa: BLE001 - a handler must not end the thread
            raised = error
        with self.lock:
            counts = self.counts[kind]
            counts.consumed += size
            if raised is not None:
                counts.errors += 1
                counts.failed += size
        if raised is not None:
            self._report(entry, batch, raised)

    def dismiss(self, entry: HandlerEntry | None) -> None:
        """Let other threads into the handler again."""
        if entry is not None and entry.exclusive:
            entry.lock.release()

    def _drop(self, group: Group) -> None:
        kind, batch = group
        with self.lock:
            self.counts[kind].no_handler += len(batch)
            first = kind not in self._warned
            self._warned.add(kind)
        if first:
            logger.error(
                "queue.items_dropped: no handler for type %s on queue %r; "
                "register one with add_handler(). Further drops are only counted",
                kind.__qualname__,
                self._queue,
                extra={"queue": self._queue, "cause": "no_handler", "type": kind.__qualname__},
            )

    def _report(self, entry: HandlerEntry, batch: list[Any], error: BaseException) -> None:
        extra = {"queue": self._queue, "handler": entry.name, "count": len(batch)}
        if self._error_handler is None:
            logger.error("queue.handler_failed", exc_info=error, extra=extra)
            return
        try:
            self._error_handler(batch, error)
        except BaseException:
            logger.exception("queue.error_handler_failed", extra=extra)


def call_on_idle(queue: str, entry: HandlerEntry) -> bool:
    """Call ``on_idle`` unless another thread is in the handler; whatever it raises is logged."""
    if entry.on_idle is None or not entry.lock.acquire(blocking=False):
        return False
    try:
        entry.on_idle()
    except BaseException:
        logger.exception("queue.on_idle_failed", extra={"queue": queue, "handler": entry.name})
    finally:
        entry.lock.release()
    return True


class ConsumerDispatch(_Delivery):
    """Every batch whole to one consumer, on several threads at once if there are several."""

    def __init__(
        self, queue: str, consumer: object, error_handler: QueueErrorHandler[Any] | None
    ) -> None:
        consume = consume_of(consumer, "consumer")
        self._entry = HandlerEntry(consumer, consume, on_idle_of(consumer), exclusive=False)
        super().__init__(queue, error_handler)

    def gather(self, taken: Iterable[Taken]) -> list[Group]:
        """Join all: the consumer gets everything at once."""
        joined: list[Any] = []
        for _, batch in taken:
            joined += batch
        return self.note_taken([(object, joined)] if joined else [])

    def admit(self, kind: type, given_up: Callable[[], bool]) -> HandlerEntry | None:
        """Return the consumer, which takes care of itself when several threads are in it."""
        del kind, given_up
        return self._entry

    def entries(self) -> list[HandlerEntry]:
        """Return the consumer."""
        return [self._entry]

    def kind_of(self, item: object) -> type:
        """Return one key for all: types are never looked at."""
        del item
        return object


class HandlerDispatch(_Delivery):
    """Each type's items to the handler registered for exactly that type."""

    # Guarded by `lock`, except that _by_type is read without (a dict look-up is atomic).
    #
    #   D1  A handler object is never entered twice at once, consume or on_idle, whatever
    #       the number of types it serves and whatever the selector: its entry's lock is
    #       held around each call (test_a_handler_of_two_types_is_entered_once_at_a_time,
    #       test_a_custom_selector_never_enters_a_handler_twice).

    def __init__(self, queue: str, error_handler: QueueErrorHandler[Any] | None) -> None:
        # Weak: an entry lives while a type refers to it or a drainer is in its handler, so
        # a handler that is removed and added again meanwhile gets the same lock back.
        self._entries: WeakValueDictionary[Hashable, HandlerEntry] = WeakValueDictionary()
        self._by_type: dict[type, HandlerEntry] = {}
        self._weights: dict[type, float] = {}
        super().__init__(queue, error_handler)

    def add(self, kind: type, handler: object, weight: float) -> float:
        """Register or replace the handler of *kind*; return the summed weight of all."""
        _check_kind("add_handler(type_)", kind)
        weight = finite_number("add_handler(weight)", weight)
        consume = consume_of(handler, "add_handler(handler)")
        fresh = HandlerEntry(handler, consume, on_idle_of(handler), kind=kind)
        with self.lock:
            entry = self._entries.setdefault(identity_of(consume), fresh)
            self._discard(kind)
            if entry not in self._by_type.values():
                entry.kind = kind
            self._by_type[kind] = entry
            self._weights[kind] = weight
            self.version += 1
            return sum(self._weights.values())

    def remove(self, kind: type) -> bool:
        """Forget the handler of *kind*; False if there was none."""
        _check_kind("remove_handler(type_)", kind)
        with self.lock:
            known = kind in self._by_type
            self._discard(kind)
            self._warned.discard(kind)
            self.version += 1
            return known

    def _discard(self, kind: type) -> None:
        entry = self._by_type.pop(kind, None)
        self._weights.pop(kind, None)
        others = (k for k, e in self._by_type.items() if e is entry)
        if entry is not None and entry.kind is kind:
            entry.kind = next(others, kind)

    def gather(self, taken: Iterable[Taken]) -> list[Group]:
        """Group by type."""
        return self.note_taken(list(group_by_type(taken).items()))

    def admit(self, kind: type, given_up: Callable[[], bool]) -> HandlerEntry | None:
        """Return the handler of *kind* once no other thread is in it; None if there is none."""
        entry = self._by_type.get(kind)
        if entry is None:
            return None
        while not entry.lock.acquire(timeout=_ENTRY_POLL):
            if given_up():
                return None
        return entry

    def entries(self) -> list[HandlerEntry]:
        """Return all handlers in use."""
        return list(dict.fromkeys(list(self._by_type.values())))


def _check_kind(field: str, kind: object) -> None:
    if not isinstance(kind, type):
        msg = f"{field} must be a class, not {kind!r}"
        raise ConfigError(msg)
