"""The batcher's one task, in the hands of a scheduler."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Protocol

from penstock.errors import SchedulerClosedError
from penstock.scheduling import Task

if TYPE_CHECKING:
    from penstock.scheduling import Scheduler

__all__ = ["Worker"]


class Turner(Protocol):
    """What a worker works for. `Core` is one."""

    def turn(self, worker: Worker) -> float | None:
        """Do one piece of work; return the seconds until the next, or None at the end."""
        ...


class Worker(Task):
    """The one task that forms batches and hands them to the processor; a new one per opening."""

    __slots__ = ("_attaching", "_core", "_is_attached", "home", "is_wanted")

    def __init__(self, core: Turner, home: Scheduler) -> None:
        super().__init__()
        self.home = home
        self.is_wanted = False  # a wake-up is on its way (C3)
        self._core = core
        self._attaching = threading.Lock()
        self._is_attached = False

    def run(self) -> float | None:
        """Send one batch, if one is due."""
        return self._core.turn(self)

    def has_work(self) -> bool:
        """Return whether somebody wants it to look."""
        return self.is_wanted

    def attach(self) -> None:
        """Be in the hands of the scheduler from now on; once is enough."""
        with self._attaching:
            if not self._is_attached:
                self.home.attach(self, at_once=False)
                self._is_attached = True

    def wake(self) -> None:
        """Have it look soon. In a child process this is when its thread comes back."""
        if not self._is_attached:
            with contextlib.suppress(SchedulerClosedError):  # closed since: nothing is left to do
                self.attach()
        self.home.wake(self)
