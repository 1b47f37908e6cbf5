"""What a second reader of the batcher found: interrupts, user code in odd places, late closers."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.batcher import Batcher, ProcessResult, batched
from penstock.batcher._closing import Closing
from penstock.batcher._lifecycle import Event
from penstock.errors import ConfigError, ResultCountError
from penstock.testing import FakeClock, StepExecutor
from tests.unit.batcher.rig import (
    ABANDONED,
    ERROR,
    OK,
    PATIENCE,
    Rig,
    Unhelpful,
    await_event,
    in_background,
    opened,
)


class Interrupting(FakeClock):
    """A clock whose next wait, once armed, is interrupted from the keyboard."""

    is_armed = False

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Raise once if armed."""
        if self.is_armed:
            self.is_armed = False
            raise KeyboardInterrupt
        return super().wait(condition, timeout)


# -- an interrupted close -----------------------------------------------------------------------


@pytest.mark.parametrize("drain", [False, True])
def test_an_interrupted_close_ends_by_itself(drain: bool) -> None:
    """What was not sent is abandoned; the batch that the processor has ends the close."""
    clock = Interrupting()
    rig = opened(Unhelpful(clock), max_batch_size=1, max_pending_batches=1)
    rig.enqueue("sent", "waits")
    rig.run()
    clock.is_armed = True
    with pytest.raises(KeyboardInterrupt):
        rig.batcher.close(60.0, drain=drain)
    assert rig.outcomes == [("waits", ABANDONED, None)]
    assert rig.batcher.stats().state == "closing"
    rig.complete()
    assert rig.batcher.stats().state == "created"
    rig.batcher.open()
    assert rig.batcher.is_open


def test_a_close_after_an_interrupted_one_gives_up_what_that_left() -> None:
    """It reports what both have given up."""
    clock = Interrupting()
    rig = opened(StepExecutor(clock), max_batch_size=1, max_pending_batches=1)
    rig.enqueue("sent", "waits")
    rig.run()
    clock.is_armed = True
    with pytest.raises(KeyboardInterrupt):
        rig.batcher.close(60.0)
    report = rig.batcher.close(0.0)
    assert (report.finished, report.not_sent, report.indeterminate) == (
        True,
        ("waits",),
        ("sent",),
    )


@pytest.mark.parametrize("timeout", [math.nan, -1.0, "1", True])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    """NaN would neither pass nor be waited for."""
    rig = opened()
    with pytest.raises(ConfigError, match="timeout"):
        rig.batcher.close(timeout)
    with pytest.raises(ConfigError, match="timeout"):
        rig.batcher.flush(timeout)
    assert rig.batcher.is_open


# -- values that are user code --------------------------------------------------------------------


class Short(Sequence[int]):
    """Has fewer values than it says."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        if index:
            raise IndexError
        return index


class Once(Short):
    """Can be read once."""

    is_read = False

    def __iter__(self) -> Iterator[int]:
        if self.is_read:
            raise ValueError
        self.is_read = True
        return iter([10, 20])


class Broken(list[int]):
    """Does not even say how many it has."""

    def __len__(self) -> int:
        raise LookupError


def ends_of(values: Sequence[Any]) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Complete a batch of two futures and one of two callbacks; return how they ended."""
    rig = opened(min_batch_size=2, max_batch_size=2, min_wait_time=60.0)
    futures = [rig.batcher.submit(item) for item in "ab"]
    rig.run()
    assert rig.completions[0].each(values)
    rig.enqueue("c", "d")
    rig.run()
    again = type(values)()
    assert rig.completions[1].each(again)
    assert rig.batcher.stats().pending_batches == 0
    assert not rig.batcher.is_faulted
    return [f.exception(0) or f.result(0) for f in futures], rig.outcomes


def test_values_are_read_once() -> None:
    """A second look might find others."""
    futures, outcomes = ends_of(Once())
    assert futures == [10, 20]
    assert outcomes == [("c", OK, 10), ("d", OK, 20)]


@pytest.mark.parametrize(("kind", "error"), [(Short, ResultCountError), (Broken, LookupError)])
def test_values_that_cannot_be_read_fail_their_batch(
    kind: type[Sequence[int]], error: type[Exception]
) -> None:
    """All of the items are told, and nobody is left waiting."""
    futures, outcomes = ends_of(kind())
    assert [type(end) for end in futures] == [error, error]
    assert [(item, result) for item, result, _ in outcomes] == [("c", ERROR), ("d", ERROR)]


def test_a_batched_function_survives_results_that_cannot_be_read() -> None:
    """The call fails; the next one does not."""
    steps = StepExecutor()
    results: list[list[int]] = [Broken(), [7]]

    @batched(max_batch_size=1, clock=steps.clock, factory=steps)
    def function(items: list[int]) -> list[int]:
        del items
        return results.pop(0)

    first, second = function.submit(1), function.submit(2)
    steps.run_until_idle()
    assert isinstance(first.exception(0), LookupError)
    assert second.result(0) == 7
    function.close()


# -- destructors ----------------------------------------------------------------------------------


class Mortal:
    """An item that looks at its batcher when it dies."""

    def __init__(self, batcher: Batcher[Any], died: list[bool]) -> None:
        self.batcher = batcher
        self.died = died

    def __del__(self) -> None:
        lock = self.batcher._core.lock
        is_free = lock.acquire(blocking=False)
        if is_free:
            lock.release()
        self.died.append(is_free)


def complete(rig: Rig) -> None:
    """End the batch."""
    rig.completions[0](OK, None)


def fail(rig: Rig) -> None:
    """Have the worker find that the batch fails."""
    rig.answer = ProcessResult.ERROR
    rig.run()


def give_up(rig: Rig) -> None:
    """Close while the processor has the batch."""
    rig.batcher.close(0.0)


@pytest.mark.parametrize("end", [complete, fail, give_up])
def test_an_item_dies_outside_the_lock(end: Callable[[Rig], None]) -> None:
    """However its batch ended."""
    rig = opened()
    died: list[bool] = []
    rig.on_send = lambda items, _: items.clear()
    rig.batcher.enqueue(Mortal(rig.batcher, died), 1, lambda *_: None)
    if end is not fail:
        rig.run()
    rig.sent.clear()
    end(rig)
    assert died == [True]


@pytest.mark.parametrize("how", ["take", "close", "reset"])
def test_a_cancelled_item_dies_outside_the_lock(how: str) -> None:
    """It is let go of when the worker, or who closes, finds it cancelled."""
    rig = opened()
    died: list[bool] = []
    rig.batcher.submit(Mortal(rig.batcher, died)).cancel()
    if how == "take":
        rig.run()
    elif how == "close":
        rig.batcher.close(0.0)
    else:
        rig.batcher._core.life.is_faulted = True
        rig.batcher.reset()
    assert died == [True]


def test_what_an_unattended_close_gave_up_dies_outside_the_lock() -> None:
    """Nobody but the batcher remembers it by then."""
    rig = opened(max_batch_size=1, max_pending_batches=1)
    died: list[bool] = []
    rig.enqueue("sent")
    rig.run()
    rig.batcher.enqueue(Mortal(rig.batcher, died), 1, lambda *_: None)
    rig.on_outcome = lambda _: [rig.batcher.close()].clear()
    rig.complete()
    assert rig.batcher.stats().state == "created"
    assert died == [True]


# -- those who follow -----------------------------------------------------------------------------


def test_a_follower_that_takes_over_late_leaves_a_new_opening_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its time is over while the close goes on unattended; before it acts, that has ended."""
    rig = opened()
    rig.enqueue("old")
    rig.run()
    told, go_on = threading.Event(), threading.Event()

    def stop(_: object) -> None:
        told.set()
        await_event(go_on)

    rig.on_outcome = stop
    completing = in_background(lambda: rig.completions[0](OK, None))
    await_event(told)
    assert not rig.batcher.close(0.0).finished  # unattended from now on
    ends = Closing._end

    def late(self: Closing, account: Any, **named: Any) -> Any:
        rig.on_outcome = None
        go_on.set()
        assert completing.result(PATIENCE)
        rig.batcher.open()
        rig.enqueue("new")
        monkeypatch.undo()
        return ends(self, account, **named)

    monkeypatch.setattr(Closing, "_end", late)
    report = rig.batcher.close(0.0)
    assert rig.batcher.is_open
    assert rig.batcher.stats().queued == 1
    assert (report.finished, report.not_sent, report.in_callbacks) == (True, (), 0)


def test_a_follower_reports_what_the_leader_gave_up() -> None:
    """It is no less lost to who only waited."""
    rig = opened(max_batch_size=1, max_pending_batches=1)
    rig.enqueue("sent", "waits")
    rig.run()
    leader = in_background(lambda: rig.batcher.close(1.0))
    rig.clock.await_sleepers(1)
    follower = in_background(lambda: rig.batcher.close(60.0))
    rig.clock.await_sleepers(2)
    rig.clock.advance(1.0)
    for closing in (leader, follower):
        report = closing.result(PATIENCE)
        assert (report.not_sent, report.indeterminate) == (("waits",), ("sent",))
        assert report.finished
        assert not report.complete


# -- flush ----------------------------------------------------------------------------------------


class Meanwhile(FakeClock):
    """A clock in whose next wait, once there is something to do, that is done instead."""

    act: Callable[[], object] | None = None

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Do it without the lock, and wake up."""
        act, self.act = self.act, None
        if act is None:
            return super().wait(condition, timeout)
        condition.release()
        act()
        condition.acquire()
        return True


def test_a_flush_that_meets_a_reset_does_not_say_that_all_was_sent() -> None:
    """It looks again while the reset is telling the items that they were given up."""
    clock = Meanwhile()
    rig = opened(Unhelpful(clock))
    rig.enqueue("waits")
    told, go_on = threading.Event(), threading.Event()

    def stop(_: object) -> None:
        told.set()
        await_event(go_on)

    def fault_and_reset() -> None:
        core = rig.batcher._core
        with core.lock:
            core.life.move(Event.FAULT)
        resets.append(in_background(rig.batcher.reset))
        await_event(told)

    resets: list[Any] = []
    rig.on_outcome = stop
    clock.act = fault_and_reset
    assert rig.batcher.flush() is False
    go_on.set()
    assert resets[0].result(PATIENCE).not_sent == ("waits",)
    assert rig.outcomes == [("waits", ABANDONED, None)]
