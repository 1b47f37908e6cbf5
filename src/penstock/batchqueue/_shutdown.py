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
    #       (test_the_phases_only_go_forward).
    #   X3  DRAINING is not seen before producers are refused: a sealed partition gets no
    #       more items (test_no_partition_is_sealed_before_producers_are_refused).
    #   X4  Of several callers that wait, the last whose time is up gives up, none before
    #       (test_a_second_caller_with_less_time_does_not_cut_the_first_short,
    #        test_a_shutdown_begun_in_a_handler_can_be_given_up_by_another_caller).

    def __init__(self, drainers: int, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._unsealed = drainers
        self._running = drainers
        self._waiting = 0
        self.phase = Phase.RUNNING

    def begin(self) -> None:
        """Let the drainers close down, now that producers are refused."""
        with self._changed:
            if self.phase is Phase.RUNNING:
                self.phase = Phase.DRAINING

    def sealed(self) -> bool:
        """Note that one more drainer has sealed; True if it was the last."""
        with self._changed:
            self._unsealed -= 1
            if self._unsealed or self.phase is not Phase.DRAINING:
                return False
            self.phase = Phase.FLUSHING
            return True

    def ended(self) -> bool:
        """Note that one more drainer has ended; True if it was the last."""
        with self._changed:
            self._running -= 1
            return not self._running and self.phase is Phase.FLUSHING

    def finish(self) -> None:
        """Note that everything is let go of, and tell whoever waits."""
        with self._changed:
            if self.phase is not Phase.ABANDONED:
                self.phase = Phase.CLOSED
            self._changed.notify_all()

    def abandon(self) -> bool:
        """Give up; False if the end has come, or if somebody still waits for it."""
        with self._changed:
            if self._waiting or self.is_over():
                return False
            self.phase = Phase.ABANDONED
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
            self._waiting += 1
            try:
                return wait_until(self._clock, self._changed, self.is_over, timeout)
            finally:
                self._waiting -= 1
