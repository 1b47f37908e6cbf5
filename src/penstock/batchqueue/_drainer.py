"""One drain task: a bounded pass over its partitions, then idle work, then sleep."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.batchqueue._dispatch import call_on_idle
from penstock.batchqueue._shutdown import Phase
from penstock.scheduling import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.batchqueue._dispatch import Dispatch, Group, HandlerEntry
    from penstock.batchqueue._ownership import OwnershipTable
    from penstock.batchqueue._partition import Partition
    from penstock.batchqueue._shutdown import Shutdown
    from penstock.clock import Clock

__all__ = ["Drainer", "DrainerParts"]


@dataclass(slots=True, frozen=True)
class IdleBackoff:
    """Gaps between calls of ``on_idle``: ``shortest * 2**n``, up to ``longest``."""

    shortest: float
    longest: float

    def delay(self, idle_calls: int) -> float:
        """Return the gap after *idle_calls* idle calls in a row.

        >>> [IdleBackoff(1, 50).delay(n) for n in range(8)]
        [1, 2, 4, 8, 16, 32, 50, 50]
        """
        return min(self.shortest * (1 << min(idle_calls, 40)), self.longest)


@dataclass(slots=True, frozen=True)
class DrainerParts:
    """What all drainers of a queue work with."""

    queue: str
    clock: Clock
    dispatch: Dispatch
    shutdown: Shutdown
    backoff: IdleBackoff
    dispatching: set[int]
    """Threads that run a drainer of this queue, so perhaps a handler."""
    stale: Callable[[tuple[Partition[Any], ...]], list[Partition[Any]]]
    """Which of a drainer's partitions hold types that growth has given another place."""
    home: Callable[[HandlerEntry], object]
    """The drainer that calls the entry's on_idle."""
    closed: Callable[[], None]
    """To be called by the drainer whose end closes the queue."""
    wake_all: Callable[[], None]
    share_idlers: Callable[[], None]
    """To be called when handlers may have got another home."""


class Drainer(Task):
    """Drains the partitions it owns and looks after their handlers when nothing comes."""

    #   R1  What is taken out of partitions is in `hand` before anyone can look, and a
    #       group leaves `hand` under `lock`, to be delivered by this drainer or reported
    #       by whoever gives up on it: never both, never neither
    #       (test_a_stuck_handler_leaves_every_item_delivered_or_reported).
    #   R2  A run is one bounded pass: it takes what is there once and returns
    #       (test_a_run_is_one_bounded_pass).

    __slots__ = (
        "_idle_calls",
        "_idle_due",
        "_idlers",
        "_idlers_version",
        "_owned",
        "_parts",
        "_quiet_due",
        "_sealed",
        "_stale",
        "_stale_version",
        "_table",
        "drained",
        "given_up",
        "hand",
        "index",
        "lock",
        "now_handling",
    )

    def __init__(self, index: int, parts: DrainerParts) -> None:
        super().__init__()
        self.index = index
        self.lock = threading.Lock()
        self.hand: deque[Group] = deque()
        self.now_handling = 0
        self.given_up = False
        self.drained = 0
        self._parts = parts
        self._table: OwnershipTable[Any]
        self._owned: tuple[int, tuple[Partition[Any], ...]] = (-1, ())
        self._stale: list[Partition[Any]] = []
        self._stale_version = -1
        self._idlers: list[HandlerEntry] = []
        self._idlers_version = (-1, -1)
        self._idle_calls = 0
        self._idle_due = parts.clock.now() + parts.backoff.delay(0)
        self._quiet_due = self._idle_due
        self._sealed = False

    def use(self, table: OwnershipTable[Any]) -> None:
        """Work with *table*, which needs its drainers before they can have it."""
        self._table = table

    def run(self) -> float | None:
        """Make one pass; see to idle handlers, to growth and to a shutdown under way."""
        thread = threading.get_ident()
        self._parts.dispatching.add(thread)
        try:
            return self._run()
        finally:
            self._parts.dispatching.discard(thread)

    def _run(self) -> float | None:
        took = self._cycle()
        self._move_out()
        phase = self._parts.shutdown.phase
        if phase is Phase.ABANDONED:
            return None
        if took:
            self._after_data()
            return 0.0
        if phase is Phase.RUNNING:
            return self._when_idle()
        return self._close_down(phase)

    def has_work(self) -> bool:
        """Return whether something waits in its partitions, or a shutdown waits for it."""
        phase = self._parts.shutdown.phase
        if phase is not Phase.RUNNING and not (phase is Phase.DRAINING and self._sealed):
            return True
        owned = self._owned_at(self._table.version)
        return not all(part.is_empty() for part in owned)

    def give_up(self) -> list[Any]:
        """Stop delivering; return the items in hand that no handler has got."""
        with self.lock:
            self.given_up = True
            left = [item for _, batch in self.hand for item in batch]
            self.hand.clear()
        return left

    def _cycle(self) -> bool:
        """Take what waits and deliver it; return whether there was anything."""
        version = self._table.enter(self)
        try:
            if not self._take(self._owned_at(version)):
                return False
            while self._deliver_next():
                pass
            return True
        finally:
            self._table.leave(self)

    def _take(self, owned: tuple[Partition[Any], ...]) -> bool:
        with self.lock:
            if self.given_up:
                return False
            taken = [part.take() for part in owned if part.buffer]
            self.drained += sum(len(batch) for _, batch in taken)
            self.hand.extend(self._parts.dispatch.gather(taken))
            return bool(self.hand)

    def _deliver_next(self) -> bool:
        """Deliver one group; False if there was none left in hand."""
        dispatch = self._parts.dispatch
        with self.lock:
            if not self.hand:
                return False
            kind = self.hand[0][0]
        # Waiting for the handler, the group stays in hand: whoever gives up can have it.
        entry = dispatch.admit(kind, lambda: self.given_up)
        try:
            group = self._pop()
            if group is not None:
                if entry is not None:
                    entry.consumed_by = self
                dispatch.deliver(entry, group)
        finally:
            self.now_handling = 0
            dispatch.dismiss(entry)
        return True

    def _pop(self) -> Group | None:
        with self.lock:
            if not self.hand:
                return None
            group = self.hand.popleft()
            self.now_handling = len(group[1])
            return group

    def _owned_at(self, version: int) -> tuple[Partition[Any], ...]:
        """Return its partitions as of *version* or later."""
        # Read and stored as one value: has_work() may run beside run() on a shared scheduler.
        known, owned = self._owned
        if known != version:
            self._owned = self._table.owned_by(self)
            owned = self._owned[1]
        return owned

    def _move_out(self) -> None:
        """Retire empty partitions whose types have a better place since the queue grew."""
        version = self._table.version
        if self._stale_version != version:
            self._stale_version = version
            self._stale = self._parts.stale(self._owned_at(version))
        retired = [self._table.retire(part, self) for part in self._stale]
        if any(retired):
            self._parts.share_idlers()

    def _after_data(self) -> None:
        parts = self._parts
        now = parts.clock.now()
        self._idle_calls = 0
        self._idle_due = now + parts.backoff.delay(0)
        if now >= self._quiet_due:
            # A busy drainer must not starve the handlers to which nothing comes.
            self._quiet_due = now + parts.backoff.longest
            self._call_idlers(also_own=False)

    def _when_idle(self) -> float:
        parts = self._parts
        if not self._find_idlers():
            return math.inf
        now = parts.clock.now()
        if now >= self._idle_due:
            self._call_idlers(also_own=True)
            self._idle_calls += 1
            self._idle_due = now + parts.backoff.delay(self._idle_calls)
        return self._idle_due - now

    def _find_idlers(self) -> list[HandlerEntry]:
        version = (self._table.version, self._parts.dispatch.version)
        if version != self._idlers_version:
            self._idlers_version = version
            entries = self._parts.dispatch.idlers()
            self._idlers = [e for e in entries if self._parts.home(e) is self]
        return self._idlers

    def _call_idlers(self, *, also_own: bool) -> None:
        """Call the handlers to which nothing came since the last look.

        With *also_own* those that this drainer fed itself are called too: it is idle, so
        nothing came to them either.
        """
        for entry in self._find_idlers():
            quiet = entry.calls == entry.calls_seen
            entry.calls_seen = entry.calls
            if quiet or (also_own and entry.consumed_by is self):
                call_on_idle(self._parts.queue, entry)

    def _close_down(self, phase: Phase) -> float | None:
        shutdown = self._parts.shutdown
        if phase is Phase.DRAINING and not self._sealed:
            if not self._table.seal(self):
                return 0.0
            self._sealed = True
            if shutdown.sealed():
                self._parts.wake_all()
        if shutdown.phase is not Phase.FLUSHING:
            return math.inf
        self._flush()
        if shutdown.ended():
            self._parts.closed()
        return None

    def _flush(self) -> None:
        """Give each handler its last on_idle."""
        for entry in self._find_idlers():
            if self.given_up:
                return
            entry.flushed = call_on_idle(self._parts.queue, entry)
