"""How a batcher ends, or begins again after a fault: who waits, who gives up, what is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.batcher._core import Ending
from penstock.batcher._lifecycle import Event, State
from penstock.batcher._sinks import Outcome, claim, settle
from penstock.batcher.completion import Abandonment, CompleteResult
from penstock.batcher.stats import DrainReport
from penstock.clock import Clock, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.batcher._core import Core
    from penstock.batcher._staging import Entry
    from penstock.batcher.completion import Completion

__all__ = ["Closing"]

_ENDING = (State.DRAINING, State.CLOSING)


@dataclass(slots=True)
class _Account:
    """What one call of close or reset has seen."""

    started: float
    deadline: float
    inside: bool
    ending: Ending


class Closing:
    """Ends a batcher's opening.

    The first to close leads: it waits for the batches in the processor's hands, abandons
    what was not sent and, when its time is over, what the processor still has. Others
    follow: they wait, and report what the leader gave up. Inside a callback nobody waits;
    what was not sent is abandoned at once, and the rest ends by itself. So it does when the
    leader is interrupted.
    """

    #   X1  Only the leader, or a follower once no leader is left, gives batches up
    #       (test_a_second_close_waits_for_the_first). It sees so and takes them in one hold of
    #       the lock, or they might be those of another opening.
    #   X2  When a close returns as finished no callback runs, and none will
    #       (test_no_callback_runs_after_close_returned).

    def __init__(self, core: Core, clock: Clock) -> None:
        self._core = core
        self._clock = clock

    def close(self, timeout: float, *, drain: bool) -> DrainReport:
        """End the opening within *timeout* seconds, after sending what waits if *drain*."""
        core = self._core
        with core.lock:
            account = self._open_account(timeout)
            gentle = drain and not core.must_not_wait() and core.life.move(Event.DRAIN)
            leads = gentle or core.life.move(Event.CLOSE)
            if leads:
                core.ending = account.ending
            elif core.ending is not None:
                account.ending = core.ending
            core.life.changed.notify_all()  # producers that wait for room
        if leads:
            self._lead(account, gentle=gentle)
        elif core.life.state in _ENDING and not self._wait(account, self._is_over):
            self._end(account, leads=False)
        return self._report(account)

    def _lead(self, account: _Account, *, gentle: bool) -> None:
        core = self._core
        try:
            core.turn_away()
            if gentle:
                self._drain(account)
            self._wait(account, core.is_idle)
        except BaseException:  # KeyboardInterrupt: nobody waits any more
            with core.lock:
                core.life.move(Event.DRAINED)
            account.inside = True
            self._end(account)
            raise
        self._end(account)

    def reset(self) -> DrainReport:
        """Abandon what a fault left unsent and be open again; the state is RESETTING."""
        core = self._core
        with core.lock:
            account = self._open_account(0.0)
            unsent = self._take_unsent(account)
        self._abandon(unsent)
        with core.lock:
            is_open = core.life.move(Event.RESET_DONE)
            worker = core.want() if is_open else None
        core.depart()
        if worker is None:
            raise core.state_error()
        core.rouse(worker)
        return self._report(account, finished=True)

    def nothing(self) -> DrainReport:
        """Return the report of a reset that found everything completed."""
        with self._core.lock:
            account = self._open_account(0.0)
        return self._report(account, finished=True)

    def help(self, done: Callable[[], bool]) -> None:
        """Run the worker here if its scheduler has no thread to do it."""
        worker = self._core.worker
        if worker is None:
            return
        worker.wake()
        home = worker.home
        if home is not None:
            home.help(done)

    # -- steps of a close -----------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._core.life.state not in _ENDING

    def _drain(self, account: _Account) -> None:
        core = self._core

        def is_sent() -> bool:
            return not core.staging.entries or not core.life.is_sending

        self.help(is_sent)
        self._wait(account, is_sent)
        with core.lock:
            core.life.move(Event.DRAINED)

    def _wait(self, account: _Account, done: Callable[[], bool]) -> bool:
        """Wait for *done*, but not for oneself."""
        with self._core.lock:
            left = 0.0 if account.inside else account.deadline - self._clock.now()
            return wait_until(self._clock, self._core.life.changed, done, left)

    def _end(self, account: _Account, *, leads: bool = True) -> None:
        """Complete everything that has not, and close if nothing goes on."""
        core = self._core
        with core.lock:
            if not leads and (account.inside or not core.is_unattended):
                return
            unsent = self._take_unsent(account)
            overdue = [] if account.inside else self._take_overdue(account)
        try:
            self._abandon(unsent)
            for batch in overdue:
                self._give_up(batch)
        finally:
            with core.lock:
                core.is_unattended = True
                core.life.leave()
                gone = core.end_if_idle()
                dropped = core.let_go()
                core.life.changed.notify_all()
            del dropped
            if gone is not None:
                core.hooks.on_closed(gone, max(0.0, account.deadline - self._clock.now()))

    def _take_unsent(self, account: _Account) -> list[Entry]:
        core = self._core
        core.life.enter()
        unsent = core.staging.take_all()
        core.taken += len(unsent)
        wanted = claim(unsent)
        core.dropped.append(unsent)
        core.counts.cancelled += len(unsent) - len(wanted)
        # Together with `taken`: a flush must not find them gone and not given up.
        core.counts.results[Abandonment.NOT_SENT] += len(wanted)
        account.ending.not_sent.extend(entry[0] for entry in wanted)
        return wanted

    def _abandon(self, unsent: list[Entry]) -> None:
        errors = settle(unsent, Outcome(CompleteResult.ABANDONED))
        with self._core.lock:
            self._core.counts.callback_errors += errors

    def _take_overdue(self, account: _Account) -> list[Completion]:
        overdue = [b for b in self._core.pending.values() if self._core.latch(b)]
        given_up = [entry[0] for batch in overdue for entry in batch.entries]
        account.ending.indeterminate.extend(given_up)
        return overdue

    def _give_up(self, batch: Completion) -> None:
        kind = Abandonment.INDETERMINATE
        errors = settle(batch.entries, Outcome(CompleteResult.ABANDONED, kind))
        with self._core.lock:
            self._core.retire(batch, {kind: batch.count}, errors)
        batch.entries = []  # not under the lock: what is let go of is the user's

    # -- the report -----------------------------------------------------------------------

    def _open_account(self, timeout: float) -> _Account:
        now = self._clock.now()
        results = self._core.counts.results
        return _Account(
            started=now,
            deadline=now + timeout,
            inside=self._core.life.is_inside(),
            ending=Ending(results[CompleteResult.OK], results[CompleteResult.ERROR]),
        )

    def _report(self, account: _Account, *, finished: bool | None = None) -> DrainReport:
        core = self._core
        with core.lock:
            ending, results = account.ending, core.counts.results
            ended = ending.ended or (results[CompleteResult.OK], results[CompleteResult.ERROR])
            if finished is None:
                finished = ending.ended is not None or core.life.state is State.CREATED
            return DrainReport(
                batcher=core.name,
                ok=ended[0] - ending.ok,
                failed=ended[1] - ending.failed,
                not_sent=tuple(ending.not_sent),
                indeterminate=tuple(ending.indeterminate),
                in_callbacks=0 if ending.ended else len(core.life.calls),
                elapsed=self._clock.now() - account.started,
                finished=finished,
            )
