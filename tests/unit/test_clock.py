"""Time as penstock sees it: the system's clock, and waiting until something holds."""

import math
import threading

import pytest

from penstock.clock import SYSTEM_CLOCK, SystemClock, wait_until
from penstock.testing import FakeClock
from tests.unit.rig import PATIENCE, in_background


def test_the_system_clock_never_goes_back() -> None:
    """It is monotonic."""
    times = [SYSTEM_CLOCK.now() for _ in range(100)]
    assert times == sorted(times)


def test_the_system_clock_waits_no_longer_than_told() -> None:
    """Without a notification it returns False when the time is over."""
    condition = threading.Condition()
    with condition:
        assert SystemClock().wait(condition, 0.001) is False


@pytest.mark.parametrize("timeout", [None, math.inf, threading.TIMEOUT_MAX, 60.0])
def test_the_system_clock_waits_for_a_notification(timeout: float | None) -> None:
    """For ever, for longer than conditions allow, or for a while: notified, it returns True."""
    condition = threading.Condition()

    def notify() -> None:
        with condition:
            condition.notify()

    with condition:
        notifying = in_background(notify)
        assert SystemClock().wait(condition, timeout) is True
    notifying.result(PATIENCE)


def test_waiting_for_what_already_holds_does_not_wait() -> None:
    """The predicate is asked first."""
    clock, condition = FakeClock(), threading.Condition()
    with condition:
        assert wait_until(clock, condition, lambda: True, None)
        assert wait_until(clock, condition, lambda: True, 0.0)


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_without_time_it_only_looks(timeout: float) -> None:
    """A timeout that is not positive never waits."""
    clock, condition = FakeClock(), threading.Condition()
    with condition:
        assert not wait_until(clock, condition, lambda: False, timeout)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_it_waits_until_the_predicate_holds(timeout: float | None) -> None:
    """A notification for something else sends it back to waiting."""
    clock, condition = FakeClock(), threading.Condition()
    asked: list[int] = []

    def third_time() -> bool:
        asked.append(len(asked))
        return len(asked) > 2

    def wait() -> bool:
        with condition:
            return wait_until(clock, condition, third_time, timeout)

    waiting = in_background(wait)
    for looks in (1, 2):
        while True:  # until it has looked and sleeps again
            clock.await_sleepers(1)
            with condition:
                if len(asked) == looks:
                    condition.notify_all()
                    break
    assert waiting.result(PATIENCE) is True
    assert len(asked) == 3


def test_notifications_do_not_extend_the_deadline() -> None:
    """Time that has passed counts, however often the wait is interrupted."""
    clock, condition = FakeClock(), threading.Condition()

    def wait() -> bool:
        with condition:
            return wait_until(clock, condition, lambda: False, 3.0)

    waiting = in_background(wait)
    for _ in range(3):
        clock.await_sleepers(1)
        with condition:
            clock._now += 1.0
            condition.notify_all()
    assert waiting.result(PATIENCE) is False
