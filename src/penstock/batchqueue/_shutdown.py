"""How far a queue's shutdown has come, and how it ended."""

from __future__ import annotations

import enum
import threading

from penstock.clock import Clock, wait_until

__all__ = ["Phase", "Shutdown"]


class Phase(enum.Enum):
    """The life of a queue, in order."""

    RUNNING = "running"
    DRAINING = "draining"
    """New items are refused; the drainers empty their partitions and seal them."""
    FLUSHING = "flushing"
    """Every partition is sealed; each handler gets its last on_idle."""
    CLOSED = "closed"
    ABANDONED = "abandoned"
    """The time was over before the end."""


class Shutdown:
    """The phases of one queue, moved on by its drainers."""

    # Guarded by _changed.
    #   X1  FLUSHING begins when the last drainer has sealed its partitions: a handler's
    #       last on_idle comes after its last item, whoever brought it
    #       (test_the_last_on_idle_comes_after_every_item).
    #   X2  The phase never goes back; ABANDONED is taken from any phase but CLOSED
    #       (test_only_one_caller_begins_the_shutdown).

    def __init__(self, drainers: int, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._unsealed = drainers
        self._running = drainers
        self.phase = Phase.RUNNING

    def begin(self) -> bool:
        """Start draining; False if someone else has."""
        with self._changed:
            if self.phase is not Phase.RUNNING:
                return False
            self.phase = Phase.DRAINING
            return True

    def sealed(self) -> bool:
        """Note that one more drainer has sealed; True if it was the last."""
        with self._changed:
            self._unsealed -= 1
            if self._unsealed or self.phase is not Phase.DRAINING:
                return False
            self.phase = Phase.FLUSHING
            return True

    def ended(self) -> bool:
        """Note that one more drainer has ended; True if that closes the queue."""
        with self._changed:
            self._running -= 1
            if self._running or self.phase is not Phase.FLUSHING:
                return False
            self.phase = Phase.CLOSED
            self._changed.notify_all()
            return True

    def abandon(self) -> bool:
        """Give up waiting; False if the end was reached after all."""
        with self._changed:
            if self.is_over():
                return False
            self.phase = Phase.ABANDONED
            self._changed.notify_all()
            return True

    def is_begun(self) -> bool:
        """Return whether the queue is being shut down or has been."""
        return self.phase is not Phase.RUNNING

    def is_over(self) -> bool:
        """Return whether no drainer will deliver anything more."""
        return self.phase in (Phase.CLOSED, Phase.ABANDONED)

    def wait(self, timeout: float) -> bool:
        """Wait for the end; return whether it has come."""
        with self._changed:
            return wait_until(self._clock, self._changed, self.is_over, timeout)
