"""What most tests of a batcher need: one on a clock that stands still, run by steps."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from penstock.batcher import (
    Batcher,
    BatchFault,
    BatchSettings,
    CompleteResult,
    Completion,
    ProcessResult,
)
from penstock.testing import StepExecutor

R = TypeVar("R")

OK, ERROR, ABANDONED = CompleteResult.OK, CompleteResult.ERROR, CompleteResult.ABANDONED

PATIENCE = float(os.environ.get("PENSTOCK_TEST_PATIENCE", "60"))
"""Real seconds after which a thread that should have done something counts as stuck."""


class Unhelpful(StepExecutor):
    """Steps that a close or flush cannot run by itself: as if the thread were busy elsewhere."""

    def help(self, done: Callable[[], bool]) -> bool:
        """Leave everything to the test."""
        del done
        return False


_made: list["Rig"] = []


@pytest.fixture(autouse=True)
def no_rig_is_left_open() -> Iterator[None]:
    """Close what a test has left open, so that the end of the process finds nothing to drain."""
    _made.clear()
    yield
    for rig in _made:
        rig.on_outcome = rig.on_fault = None
        rig.batcher.close(0.0)
    _made.clear()


class Rig:
    """A batcher that runs when the test says so, its processor and its producer in one.

    It sends single items at once unless the settings say otherwise. The processor keeps what
    it gets; the test completes the batches. Outcomes are kept as (context, result, ll_result).
    """

    def __init__(self, steps: StepExecutor | None = None, **settings: Any) -> None:
        self.steps = steps or StepExecutor()
        self.clock = self.steps.clock
        self.sent: list[list[Any]] = []
        self.completions: list[Completion] = []
        self.outcomes: list[tuple[Any, CompleteResult, Any]] = []
        self.faults: list[BatchFault] = []
        self.answer: ProcessResult | BaseException = ProcessResult.OK
        self.on_send: Callable[[list[Any], Completion], object] | None = None
        self.on_outcome: Callable[[Any], object] | None = None
        self.on_fault: Callable[[], object] | None = None
        self.batcher: Batcher[Any] = Batcher(
            self.process_batch,
            BatchSettings(**settings),
            on_batch_faulted=self.faulted,
            on_item_complete=self.completed,
            name="rig",
            clock=self.clock,
            factory=self.steps,
        )
        _made.append(self)

    def process_batch(self, items: list[Any], complete: Completion) -> ProcessResult:
        """Keep the batch and answer as the test wants."""
        self.sent.append(items)
        self.completions.append(complete)
        if self.on_send is not None:
            self.on_send(items, complete)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def faulted(self, fault: BatchFault) -> None:
        """Keep the fault."""
        self.faults.append(fault)
        if self.on_fault is not None:
            self.on_fault()

    def completed(self, context: Any, result: CompleteResult, ll_result: Any) -> None:
        """Keep an outcome."""
        self.outcomes.append((context, result, ll_result))
        if self.on_outcome is not None:
            self.on_outcome(context)

    def enqueue(self, *items: Any, size: int = 1) -> None:
        """Bring items, each as its own context, and see them accepted."""
        for item in items:
            assert self.batcher.enqueue(item, size, self.completed, item).name == "OK"

    def run(self) -> None:
        """Run all that can run without moving the clock."""
        self.steps.run_until_idle()

    def complete(self, index: int = -1, result: CompleteResult = OK, ll_result: Any = None) -> bool:
        """Complete a batch that was sent, and run what follows."""
        done = self.completions[index](result, ll_result)
        self.run()
        return done


def opened(steps: StepExecutor | None = None, **settings: Any) -> Rig:
    """Return a rig whose batcher is open."""
    rig = Rig(steps, **settings)
    rig.batcher.open()
    return rig


def faulted(answer: ProcessResult | BaseException = ProcessResult.ERROR, **settings: Any) -> Rig:
    """Return a rig whose batcher has faulted on an item called "bad"."""
    rig = opened(**settings)
    rig.answer = answer
    rig.enqueue("bad")
    rig.batcher.flush(0)
    rig.run()
    assert rig.batcher.is_faulted
    return rig


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
