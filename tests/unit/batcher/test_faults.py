"""Processors that fail, and callbacks that raise."""

from typing import Any

import pytest

from penstock.batcher import (
    Abandonment,
    BatchFault,
    CompleteResult,
    EnqueueResult,
    ProcessResult,
)
from penstock.errors import BatcherStateError
from tests.unit.batcher.rig import ABANDONED, ERROR, OK, Rig, events, faulted, opened


@pytest.mark.srs("42_076", "42_077")
def test_a_processor_that_is_not_open_leaves_its_items_abandoned() -> None:
    """With no ll_result: nothing was done with them."""
    rig = faulted(ProcessResult.NOT_OPEN)
    assert rig.outcomes == [("bad", ABANDONED, None)]
    assert rig.batcher.stats().not_sent == 1


@pytest.mark.srs("42_079")
@pytest.mark.parametrize("answer", [ProcessResult.ERROR, ProcessResult.INVALID_ARGS, None, "OK"])
def test_a_processor_that_fails_leaves_its_items_in_error(answer: Any) -> None:
    """Whatever else it returns, with no ll_result; forgetting to return is failing too."""
    rig = faulted(answer)
    assert rig.outcomes == [("bad", ERROR, None)]
    assert rig.faults[0].result is answer


@pytest.mark.srs("42_110", "45_001", "45_002", "45_003", "45_004", "45_005")
@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), SystemExit(3)])
def test_a_processor_that_raises_fails_its_batch(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is each item's ll_result, and the worker's thread survives it."""
    rig = faulted(error)
    assert rig.outcomes == [("bad", ERROR, error)]
    assert rig.faults == [
        BatchFault(batcher="rig", batch_id=1, items=1, result=ProcessResult.ERROR, error=error)
    ]
    assert events(caplog) == ["batcher.batch_failed"]


@pytest.mark.srs("42_058", "42_084", "42_105", "42_109", "45_009", "42_083")
def test_a_fault_stops_the_batcher() -> None:
    """Nothing more is sent or accepted; the user is told once; what waits, waits."""
    rig = opened(max_batch_size=1, max_pending_batches=9)
    rig.answer = ProcessResult.ERROR
    rig.enqueue("a", "b", "c")
    rig.run()
    assert rig.sent == [["a"]]
    assert len(rig.faults) == 1
    assert rig.batcher.enqueue("d", 1, rig.completed) is EnqueueResult.INVALID_STATE
    assert rig.batcher.stats().queued == 2
    assert "opened, faulted" in repr(rig.batcher)


@pytest.mark.srs("45_008", "42_081", "42_082")
def test_a_failed_batch_is_neither_staged_nor_pending() -> None:
    """So a close finds nothing of it to wait for, and nothing to abandon."""
    rig = faulted()
    stats = rig.batcher.stats()
    assert (stats.queued, stats.queued_size, stats.pending_batches) == (0, 0, 0)
    report = rig.batcher.close(60.0)
    assert (report.elapsed, report.not_sent) == (0.0, ())
    assert len(rig.outcomes) == 1


def test_the_fault_is_set_before_anyone_is_told() -> None:
    """An item that is brought again by its own callback is refused, not accepted and abandoned."""
    rig = opened()
    retried: list[EnqueueResult] = []
    rig.on_outcome = lambda item: retried.append(rig.batcher.enqueue(item, 1, rig.completed))
    rig.answer = ProcessResult.ERROR
    rig.enqueue("a")
    rig.run()
    assert retried == [EnqueueResult.INVALID_STATE]


def test_the_user_is_told_after_the_items() -> None:
    """When on_batch_faulted is called, the batch has ended."""
    rig = opened()
    rig.on_fault = lambda: rig.outcomes.append(("told", OK, rig.batcher.stats().pending_batches))
    rig.answer = ProcessResult.ERROR
    rig.enqueue("a")
    rig.run()
    assert rig.outcomes == [("a", ERROR, None), ("told", OK, 0)]


def test_batches_in_flight_keep_their_own_result_after_a_fault() -> None:
    """A fault is about what comes next."""
    rig = opened(max_batch_size=1, max_pending_batches=2)
    rig.enqueue("a")
    rig.run()
    rig.answer = ProcessResult.ERROR
    rig.enqueue("b")
    rig.run()
    rig.complete(0, OK, "late but fine")
    assert rig.outcomes == [("b", ERROR, None), ("a", OK, "late but fine")]


def test_an_asynchronous_error_does_not_fault() -> None:
    """By default a batch that fails in the processor's own time is that batch's business."""
    rig = opened(max_batch_size=1)
    rig.enqueue("a", "b")
    rig.run()
    rig.complete(result=ERROR)
    assert rig.faults == []
    assert rig.sent == [["a"], ["b"]]


@pytest.mark.parametrize("result", [ERROR, ABANDONED])
def test_an_asynchronous_error_faults_if_asked_to(result: CompleteResult) -> None:
    """Anything but OK; the user is told once, however many batches fail."""
    rig = opened(max_batch_size=1, max_pending_batches=2, on_async_error="fault")
    rig.enqueue("a", "b", "c")
    rig.run()
    error = ValueError("late")
    rig.complete(1, result, error)
    rig.complete(0, ERROR)
    (fault,) = rig.faults
    assert (fault.batch_id, fault.result, fault.error) == (2, result, error)
    assert len(rig.sent) == 2
    assert rig.batcher.is_faulted


def test_items_that_fail_alone_do_not_fault() -> None:
    """Values for each item are an answer, also if some of them are errors."""
    rig = opened(on_async_error="fault")
    rig.enqueue("a", "b")
    rig.run()
    rig.completions[0].each([1, ValueError("b")])
    assert not rig.batcher.is_faulted


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_a_callback_that_raises_harms_no_other_item(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of its batch completes, and so do later batches; it is logged and counted."""
    rig = opened(max_batch_size=3)

    def fail(item: Any) -> None:
        if item == "b":
            raise error

    rig.on_outcome = fail
    rig.enqueue("a", "b", "c")
    rig.run()
    rig.complete()
    rig.enqueue("d")
    rig.run()
    rig.complete()
    assert [item for item, _, _ in rig.outcomes] == ["a", "b", "c", "d"]
    assert rig.batcher.stats().callback_errors == 1
    assert events(caplog) == ["batcher.callback_failed"]


def test_a_fault_callback_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted like the others, and changes nothing."""
    rig = opened()
    rig.on_fault = lambda: 1 / 0
    rig.answer = ProcessResult.ERROR
    rig.enqueue("a")
    rig.run()
    assert events(caplog) == ["batcher.batch_failed", "batcher.fault_callback_failed"]
    assert rig.batcher.stats().callback_errors == 1


# -- recovery -------------------------------------------------------------------------------


def test_a_reset_abandons_what_was_not_sent_and_opens_again() -> None:
    """Everything the fault left behind completes before anything new is accepted."""
    rig = faulted(max_batch_size=1, min_wait_time=1.0)
    rig.batcher.reset()
    rig.outcomes.clear()
    rig.enqueue("a", "b", "c")
    rig.run()
    rig.answer = ProcessResult.OK
    rig.on_outcome = lambda _item: states.append(rig.batcher.stats().state)
    states: list[str] = []
    report = rig.batcher.reset()
    assert report.not_sent == ("b", "c")
    assert report.finished
    assert states == ["resetting", "resetting"]
    assert rig.outcomes == [("a", ERROR, None), ("b", ABANDONED, None), ("c", ABANDONED, None)]
    rig.enqueue("d")
    rig.run()
    assert rig.sent[-1] == ["d"]


def test_a_reset_opens_a_batcher_that_was_closed_after_a_fault() -> None:
    """open() alone is refused: a fault is not forgotten by accident."""
    rig = faulted()
    rig.batcher.close()
    with pytest.raises(BatcherStateError, match="'rig' is created, faulted"):
        rig.batcher.open()
    report = rig.batcher.reset()
    assert report.complete
    assert rig.batcher.is_open


def test_a_reset_without_a_fault_is_refused() -> None:
    """There is nothing to recover from, and nothing must be abandoned by mistake."""
    for rig in (Rig(), opened()):
        with pytest.raises(BatcherStateError, match=r"reset\(\) needs a faulted batcher"):
            rig.batcher.reset()


def test_a_reset_inside_the_fault_callback_works() -> None:
    """The most natural place for it: nothing waits for itself."""
    rig = opened(max_batch_size=1)
    rig.on_fault = rig.batcher.reset
    rig.answer = ProcessResult.ERROR
    rig.enqueue("a", "b")
    rig.run()
    rig.answer = ProcessResult.OK
    assert rig.outcomes == [("a", ERROR, None), ("b", ABANDONED, None)]
    rig.enqueue("c")
    rig.run()
    assert rig.sent == [["a"], ["c"]]


def test_a_close_inside_a_reset_wins() -> None:
    """A callback of the reset closes: the reset says so, and the batcher is closed."""
    rig = faulted(max_batch_size=1)
    rig.batcher.reset()
    rig.enqueue("a", "b")
    rig.run()
    rig.on_outcome = lambda _item: rig.batcher.close()
    with pytest.raises(BatcherStateError, match="is created, faulted"):
        rig.batcher.reset()
    assert rig.batcher.stats().state == "created"


def test_abandonment_is_told_apart_by_the_ll_result() -> None:
    """None means that the processor never had the item."""
    assert Abandonment.of(None) is Abandonment.NOT_SENT
    assert Abandonment.of(Abandonment.INDETERMINATE) is Abandonment.INDETERMINATE
    assert Abandonment.of("the processor's own word") is Abandonment.INDETERMINATE
