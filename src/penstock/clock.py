"""Time, as everything else in penstock sees it.

This is the only module that reads the system's clock. Whatever waits, waits through a
:class:`Clock`, so a test can put its own in place (:class:`penstock.testing.FakeClock`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "wait_until", "wall_time"]


class Clock(Protocol):
    """Monotonic seconds, and a way to wait for a condition that respects them."""

    def now(self) -> float:
        """Return monotonic seconds; only differences mean anything."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on the held *condition*; return False if *timeout* seconds passed first."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on the held *condition*; return False if *timeout* seconds passed first."""
        # Conditions refuse waits beyond threading.TIMEOUT_MAX, also math.inf.
        if timeout is not None and timeout >= threading.TIMEOUT_MAX:
            timeout = None
        return condition.wait(timeout)


SYSTEM_CLOCK: Clock = SystemClock()


def wall_time() -> float:
    """Return seconds since 1970 UTC; for what is compared with the times in telemetry."""
    return time.time()


def wait_until(
    clock: Clock,
    condition: threading.Condition,
    predicate: Callable[[], bool],
    timeout: float | None,
) -> bool:
    """Wait on the held *condition* until *predicate* holds; return whether it does.

    ``None`` waits without a deadline. A non-positive *timeout* only looks.
    """
    deadline = None if timeout is None else clock.now() + timeout
    while not predicate():
        left = None if deadline is None else deadline - clock.now()
        if left is not None and not left > 0:  # NaN has passed as well
            return False
        clock.wait(condition, left)
    return True
