"""A close against everything that may go on at the same time."""

import threading
from typing import Any

import pytest

from penstock.batcher import (
    Abandonment,
    Batcher,
    BatchSettings,
    Completion,
    DrainReport,
    EnqueueResult,
    ProcessResult,
)
from penstock.scheduling import ThreadScheduler
from penstock.testing import FakeClock, StepExecutor, eventually
from tests.interleaving.batcher.gates import Gate, GatedClock, stop_before
from tests.unit.batcher.rig import ABANDONED, ERROR, OK, PATIENCE, Rig, in_background, opened


def test_an_item_that_meets_a_close_is_refused_or_abandoned() -> None:
    """A producer held before it is accepted comes too late; one just accepted is abandoned."""
    clock = GatedClock()
    rig = opened(StepExecutor(clock), min_batch_size=9, max_batch_size=9, min_wait_time=60.0)
    rig.enqueue("early")
    clock.gate.arm()
    late = in_background(lambda: rig.batcher.enqueue("late", 1, rig.completed, "late"))
    clock.gate.await_arrival()
    report = rig.batcher.close()
    clock.gate.open()
    assert late.result(PATIENCE) is EnqueueResult.INVALID_STATE
    assert report.not_sent == ("early",)
    assert rig.outcomes == [("early", ABANDONED, None)]
    assert rig.batcher.stats().queued == 0


def test_a_completion_that_meets_the_end_of_a_close_counts_once() -> None:
    """The close gives the batch up while the processor ends it: whoever was first is heard."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    gate = Gate()
    rig.on_outcome = gate.pass_through
    closing = in_background(lambda: rig.batcher.close(0.0))
    gate.await_arrival()  # the close has given up, and is telling so
    completing = in_background(lambda: rig.completions[0](OK, "too late"))
    assert completing.result(PATIENCE) is False
    gate.open()
    assert closing.result(PATIENCE).indeterminate == ("a",)
    assert rig.outcomes == [("a", ABANDONED, Abandonment.INDETERMINATE)]


def test_a_close_does_not_give_up_what_is_being_completed() -> None:
    """The processor was first, and stands in a callback when the close's time is over."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    gate = Gate()
    rig.on_outcome = gate.pass_through
    completing = in_background(lambda: rig.completions[0](OK, "in time"))
    gate.await_arrival()
    report = rig.batcher.close(0.0)
    assert (report.indeterminate, report.in_callbacks, report.finished) == ((), 1, False)
    assert rig.batcher.stats().state == "closing"
    gate.open()
    assert completing.result(PATIENCE)
    assert rig.outcomes == [("a", OK, "in time")]
    assert rig.batcher.stats().state == "created"  # it ended by itself


@pytest.mark.parametrize("callback", ["on_outcome", "on_fault"])
def test_no_callback_runs_after_close_returned(callback: str) -> None:
    """A close that finishes has waited for whoever was in a callback."""
    rig = opened(max_batch_size=1)
    rig.enqueue("a")
    gate = Gate()
    setattr(rig, callback, gate.pass_through)
    rig.answer = ProcessResult.ERROR
    running = in_background(rig.run)
    gate.await_arrival()
    closing = in_background(lambda: rig.batcher.close(60.0))
    rig.clock.await_sleepers(1)
    assert not closing.done()
    gate.open()
    running.result(PATIENCE)
    assert closing.result(PATIENCE).finished


def test_a_worker_that_wakes_while_the_batcher_closes_sends_nothing() -> None:
    """Its timer goes off while the close waits for another batch: the item is abandoned."""
    rig = opened(min_batch_size=2, max_batch_size=2, min_wait_time=1.0, max_pending_batches=2)
    rig.enqueue("a", "b", "c")
    rig.run()
    closing = in_background(lambda: rig.batcher.close(60.0))
    rig.clock.await_sleepers(1)
    rig.steps.advance(1.0)
    assert rig.sent == [["a", "b"]]
    rig.complete()
    assert closing.result(PATIENCE).not_sent == ("c",)
    assert rig.outcomes == [("a", OK, None), ("b", OK, None), ("c", ABANDONED, None)]


def test_a_worker_that_wakes_after_the_close_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its timer has gone off, and the close is faster: the item is abandoned, once."""
    rig = opened(min_batch_size=9, max_batch_size=9, min_wait_time=1.0)
    rig.enqueue("a")
    rig.run()
    gate = stop_before(monkeypatch, rig.batcher._core, "turn")
    rig.clock.advance(1.0)
    running = in_background(rig.run)
    gate.await_arrival()
    assert rig.batcher.close().not_sent == ("a",)
    gate.open()
    running.result(PATIENCE)
    assert rig.sent == []
    assert rig.outcomes == [("a", ABANDONED, None)]


def test_a_worker_that_wakes_after_another_opening_leaves_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two workers, one of each opening, never send at the same time."""
    rig = opened(max_batch_size=1, max_pending_batches=9)
    gate = stop_before(monkeypatch, rig.batcher._core, "turn")
    rig.enqueue("old")
    running = in_background(rig.run)
    gate.await_arrival()
    rig.batcher.close()
    rig.batcher.open()
    rig.enqueue("one", "two")
    inside = Gate()
    rig.on_send = inside.pass_through
    worker = rig.batcher._core.worker
    assert worker is not None
    sending = in_background(lambda: rig.steps.step(worker))
    inside.await_arrival()
    gate.open()
    running.result(PATIENCE)
    assert rig.sent == [["one"]]
    inside.open()
    sending.result(PATIENCE)


def test_a_second_close_waits_for_the_first() -> None:
    """However short its own time: what the first waits for is not given up."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    first = in_background(lambda: rig.batcher.close(60.0))
    rig.clock.await_sleepers(1)
    hasty = rig.batcher.close(0.0)
    assert (hasty.finished, hasty.indeterminate) == (False, ())
    second = in_background(lambda: rig.batcher.close(60.0, drain=True))
    rig.clock.await_sleepers(2)
    rig.completions[0](OK, None)
    assert first.result(PATIENCE).complete
    assert second.result(PATIENCE).complete
    assert rig.outcomes == [("a", OK, None)]


def test_a_close_during_a_drain_waits_for_it() -> None:
    """The second neither stops the sending nor leads beside the first."""
    rig = opened(max_batch_size=1)
    rig.enqueue("a", "b")
    draining = in_background(lambda: rig.batcher.close(60.0, drain=True))
    rig.clock.await_sleepers(1)
    hasty = rig.batcher.close(0.0)
    assert (hasty.finished, hasty.not_sent) == (False, ())
    rig.complete()
    eventually(lambda: rig.steps.run_until_idle() == 0 and len(rig.sent) == 2)
    rig.complete()
    assert draining.result(PATIENCE).complete
    assert [item for item, _, _ in rig.outcomes] == ["a", "b"]


# -- inside callbacks -------------------------------------------------------------------------


class Real:
    """A batcher on a real thread whose user's functions close it."""

    def __init__(self, where: str, answer: ProcessResult) -> None:
        self.where = where
        self.answer = answer
        self.reports: list[DrainReport] = []
        self.outcomes: list[Any] = []
        self.clock = FakeClock()
        self.completions: list[Completion] = []
        self.batcher: Batcher[str] = Batcher(
            self.process,
            BatchSettings(max_batch_size=1, max_pending_batches=2, close_timeout=60.0),
            on_batch_faulted=lambda _fault: self.close_if("fault"),
            clock=self.clock,
            name="real",
        )

    def process(self, items: list[str], complete: Completion) -> ProcessResult:
        """Complete at once, unless somebody else is to."""
        self.completions.append(complete)
        self.close_if("process")
        if self.where in ("process", "item", "done"):
            complete(OK, items)
        return self.answer

    def completed(self, context: object, result: object, _ll_result: object) -> None:
        """Keep the outcome."""
        self.outcomes.append((context, result))
        self.close_if("item" if result is OK else "abandoned")

    def close_if(self, where: str) -> None:
        """Close, if this is the place for it."""
        if where == self.where:
            self.reports.append(self.batcher.close())


@pytest.mark.parametrize("where", ["process", "item", "done", "fault", "abandoned"])
def test_close_inside_a_callback_does_not_wait(where: str) -> None:
    """In each of them it returns, everything completes, and the close ends by itself."""
    fails = where == "fault"
    real = Real(where, ProcessResult.ERROR if fails else ProcessResult.OK)
    real.batcher.open()
    if where == "done":
        future = real.batcher.submit("f")
        future.add_done_callback(lambda _f: real.close_if("done"))
    else:
        real.batcher.enqueue("a", 1, real.completed, "a")
    if where == "abandoned":
        eventually(lambda: len(real.completions) == 1)
        real.batcher.enqueue("b", 1, real.completed, "b")
        eventually(lambda: len(real.completions) == 2)
        real.batcher.enqueue("c", 1, real.completed, "c")
        closing = in_background(lambda: real.batcher.close(0.0))
        assert closing.result(PATIENCE).finished
        assert len(real.outcomes) == 3
    eventually(lambda: real.batcher.stats().state == "created", PATIENCE)
    assert real.reports
    assert not any(report.finished for report in real.reports)
    stats = real.batcher.stats()
    assert stats.completed == stats.accepted
    eventually(lambda: not any(t.name == "penstock-real" for t in threading.enumerate()))


def test_a_close_inside_a_callback_ends_by_itself() -> None:
    """What was not sent is abandoned there and then; a batch in flight keeps its own result."""
    rig = opened(max_batch_size=1, max_pending_batches=2)
    rig.enqueue("a", "b", "c")
    rig.run()
    rig.on_outcome = lambda item: reports.append(rig.batcher.close()) if item == "a" else None
    reports: list[DrainReport] = []
    rig.complete(0)
    assert (reports[0].not_sent, reports[0].finished) == (("c",), False)
    assert rig.batcher.stats().state == "closing"
    rig.complete(1, ERROR, "its own")
    assert rig.batcher.stats().state == "created"
    assert rig.outcomes == [("a", OK, None), ("c", ABANDONED, None), ("b", ERROR, "its own")]


def test_a_close_from_outside_takes_over_from_one_inside() -> None:
    """Who closed inside does not wait, so somebody else may give up what never ends."""
    rig = opened(max_batch_size=1, max_pending_batches=2)
    rig.enqueue("a", "b")
    rig.run()
    rig.on_outcome = lambda item: reports.append(rig.batcher.close()) if item == "a" else None
    reports: list[DrainReport] = []
    rig.complete(0)
    assert not reports[0].finished
    report = rig.batcher.close(0.0)
    assert (report.indeterminate, report.finished) == (("b",), True)


def test_a_processor_that_never_returns_does_not_hold_up_a_close() -> None:
    """All items complete; the thread is left behind, and ends the close when it returns."""
    gate = Gate()
    rig = Rig(max_batch_size=1)
    rig.batcher._factory = ThreadScheduler
    rig.on_send = gate.pass_through
    rig.batcher.open()
    rig.enqueue("a", "b")
    gate.await_arrival()
    report = rig.batcher.close(0.0)
    assert (report.indeterminate, report.not_sent) == (("a",), ("b",))
    assert (report.finished, report.in_callbacks) == (False, 1)
    assert len(rig.outcomes) == 2
    with pytest.raises(RuntimeError):
        rig.batcher.open()
    gate.open()
    eventually(lambda: rig.batcher.stats().state == "created", PATIENCE)
    assert len(rig.outcomes) == 2
    rig.batcher.open()
    rig.batcher.close()
