"""What a scheduler runs: work that comes back, on one thread at a time."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.clock import Clock

__all__ = ["Scheduler", "SchedulerFactory", "Task", "TaskState"]


class TaskState(enum.Enum):
    """Where a task is in its scheduler's hands."""

    PARKED = "parked"
    READY = "ready"
    RUNNING = "running"
    RERUN = "running, and woken meanwhile"
    ENDED = "ended"


class Task(ABC):
    """Work that a scheduler runs again and again until it says that it has ended.

    ``parked`` is the one field others may read without a lock: it is True only while
    the task waits to be woken. Whoever makes work for the task publishes the work first
    and reads ``parked`` second; the scheduler sets ``parked`` first and asks
    :meth:`has_work` second. Whatever the interleaving, one of the two sees the other.
    """

    __slots__ = ("__weakref__", "due", "parked", "scheduler", "state", "timer")

    def __init__(self) -> None:
        self.parked = False
        self.state = TaskState.PARKED
        self.due = 0.0  # when it wants to run again, if it is parked
        self.timer = (math.inf, 0)  # its entry in the scheduler's timers: when, and which
        self.scheduler: Scheduler | None = None

    @abstractmethod
    def run(self) -> float | None:
        """Do one bounded piece of work.

        Returns the seconds until it wants to run again (0: at once, ``math.inf``: only
        when woken), or None if it has ended for good.
        """

    @abstractmethod
    def has_work(self) -> bool:
        """Return whether a run now would find something to do."""

    def wake(self) -> None:
        """Have it run soon; if it is running, have it run once more."""
        if self.scheduler is not None:
            self.scheduler.wake(self)


class Scheduler(Protocol):
    """Runs tasks, each on at most one thread at a time, without losing a wake-up."""

    def attach(self, task: Task, *, at_once: bool = True) -> None:
        """Take charge of *task* and run it soon, or only once it is woken."""
        ...

    def wake(self, task: Task) -> None:
        """Run *task* soon; if it is running, run it once more afterwards."""
        ...

    def help(self, done: Callable[[], bool]) -> bool:
        """Run what is ready here if there is no other thread to do it; return if any was."""
        ...

    def has_only_this_thread(self) -> bool:
        """Return whether the calling thread is the one and only that runs tasks here."""
        ...

    def close(self, timeout: float) -> bool:
        """Let the threads end; return whether they have within *timeout* seconds."""
        ...


class SchedulerFactory(Protocol):
    """Makes schedulers: threads in production, steps in tests."""

    def __call__(self, name: str, threads: int, clock: Clock) -> Scheduler:
        """Return a scheduler called *name* with *threads* threads."""
        ...
