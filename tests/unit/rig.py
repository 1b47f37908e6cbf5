"""What most unit tests of a queue need: one on a clock that stands still, drained by steps."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from penstock import BatchQueue, BatchQueueConfig, BatchQueueManager, ThreadPolicy
from penstock.batchqueue.selectors import type_hash
from penstock.testing import StepExecutor

R = TypeVar("R")

PATIENCE = 60.0
"""Real seconds after which a thread that should have done something counts as stuck."""


class Unhelpful(StepExecutor):
    """Steps that a shutdown cannot run by itself: as if every thread were busy elsewhere."""

    def help(self, done: Callable[[], bool]) -> bool:
        """Leave everything to the test."""
        del done
        return False


class Rig:
    """A manager whose queues run only when the test says so."""

    def __init__(self, steps: StepExecutor | None = None) -> None:
        self.steps = steps or StepExecutor()
        self.clock = self.steps.clock
        self.manager = BatchQueueManager(clock=self.clock, factory=self.steps)

    def queue(self, name: str = "q", /, **settings: object) -> BatchQueue[Any]:
        """Make a queue, with one thread of its own unless *settings* say otherwise."""
        if "shared_scheduler" not in settings:
            settings.setdefault("threads", ThreadPolicy.fixed(1))
        return self.manager.create(name, BatchQueueConfig(**settings))  # type: ignore[arg-type]

    def drain(self) -> None:
        """Run all that can run without moving the clock."""
        self.steps.run_until_idle()


def kinds(count: int, fits: Callable[[int], bool] = lambda _hash: True) -> list[type]:
    """Return *count* new types, the hash of each of which *fits*."""
    found: list[type] = []
    number = 0
    while len(found) < count:
        kind = type(f"Kind{number}", (), {})
        number += 1
        if fits(type_hash(kind)):
            found.append(kind)
    return found


def in_background(call: Callable[[], R]) -> Future[R]:
    """Run *call* on a thread of its own; the future has what it returned or raised."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again by result()
            future.set_exception(error)

    threading.Thread(target=run, name="in-background", daemon=True).start()
    return future


def await_event(event: threading.Event) -> None:
    """Wait for another thread to set *event*, and fail if it does not."""
    assert event.wait(PATIENCE), "the other thread did not get there"


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the event names of what was logged: the part before the colon."""
    return [record.getMessage().partition(":")[0] for record in caplog.records]
