"""Items, faults, completions and cancellations that meet."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.batcher import EnqueueResult, ProcessResult
from penstock.batcher import _futures as futures_module
from penstock.batcher._core import Core
from penstock.batcher._futures import ItemFuture
from penstock.scheduling import ThreadScheduler
from penstock.testing import StepExecutor, eventually
from tests.interleaving.batcher.gates import Gate, GatedClock, stop_after, stop_before
from tests.unit.batcher.rig import ABANDONED, ERROR, OK, PATIENCE, Rig, in_background, opened


def threaded(**settings: Any) -> Rig:
    """Return a rig whose batcher has a real thread."""
    rig = Rig(**settings)
    rig.batcher._factory = ThreadScheduler
    return rig


def test_an_item_that_meets_a_fault_is_refused() -> None:
    """A producer held before it is accepted finds the batcher faulted, and keeps its item."""
    clock = GatedClock()
    rig = opened(StepExecutor(clock), max_batch_size=1)
    rig.answer = ProcessResult.ERROR
    rig.enqueue("bad", "queued")
    clock.gate.arm()
    late = in_background(lambda: rig.batcher.enqueue("late", 1, rig.completed, "late"))
    clock.gate.await_arrival()
    rig.run()
    clock.gate.open()
    assert late.result(PATIENCE) is EnqueueResult.INVALID_STATE
    assert rig.batcher.close().not_sent == ("queued",)
    assert rig.outcomes == [("bad", ERROR, None), ("queued", ABANDONED, None)]


def test_an_item_that_comes_while_the_worker_parks_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker has found nothing, and sleeps only after the item has come."""
    rig = threaded()
    gate = stop_after(monkeypatch, Core, "_decide")
    found = rig.batcher._core
    rig.batcher.open()
    rig.on_send = lambda _items, complete: complete(OK, None)
    rig.enqueue("first")
    gate.await_arrival()  # it holds the lock, and is about to send
    gate.open()
    eventually(lambda: len(rig.outcomes) == 1)
    parking = stop_after(monkeypatch, found, "turn")
    rig.enqueue("second")
    parking.await_arrival()
    eventually(lambda: len(rig.outcomes) == 2)
    empty = stop_after(monkeypatch, found, "turn")
    parking.open()
    empty.await_arrival()  # found nothing, and is on its way to sleep
    rig.enqueue("third")
    empty.open()
    eventually(lambda: len(rig.outcomes) == 3, PATIENCE)
    rig.batcher.close()


def test_a_completion_that_meets_the_limit_lets_the_worker_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker has found the limit reached, and sleeps only after the batch has ended."""
    rig = threaded(max_batch_size=1)
    rig.batcher.open()
    sent = stop_after(monkeypatch, rig.batcher._core, "turn")
    rig.enqueue("a")
    sent.await_arrival()
    held = stop_after(monkeypatch, rig.batcher._core, "turn")
    sent.open()
    held.await_arrival()
    rig.enqueue("b")
    rig.completions[0](OK, None)
    held.open()
    eventually(lambda: len(rig.sent) == 2, PATIENCE)
    rig.completions[1](OK, None)
    rig.batcher.close()


def test_two_completions_at_once_count_once() -> None:
    """The second comes while the first is telling the items."""
    rig = opened()
    rig.enqueue("a", "b")
    rig.run()
    gate = Gate()
    rig.on_outcome = gate.pass_through
    first = in_background(lambda: rig.completions[0](OK, "first"))
    gate.await_arrival()
    second = in_background(lambda: rig.completions[0](ERROR, "second"))
    assert second.result(PATIENCE) is False
    gate.open()
    assert first.result(PATIENCE) is True
    assert rig.outcomes == [("a", OK, "first"), ("b", OK, "first")]
    assert rig.batcher.stats().stray_completions == 1


@pytest.mark.parametrize("answer", [ProcessResult.OK, ProcessResult.ERROR])
def test_a_completion_during_process_batch_counts_once(answer: ProcessResult) -> None:
    """It comes from another thread before the processor has returned, whatever it returns."""
    rig = opened(max_batch_size=1)
    rig.answer = answer
    gate = Gate()
    rig.on_send = gate.pass_through
    rig.enqueue("a", "b")
    sending = in_background(rig.run)
    gate.await_arrival()
    assert rig.completions[0](OK, "early")
    assert rig.outcomes == [("a", OK, "early")]
    assert rig.sent == [["a"]]  # the worker is still in process_batch
    rig.on_send = None
    gate.open()
    sending.result(PATIENCE)
    assert rig.outcomes == [("a", OK, "early")]
    assert rig.sent == ([["a"], ["b"]] if answer is ProcessResult.OK else [["a"]])


def test_a_failure_that_meets_a_completion_counts_once() -> None:
    """The processor fails while another thread is telling the items that all went well."""
    rig = opened()
    rig.answer = ProcessResult.ERROR
    sent, told = Gate(), Gate()
    rig.on_send = sent.pass_through
    rig.on_outcome = told.pass_through
    rig.enqueue("a", "b")
    sending = in_background(rig.run)
    sent.await_arrival()
    completing = in_background(lambda: rig.completions[0](OK, "early"))
    told.await_arrival()
    sent.open()
    sending.result(PATIENCE)
    told.open()
    assert completing.result(PATIENCE)
    assert rig.outcomes == [("a", OK, "early"), ("b", OK, "early")]
    assert rig.batcher.is_faulted


def test_the_processor_is_never_entered_twice() -> None:
    """Not by a completion, a flush or another producer while a batch is being handed over."""
    rig = threaded(max_batch_size=1, max_pending_batches=9)
    inside: list[int] = []
    most: list[int] = []
    gate = Gate()

    def enter(*_: object) -> None:
        inside.append(1)
        most.append(len(inside))
        gate.pass_through()
        inside.pop()

    rig.on_send = enter
    rig.batcher.open()
    rig.enqueue("a")
    gate.await_arrival()
    rig.enqueue("b", "c")
    assert not rig.batcher.flush(0)
    rig.completions[0](OK, None)
    gate.open()
    eventually(lambda: len(rig.sent) == 3)
    assert max(most) == 1
    rig.batcher.close(0.0)


# -- cancellations ----------------------------------------------------------------------------


def test_a_cancel_that_meets_the_claim_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch has been taken: the item goes to the processor, and cancel() says no."""
    rig = opened()
    future = rig.batcher.submit("a")
    gate = stop_before(monkeypatch, rig.batcher._core, "_send")
    sending = in_background(rig.run)
    gate.await_arrival()
    assert not future.cancel()
    gate.open()
    sending.result(PATIENCE)
    rig.complete(ll_result="done")
    assert rig.sent == [["a"]]
    assert future.result(0) == "done"


def test_a_cancel_under_way_keeps_the_item_from_being_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has withdrawn the item, and is not done with the rest: the batch goes without it."""
    rig = opened()
    future = rig.batcher.submit("a")
    other = rig.batcher.submit("b")
    gate = stop_before(monkeypatch, Future, "cancel")
    cancelling = in_background(future.cancel)
    gate.await_arrival()
    rig.run()
    rig.complete(ll_result="done")
    gate.open()
    assert cancelling.result(PATIENCE)
    assert rig.sent == [["b"]]
    assert other.result(0) == "done"
    assert future.cancelled()


class NotingLock:
    """A lock that knows when somebody had to wait for it."""

    def __init__(self) -> None:
        self.is_wanted = False
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_wanted = True
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Hesitant(ItemFuture):
    """A future at which whoever resolves it stops, having seen that nobody watches."""

    barrier: Gate

    @property
    def is_watched(self) -> bool:
        """Tell, then wait if it is the resolver who asks."""
        watched = "_condition" in self.__dict__
        if threading.current_thread().name == "resolver":
            self.barrier.pass_through()
        return watched

    @is_watched.setter
    def is_watched(self, value: bool) -> None:
        """Follow from what was made."""


def is_waiting(future: ItemFuture) -> bool:
    """Return whether a thread waits for the future's condition."""
    condition: Any = future.__dict__.get("_condition")
    return condition is not None and bool(condition._waiters)


@pytest.mark.parametrize("wait", ["result", "exception"])
def test_a_waiter_that_meets_the_result_is_not_left_waiting(
    monkeypatch: pytest.MonkeyPatch, wait: str
) -> None:
    """It begins to watch, or to stand at the gate, between the look for watchers and the result."""
    lock = NotingLock()
    monkeypatch.setattr(futures_module._shared, "lock", lock)
    future = Hesitant()
    future.barrier = Gate()
    resolver = threading.Thread(
        target=futures_module._resolve, args=([future], ["value"]), name="resolver"
    )
    resolver.start()
    future.barrier.await_arrival()
    waiting = in_background(getattr(future, wait))
    # It gets no further than the lock; without the lock it would come to wait, and for good.
    eventually(lambda: lock.is_wanted or is_waiting(future))
    future.barrier.open()
    resolver.join(PATIENCE)
    assert waiting.result(PATIENCE) == ("value" if wait == "result" else None)
