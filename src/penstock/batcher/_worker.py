"""The batcher's one task, in the hands of a scheduler."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from penstock.scheduling import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.scheduling import Scheduler

__all__ = ["Worker"]


class Turner(Protocol):
    """What a worker works for. `Core` is one."""

    def turn(self, worker: Worker) -> float | None:
        """Do one piece of work; return the seconds until the next, or None at the end."""
        ...


class Worker(Task):
    """The one task that forms batches and hands them to the processor; a new one per opening.

    *lodge* attaches it to a scheduler and returns that. In a child process this happens when
    the worker is first woken.
    """

    #   W1  It is attached at most once, and not after it was detached: a wake-up that comes
    #       late finds no scheduler, and makes none
    #       (test_a_wake_that_comes_after_the_close_is_harmless).

    __slots__ = ("_attaching", "_core", "_is_over", "_lodge", "home", "is_wanted")

    def __init__(self, core: Turner, lodge: Callable[[Task], Scheduler]) -> None:
        super().__init__()
        self.home: Scheduler | None = None
        self.is_wanted = False  # a wake-up is on its way (N1)
        self._core = core
        self._lodge = lodge
        self._attaching = threading.Lock()
        self._is_over = False

    def run(self) -> float | None:
        """Send one batch, if one is due."""
        return self._core.turn(self)

    def has_work(self) -> bool:
        """Return whether somebody wants it to look."""
        return self.is_wanted

    def wake(self) -> None:
        """Have it look soon."""
        home = self.home or self.attach()
        if home is not None:
            home.wake(self)

    def attach(self) -> Scheduler | None:
        """Be in the hands of a scheduler, and return it; None once detached."""
        with self._attaching:
            if self.home is None and not self._is_over:
                self.home = self._lodge(self)
            return self.home

    def detach(self) -> Scheduler | None:
        """Be over; return the scheduler that has to be let go, if there was one."""
        with self._attaching:
            self._is_over = True
            home, self.home = self.home, None
            return home

    def is_waited_for_by_caller(self) -> bool:
        """Return whether the calling thread is the only one that could ever run it."""
        return self.home is not None and self.home.has_only_this_thread()
