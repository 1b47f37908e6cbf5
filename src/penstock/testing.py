"""Deterministic tests for your own handlers: a clock you move, and threads you step.

>>> from penstock import BatchQueueConfig, BatchQueueManager, ThreadPolicy
>>> clock = FakeClock()
>>> steps = StepExecutor(clock)
>>> queues = BatchQueueManager(clock=clock, factory=steps)
>>> queue = queues.create("demo", BatchQueueConfig(threads=ThreadPolicy.fixed(1)))
>>> queue.add_handler(str, print)
>>> queue.produce("hello")
True
>>> steps.run_until_idle()
['hello']
2
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.batchqueue.handlers import HandlerConsumer
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.scheduling import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.scheduling import Task

__all__ = ["FakeClock", "RecordingHandler", "StepExecutor", "eventually"]

T = TypeVar("T")


class FakeClock:
    """A clock that stands still until :meth:`advance` moves it. Thread-safe.

    Threads that wait through it wake when their time has come, or when notified.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._changed = threading.Condition()
        self._sleepers: list[tuple[float, threading.Condition]] = []

    def now(self) -> float:
        """Return the time it was moved to last."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward and wake whoever waited for it."""
        with self._changed:
            self._now += seconds
            due = [condition for deadline, condition in self._sleepers if deadline <= self._now]
        for condition in due:
            with condition:
                condition.notify_all()

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on the held *condition*; return False if *timeout* seconds passed first."""
        deadline = math.inf if timeout is None else self._now + timeout
        sleeper = (deadline, condition)
        with self._changed:
            self._sleepers.append(sleeper)
            self._changed.notify_all()
        try:
            if self._now < deadline:
                condition.wait()
        finally:
            with self._changed:
                self._sleepers.remove(sleeper)
        return self._now < deadline

    def await_sleepers(
        self, count: int, timeout: float = 30.0, *, within: float = math.inf
    ) -> None:
        """Wait (in real time) until *count* threads wait through this clock.

        With *within*, only those count whose time comes in so many seconds of this clock, not
        those that wait for something else than time.
        """

        def found() -> int:
            return sum(deadline <= self._now + within for deadline, _ in self._sleepers)

        with self._changed:
            if not self._changed.wait_for(lambda: found() >= count, timeout):
                msg = f"{found()} threads wait, not {count}, after {timeout} s"
                raise AssertionError(msg)


class StepExecutor:
    """Stands in for all threads of a manager's queues: tasks run when the test says so.

    Give it as ``factory=`` together with its clock. Nothing runs by itself, so a produce
    that would block for ever does: use ``timeout=0`` or a thread for those.
    """

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self._ready: deque[Task] = deque()
        self._timers: list[tuple[float, int, Task]] = []
        self._sequence = itertools.count(1)
        self._lock = threading.RLock()

    def __call__(self, name: str, threads: int, clock: Clock) -> StepExecutor:
        """Be the scheduler for *name*, whatever its thread count."""
        del name, threads, clock
        return self

    def attach(self, task: Task, *, at_once: bool = True) -> None:
        """Take charge of *task*."""
        task.scheduler = self
        task.state, task.parked = TaskState.PARKED, True
        if at_once:
            self.wake(task)

    def wake(self, task: Task) -> None:
        """Have *task* ready to be stepped."""
        with self._lock:
            if task.state is TaskState.PARKED:
                task.state, task.parked, task.timer = TaskState.READY, False, (math.inf, 0)
                self._ready.append(task)
            elif task.state is TaskState.RUNNING:
                task.state = TaskState.RERUN

    def help(self, done: Callable[[], bool]) -> bool:
        """Run what is ready until *done*; return if anything was."""
        helped = False
        while not done() and self.step():
            helped = True
        return helped

    def has_only_this_thread(self) -> bool:
        """Return False: the test's own thread stands in for any number."""
        return False

    def close(self, timeout: float) -> bool:
        """There are no threads to end."""
        del timeout
        return True

    def ready(self) -> tuple[Task, ...]:
        """Return the tasks that a step could run, in their order."""
        with self._lock:
            self._promote_due()
            return tuple(self._ready)

    def step(self, task: Task | None = None) -> bool:
        """Run the next ready task once, or *task* if it is ready; False if there is none."""
        with self._lock:
            self._promote_due()
            chosen = task if task is not None else next(iter(self._ready), None)
            if chosen is None or chosen not in self._ready:
                return False
            self._ready.remove(chosen)
            chosen.state = TaskState.RUNNING
        delay: float | None = math.inf
        try:
            delay = chosen.run()
        finally:
            self._settle(chosen, delay)
        return True

    def run_until_idle(self, limit: int = 100_000) -> int:
        """Step until nothing is ready without moving the clock; return the steps it took."""
        for steps in range(limit):
            if not self.step():
                return steps
        msg = f"still busy after {limit} steps"
        raise AssertionError(msg)

    def advance(self, seconds: float) -> None:
        """Move the clock forward, running every task that falls due on the way, in order."""
        end = self.clock.now() + seconds
        self.run_until_idle()
        while self._timers and self._timers[0][0] <= end:
            self.clock.advance(max(0.0, self._timers[0][0] - self.clock.now()))
            self.run_until_idle()
        self.clock.advance(max(0.0, end - self.clock.now()))  # a handler may have moved it

    def _settle(self, task: Task, delay: float | None) -> None:
        with self._lock:
            rerun = task.state is TaskState.RERUN
            task.state = TaskState.PARKED
            if delay is None:
                task.state = TaskState.ENDED
                return
            if rerun or delay <= 0:
                self.wake(task)
                return
            task.parked = True
            if delay < math.inf:
                task.timer = (self.clock.now() + delay, next(self._sequence))
                heapq.heappush(self._timers, (*task.timer, task))
        if task.has_work():
            self.wake(task)

    def _promote_due(self) -> None:
        now = self.clock.now()
        while self._timers and self._timers[0][0] <= now:
            due, sequence, task = heapq.heappop(self._timers)
            if task.timer == (due, sequence):
                self.wake(task)


class RecordingHandler(HandlerConsumer[T], Generic[T]):
    """Keeps the batches it gets and counts its idle calls; optionally raises."""

    def __init__(self, fail: BaseException | None = None) -> None:
        self.batches: list[list[T]] = []
        self.idle_calls = 0
        self.fail = fail

    @property
    def items(self) -> list[T]:
        """Everything it got, in order."""
        return [item for batch in self.batches for item in batch]

    def consume(self, batch: list[T]) -> None:
        """Keep *batch*."""
        self.batches.append(batch)
        if self.fail is not None:
            raise self.fail

    def on_idle(self) -> None:
        """Count the call."""
        self.idle_calls += 1


def eventually(
    condition: Callable[[], Any], timeout: float = 30.0, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Wait in real time until *condition* holds; for tests in which a thread is the subject."""
    deadline = clock.now() + timeout
    pause = threading.Event()
    while not condition():
        if clock.now() > deadline:
            msg = f"not true within {timeout} s: {condition!r}"
            raise AssertionError(msg)
        pause.wait(0.001)
