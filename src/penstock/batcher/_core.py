"""The batcher behind its interface: one lock, one worker, and what happens to a batch."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.batcher._intake import Intake
from penstock.batcher._lifecycle import Event, State
from penstock.batcher._log import log
from penstock.batcher._sinks import CALLBACKS, Outcome, claim, settle
from penstock.batcher._staging import Reason
from penstock.batcher.completion import (
    Abandonment,
    BatchFault,
    CompleteResult,
    Completion,
    ProcessResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.batcher._sinks import OnItemComplete, Sink
    from penstock.batcher._worker import Worker
    from penstock.batcher.settings import BatchSettings

__all__ = ["Core", "Ending", "Hooks"]

_OK, _ERROR, _ABANDONED = CompleteResult.OK, CompleteResult.ERROR, CompleteResult.ABANDONED


@dataclass(frozen=True, slots=True)
class Hooks:
    """The user's functions."""

    process_batch: Callable[[list[Any], Completion], ProcessResult]
    on_batch_faulted: Callable[[BatchFault], object]
    on_closed: Callable[[Worker, float], None]
    """To be called with the worker of an opening that has ended, and how long that may take."""


@dataclass(slots=True)
class Ending:
    """What the end of one opening gave up, for all who close it. Guarded by the lock."""

    ok: int
    failed: int
    """As counted when it began."""
    not_sent: list[Any] = field(default_factory=list)
    indeterminate: list[Any] = field(default_factory=list)
    ended: tuple[int, int] | None = None
    """How many were ok and failed when the batcher was closed."""


class Core(Intake):
    """Everything that changes, guarded by `lock`, which is never held in user code.

    Methods decide under the lock and act after it.
    """

    #   C1  Every accepted entry is in `staging` or in exactly one batch, and leaves it once:
    #       out of `staging` under the lock, out of a batch by the latch of C2
    #       (TestBatcher, test_twelve_producers_and_faults_lose_double_and_reorder_nothing).
    #   C2  A batch is ended by whoever sets `is_done` under the lock: the processor, its
    #       failure, or a close that gives up (test_of_two_completions_one_counts,
    #       test_a_completion_that_meets_the_end_of_a_close_counts_once).
    #   C3  No more than max_pending_batches are pending; whoever ends a batch wakes a worker
    #       that was held back by that (test_a_completion_lets_the_next_batch_go).
    #   C4  A closing batcher is closed by the last to leave it: the closer, if it waits,
    #       otherwise whoever ends the last batch or call
    #       (test_a_close_inside_a_callback_ends_by_itself).

    def __init__(
        self, name: str, settings: BatchSettings, now: Callable[[], float], hooks: Hooks
    ) -> None:
        self._now = now
        self.hooks = hooks
        self._max_pending = settings.max_pending_batches
        super().__init__(name, settings)

    def forget(self) -> None:
        """Be empty, as at first and as in a child process."""
        super().forget()
        self.pending: dict[int, Completion] = {}
        self.taken = 0  # entries that have left `staging`, ever
        self.flush_to = 0  # ... and up to how many of them are not to wait for company
        self.is_unattended = False  # closing, and no closer waits (C4)
        self.ending: Ending | None = None  # of the opening that is being closed
        self._is_held = False  # the worker found max_pending_batches pending

    # -- batches out ------------------------------------------------------------------

    def turn(self, worker: Worker) -> float | None:
        """Send one batch if one is due; return the seconds until the next look."""
        with self.lock:
            if worker is not self.worker:
                return None  # of an opening that has ended
            worker.is_wanted = False
            reason, delay = self._decide()
            batch = None if reason is None else self._take(reason)
            dropped = self.let_go()
        del dropped
        if batch is not None:
            self._send(batch)
        return delay

    def _decide(self) -> tuple[Reason | None, float]:
        """Return why a batch is due, or until when there is none."""
        self.wake_at = math.inf
        self._is_held = False
        if not self.life.is_sending:
            return None, math.inf
        if len(self.pending) >= self._max_pending:
            self._is_held = True
            return None, math.inf
        staging, now = self.staging, self._now()
        reason = staging.due(now, self._urgency())
        if reason is not None:
            return reason, 0.0
        if not staging.entries:
            self.wake_at = 0
            return None, math.inf
        self.wake_at = staging.threshold
        return None, staging.delay(now)

    def _urgency(self) -> Reason | None:
        if self.is_pressed:
            return Reason.PRESSURE
        if self.taken < self.flush_to or self.life.state is State.DRAINING:
            return Reason.FLUSH
        return None

    def _take(self, reason: Reason) -> Completion | None:
        """Make a batch of what is due; None if all of it was cancelled meanwhile."""
        staged = self.staging.take()
        self.taken += len(staged)
        self.is_pressed = False
        self.admit_waiting()
        self.life.changed.notify_all()  # there is room
        # Under the lock, so that a close that gives this batch up knows whose it still is.
        entries = claim(staged)
        if len(entries) < len(staged):
            self.dropped.append(staged)
        self.counts.cancelled += len(staged) - len(entries)
        if not entries:
            return None
        self.counts.batches += 1
        self.counts.reasons[reason] += 1
        batch = Completion(self, self.counts.batches, self.taken - len(staged), entries)
        batch.epoch = self.life.epoch
        self.pending[batch.batch_id] = batch
        assert len(self.pending) <= self._max_pending  # C3
        self.life.enter()
        return batch

    def _send(self, batch: Completion) -> None:
        entries = batch.entries
        error: BaseException | None = None
        try:
            result = self.hooks.process_batch([entry[0] for entry in entries], batch)
        except BaseException as caught:  # noqa: BLE001 - it must not end the worker
            error, result = caught, ProcessResult.ERROR
        if result is not ProcessResult.OK:
            self._fail(batch, result, error)
        self.depart()

    def _fail(self, batch: Completion, result: ProcessResult, error: BaseException | None) -> None:
        """The processor did not take *batch*: fault, tell its items, then the user."""
        log(
            logging.ERROR,
            "batcher.batch_failed: batcher %r faulted: process_batch %s",
            self.name,
            "raised" if error else f"returned {result!r}",
            error=error,
            extra={"batcher": self.name, "batch": batch.batch_id},
        )
        not_open = result is ProcessResult.NOT_OPEN
        with self.lock:
            faulted = self._fault(batch)
            latched = self.latch(batch)
            self.life.changed.notify_all()
        if latched:
            errors = settle(batch.entries, Outcome(_ABANDONED if not_open else _ERROR, error))
            with self.lock:
                kind = Abandonment.NOT_SENT if not_open else _ERROR
                self.retire(batch, {kind: batch.count}, errors)
            batch.entries = []  # not under the lock, see `let_go`
        if faulted:
            self._report_fault(batch, result, error)

    def turn_down(
        self, context: tuple[OnItemComplete, Any], result: CompleteResult, ll_result: object
    ) -> None:
        """Call the callback of an item that was not accepted, for who cannot be told otherwise."""
        with self.lock:
            self.life.enter()
        errors = CALLBACKS.settle([context], result, ll_result)
        with self.lock:
            self.counts.callback_errors += errors
        self.depart()

    # -- the end of a batch -----------------------------------------------------------

    def finish(self, batch: Completion, result: CompleteResult, ll_result: object) -> bool:
        """End *batch*, all of its items alike; False if it has ended before."""
        if result is _ABANDONED and ll_result is None:
            ll_result = Abandonment.INDETERMINATE  # None would say that it was not sent
        kind = Abandonment.INDETERMINATE if result is _ABANDONED else result
        return self._end(batch, {kind: batch.count}, Outcome(result, ll_result))

    def finish_each(self, batch: Completion, values: Sequence[Any]) -> bool:
        """End *batch*, each item with its own value; False if it has ended before."""
        failed = sum(isinstance(value, BaseException) for value in values)
        ends: dict[Any, int] = {_OK: len(values) - failed, _ERROR: failed}
        return self._end(batch, ends, Outcome(_OK, None, values, failed))

    def _end(self, batch: Completion, ends: dict[Any, int], outcome: Outcome) -> bool:
        with self.lock:
            latched = self.latch(batch)
            if latched:
                self.life.enter()
        if not latched:
            self._note_stray(batch)
            return False
        begun: list[Sink] = []
        interrupt: BaseException | None = None
        try:
            errors = settle(batch.entries, outcome, begun)
        except BaseException as caught:  # noqa: BLE001 - KeyboardInterrupt; raised again below
            interrupt = caught  # nobody else can end the batch any more
            errors = settle(batch.entries, outcome, begun)
        with self.lock:
            self.retire(batch, ends, errors)
            faults = outcome.result is not _OK and self.settings.on_async_error == "fault"
            faulted = faults and self._fault(batch)
            worker = self.want() if self._is_held and self.life.is_sending else None
        batch.entries = []  # the processor may keep its handle for long
        if faulted:
            said = outcome.ll_result
            error = said if isinstance(said, BaseException) else None
            self._report_fault(batch, outcome.result, error)
        if worker is not None:
            self.rouse(worker)
        self.depart()
        if interrupt is not None:
            raise interrupt
        return True

    def _fault(self, batch: Completion) -> bool:
        """Fault because of *batch*, unless a reset came after it was sent. Holds the lock."""
        moved = batch.epoch == self.life.epoch and self.life.move(Event.FAULT)
        self.counts.faults += moved
        return moved

    def latch(self, batch: Completion) -> bool:
        """End *batch* unless somebody has; True for exactly one caller. Holds the lock."""
        # A batch that is not pending is one of the parent's, seen in a child process.
        if batch.is_done or self.pending.get(batch.batch_id) is not batch:
            return False
        batch.is_done = True
        return True

    def retire(self, batch: Completion, ends: dict[Any, int], errors: int) -> None:
        """Count how *batch* ended. Holds the lock; the caller empties the batch after it."""
        if self.pending.get(batch.batch_id) is batch:  # not after a fork in a callback
            del self.pending[batch.batch_id]
            self.counts.results.update(ends)
            self.counts.callback_errors += errors

    def _note_stray(self, batch: Completion) -> None:
        with self.lock:
            self.counts.strays += 1
        log(
            logging.WARNING,
            "batcher.stray_completion: batch %d of batcher %r had ended already; ignored",
            batch.batch_id,
            self.name,
            extra={"batcher": self.name, "batch": batch.batch_id},
        )

    def _report_fault(
        self,
        batch: Completion,
        result: ProcessResult | CompleteResult,
        cause: BaseException | None,
    ) -> None:
        self.turn_away()
        fault = BatchFault(
            batcher=self.name,
            batch_id=batch.batch_id,
            items=batch.count,
            result=result,
            error=cause,
        )
        try:
            self.hooks.on_batch_faulted(fault)
        except BaseException as error:  # noqa: BLE001 - the batch has ended all the same
            extra = {"batcher": self.name}
            log(logging.ERROR, "batcher.fault_callback_failed", error=error, extra=extra)
            with self.lock:
                self.counts.callback_errors += 1

    # -- the end ------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Return whether no batch is pending and nobody is in user code. Holds the lock."""
        return not self.pending and not self.life.calls

    def is_flushed(self, target: int) -> bool:
        """Return whether the first *target* items, ever, have left and completed."""
        if self.taken < target:
            return False
        return all(batch.first >= target for batch in self.pending.values())

    def depart(self) -> None:
        """Come out of user code; the last to do so ends a close that nobody attends."""
        with self.lock:
            self.life.leave()
            gone = self.end_if_idle()
            dropped = self.let_go()
            self.life.changed.notify_all()
        del dropped
        if gone is not None:
            self.hooks.on_closed(gone, 0.0)

    def end_if_idle(self) -> Worker | None:
        """End an unattended close if nothing goes on any more. Holds the lock.

        Returns the worker, which the caller gives to ``on_closed`` after the lock.
        """
        if not (self.is_unattended and self.is_idle() and self.life.move(Event.CLOSE_DONE)):
            return None
        worker, self.worker = self.worker, None
        self.is_unattended = self.is_pressed = False
        ending, self.ending = self.ending, None
        assert ending is not None, "a close that is left alone has begun"
        ending.ended = (self.counts.results[_OK], self.counts.results[_ERROR])
        self.dropped.append(ending)
        return worker
