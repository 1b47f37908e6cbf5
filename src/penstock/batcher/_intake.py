"""The way in: what is accepted, who waits for room, and when the worker is woken.

This is the hot path. An accepted item costs one lock, one append and one comparison.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.batcher._lifecycle import Lifecycle
from penstock.batcher._staging import Entry, Reason, Staging
from penstock.batcher.completion import Abandonment, CompleteResult, EnqueueResult
from penstock.errors import BatcherStateError

if TYPE_CHECKING:
    from penstock.batcher._worker import Worker
    from penstock.batcher.settings import BatchSettings

__all__ = ["Counts", "Intake"]

_ACCEPTED = EnqueueResult.OK


@dataclass(slots=True)
class Counts:
    """What has been counted so far. Guarded by the batcher's lock."""

    results: Counter[CompleteResult | Abandonment] = field(default_factory=Counter)
    cancelled: int = 0
    batches: int = 0
    reasons: Counter[Reason] = field(default_factory=Counter)
    refused: Counter[EnqueueResult] = field(default_factory=Counter)
    faults: int = 0
    strays: int = 0
    callback_errors: int = 0


class Intake:
    """What waits to be sent, guarded by `lock`. `Core` adds who sends it."""

    #   N1  The worker is woken for every change that could make a batch due. `wake_at` is the
    #       size from which on an item makes one due that the worker, when it last looked, did
    #       not find; whoever reaches it sets it to infinity and wakes the worker
    #       (test_an_item_that_comes_while_the_worker_parks_is_sent).
    #   N2  What was accepted is sent, or abandoned by who closes: an entry is accepted only
    #       while nobody has begun to close, in the same hold of the lock
    #       (test_an_item_that_meets_a_close_is_refused_or_abandoned).

    def __init__(self, name: str, settings: BatchSettings) -> None:
        self.name = name
        self.settings = settings
        self.life = Lifecycle()
        self._limit = settings.capacity or math.inf
        self.forget()

    def forget(self) -> None:
        """Be empty, as at first and as in a child process."""
        self.lock = self.life.lock
        self.staging = Staging(self.settings)
        self.waiting: dict[Any, Entry] = {}  # asyncio futures that wait for room, oldest first
        self.worker: Worker | None = None
        self.wake_at = math.inf
        self.is_pressed = False  # somebody found no room since the last batch was taken
        self.counts = Counts()
        self.dropped: list[object] = []  # let go of under the lock; see `let_go`

    def let_go(self) -> list[object]:
        """Return what the caller is to forget after the lock, which it holds.

        Items and contexts are the user's: what their destructors do may need the lock.
        """
        dropped = self.dropped
        if dropped:
            self.dropped = []
        return dropped

    def put(self, entry: Entry) -> EnqueueResult:
        """Accept *entry* if there is room and the state allows it."""
        verdict = _ACCEPTED
        try:
            with self.lock:
                if not self.life.is_accepting:
                    return self.refuse(EnqueueResult.INVALID_STATE)
                staging = self.staging
                size = staging.size + entry[1]
                if size > self._limit and staging.entries:
                    verdict = EnqueueResult.FULL
                    if self.is_pressed:
                        return verdict
                    self.is_pressed = True  # have what waits sent: somebody needs the room
                else:
                    staging.entries.append(entry)
                    staging.size = size
                    if size < self.wake_at:
                        return verdict
                worker = self.want()
            self.rouse(worker)
        except BaseException:
            self._wake_again()
            raise
        return verdict

    def refuse(self, why: EnqueueResult) -> EnqueueResult:
        """Count a refusal and return it. Holds the lock."""
        self.counts.refused[why] += 1
        return why

    def want(self) -> Worker:
        """Say that the worker will be woken; the caller does it after the lock."""
        self.wake_at = math.inf
        worker = self.worker
        assert worker is not None, "there is a worker as long as the state accepts or sends"
        worker.is_wanted = True
        return worker

    def rouse(self, worker: Worker) -> None:
        """Wake *worker*; if no thread could be started for it, have the next item try again."""
        worker.wake()
        if worker.parked:  # or it has run and sleeps again: then one wake-up is wasted
            with self.lock:
                self.wake_at = 0

    def _wake_again(self) -> None:
        """Make up for a wake-up that a KeyboardInterrupt may have kept from being given (N1)."""
        with self.lock:
            worker, self.wake_at = self.worker, 0
        if worker is not None:
            worker.wake()

    def must_not_wait(self) -> bool:
        """Return whether what the calling thread waits for would have to be done by itself."""
        if self.life.is_inside():
            return True
        return self.worker is not None and self.worker.is_waited_for_by_caller()

    def put_many(self, entries: list[Entry]) -> bool:
        """Accept all of *entries* at once; False if that is not possible, and none was."""
        size = sum(entry[1] for entry in entries)
        try:
            with self.lock:
                if not self.life.is_accepting or self.staging.size + size > self._limit:
                    return False
                self.staging.entries.extend(entries)
                self.staging.size += size
                worker = self.want() if self.staging.size >= self.wake_at else None
            if worker is not None:
                self.rouse(worker)
        except BaseException:
            self._wake_again()
            raise
        return True

    def has_room(self, size: int) -> bool:
        """Return whether an entry of *size* would be accepted."""
        return self.staging.size + size <= self._limit or not self.staging.entries

    def admit_waiting(self) -> None:
        """Accept those who wait for room as far as there is any. Holds the lock."""
        while self.waiting:
            future, entry = next(iter(self.waiting.items()))
            if future.done():  # cancelled while it waited
                self.refuse(EnqueueResult.FULL)
                self.dropped.append(entry)
            else:
                if not self.has_room(entry[1]):
                    self.is_pressed = True
                    return
                self.staging.entries.append(entry)
                self.staging.size += entry[1]
            del self.waiting[future]

    def wait_for_room(self, entry: Entry) -> EnqueueResult:
        """Let the entry of an asyncio future wait for room, behind those that wait already."""
        with self.lock:
            if not self.life.is_accepting:
                return self.refuse(EnqueueResult.INVALID_STATE)
            self.waiting[entry[4]] = entry
            self.admit_waiting()  # room may have been made since it was found missing
            worker = self.want()
            dropped = self.let_go()
        self.rouse(worker)
        del dropped
        return EnqueueResult.OK

    def stop_waiting(self, future: object) -> bool:
        """Forget *future*, whose time is over; False if it does not wait any more."""
        with self.lock:
            entry = self.waiting.pop(future, None)
            if entry is not None:
                self.refuse(EnqueueResult.FULL)
                self.admit_waiting()  # those behind it may be smaller
            worker = self.want() if entry is not None and self.life.is_accepting else None
            dropped = self.let_go()
        del dropped
        if worker is not None:
            self.rouse(worker)
        return entry is not None

    def turn_away(self) -> None:
        """Tell those who wait for room that none will be made."""
        with self.lock:
            gone = list(self.waiting.values())
            self.waiting.clear()
            self.counts.refused[EnqueueResult.INVALID_STATE] += len(gone)
        for entry in gone:
            entry[3].settle_each([entry[4]], [self.state_error()], 1)

    def state_error(self) -> BatcherStateError:
        """Return what to raise when the state does not allow a call."""
        state = self.life.describe()
        remedy = "reset() it" if self.life.is_faulted else "open() it first"
        return BatcherStateError(f"batcher {self.name!r} is {state}; {remedy}")
