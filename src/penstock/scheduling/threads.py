"""The scheduler used in production: a few daemon threads that run tasks."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock._process import renew_after_fork
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import SchedulerClosedError
from penstock.scheduling.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.scheduling.task import Task

__all__ = ["ThreadScheduler"]

logger = logging.getLogger(__name__)

_AFTER_FAILURE = 1.0


class ThreadScheduler:
    """Runs tasks on *threads* daemon threads, started with the first task."""

    # Guarded by _changed, which is never held while a task runs.
    #
    #   S1  A task is run by at most one thread at a time: only a READY task is claimed,
    #       and claiming it makes it RUNNING
    #       (test_a_task_is_never_run_by_two_threads).
    #   S2  No wake-up is lost: a wake during a run makes it RERUN; work published before
    #       `parked` was set is seen by has_work(), which is asked after
    #       (test_a_wake_during_a_run_leads_to_another_run,
    #        test_work_published_while_parking_is_found).
    #   S3  Every wait ends on a ready task, on the next timer or on close
    #       (test_close_ends_idle_threads).
    #   S4  A task that raises is logged and run again later; the thread goes on
    #       (test_a_raising_task_does_not_end_its_thread).

    def __init__(self, name: str, threads: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self._size = threads
        self._clock = clock
        self._sequence = itertools.count(1)
        self._reset()
        renew_after_fork(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._ready: deque[Task] = deque()
        self._timers: list[tuple[float, int, Task]] = []
        self._closed = False

    def renew_after_fork(self) -> None:
        """Forget threads and tasks: only the forking thread lives on in the child."""
        closed = self._closed
        self._reset()
        self._closed = closed

    def attach(self, task: Task, *, at_once: bool = True) -> None:
        """Take charge of *task* and run it soon, or only once it is woken."""
        task.scheduler = self
        with self._changed:
            if self._closed:
                msg = f"scheduler {self.name!r} is closed; create a new one"
                raise SchedulerClosedError(msg)
            if at_once:
                self._make_ready(task)
            else:
                task.state, task.parked = TaskState.PARKED, True

    def wake(self, task: Task) -> None:
        """Run *task* soon; if it is running, run it once more afterwards."""
        with self._changed:
            if task.state is TaskState.PARKED:
                self._make_ready(task)
            elif task.state is TaskState.RUNNING:
                task.state = TaskState.RERUN
            elif task.state is TaskState.READY:
                self._start_threads(task)

    def help(self, done: Callable[[], bool]) -> bool:
        """Run what is ready here if no thread could be started; return if any was."""
        helped = False
        while not self._threads and not done():
            task = self._claim()
            if task is None:
                break
            self._run(task)
            helped = True
        return helped

    def has_only_this_thread(self) -> bool:
        """Return whether the calling thread is the one and only that runs tasks here."""
        return self._size == 1 and threading.current_thread() in self._threads

    def close(self, timeout: float) -> bool:
        """Let the threads end; return whether they have within *timeout* seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = [t for t in self._threads if t is not threading.current_thread()]
        deadline = self._clock.now() + timeout
        for thread in threads:
            thread.join(max(0.0, min(deadline - self._clock.now(), threading.TIMEOUT_MAX)))
        return not any(thread.is_alive() for thread in threads)

    def __repr__(self) -> str:
        return f"<ThreadScheduler {self.name!r}, {len(self._threads)} of {self._size} threads>"

    def _make_ready(self, task: Task) -> None:
        task.parked = False
        task.state = TaskState.READY
        self._ready.append(task)
        self._start_threads(task)
        self._changed.notify()

    def _start_threads(self, task: Task) -> None:
        """Start those that are missing; if none can be, have the next wake try again."""
        for index in range(len(self._threads), self._size):
            name = f"penstock-{self.name}" + (f"-{index}" if self._size > 1 else "")
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # too many threads, or the interpreter is ending
                logger.warning("scheduler.no_thread", extra={"scheduler": self.name})
                break
            self._threads.append(thread)
        task.parked = not self._threads

    def _work(self) -> None:
        while (task := self._next()) is not None:
            self._run(task)

    def _next(self) -> Task | None:
        """Wait for a task to run; None once the scheduler is closed."""
        with self._changed:
            while True:
                self._promote_due()
                if self._ready:
                    return self._claim_first()
                if self._closed:
                    return None
                timers = self._timers
                left = timers[0][0] - self._clock.now() if timers else None
                if left is None or left > 0:
                    self._clock.wait(self._changed, left)

    def _claim(self) -> Task | None:
        with self._changed:
            self._promote_due()
            return self._claim_first() if self._ready else None

    def _claim_first(self) -> Task:
        task = self._ready.popleft()
        task.state = TaskState.RUNNING
        return task

    def _promote_due(self) -> None:
        timers = self._timers
        now = self._clock.now() if timers else 0.0
        while timers and timers[0][0] <= now:
            due, sequence, task = heapq.heappop(timers)
            if task.timer != (due, sequence):
                continue  # an earlier one took its place
            task.timer = (math.inf, 0)
            if task.state is TaskState.PARKED:
                if task.due <= now:
                    self._make_ready(task)
                else:
                    self._set_timer(task)

    def _run(self, task: Task) -> None:
        try:
            delay = task.run()
        except BaseException:
            delay = _AFTER_FAILURE
            with suppress(BaseException):  # whatever handles the record may raise as well
                logger.exception("scheduler.task_failed", extra={"scheduler": self.name})
        with self._changed:
            if delay is None:
                task.state = TaskState.ENDED
                return
            if task.state is TaskState.RERUN or delay <= 0:
                self._make_ready(task)
                return
            self._park(task, delay)
        if self._has_work(task):
            self.wake(task)

    def _has_work(self, task: Task) -> bool:
        try:
            return task.has_work()
        except BaseException:
            with suppress(BaseException):
                logger.exception("scheduler.task_failed", extra={"scheduler": self.name})
        with self._changed:
            if task.state is TaskState.PARKED:
                self._park(task, _AFTER_FAILURE)
        return False

    def _park(self, task: Task, delay: float) -> None:
        task.state = TaskState.PARKED
        task.parked = True
        task.due = self._clock.now() + delay
        if task.due < task.timer[0]:  # else the entry it has comes first, and sets another
            self._set_timer(task)

    def _set_timer(self, task: Task) -> None:
        if task.due == math.inf:
            return
        task.timer = (task.due, next(self._sequence))
        heapq.heappush(self._timers, (*task.timer, task))
        if self._timers[0][2] is task:
            self._changed.notify()  # whoever waits, waits for a later timer
