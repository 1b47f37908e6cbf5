"""What a second reader found besides: interrupts at bad moments, collectors, late failures."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.batcher import CompleteResult, ProcessResult, _core, batched
from penstock.batcher._core import Core
from penstock.batcher._futures import FUTURES, ItemFuture, _shared
from penstock.batcher._sinks import CALLBACKS, Outcome, settle
from penstock.batcher._worker import Worker
from penstock.errors import BatcherFullError, BatcherStateError, ConfigError
from penstock.testing import StepExecutor
from tests.unit.batcher.rig import ERROR, OK, PATIENCE, in_background, opened

# -- interrupts ---------------------------------------------------------------------------------


def interrupt(owner: object, name: str, call: Callable[[], object]) -> None:
    """Have *call* interrupted from the keyboard where it first calls ``owner.name``."""
    real = getattr(owner, name)
    left = [KeyboardInterrupt]

    def once(*args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop()
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, once)
        with pytest.raises(KeyboardInterrupt):
            call()
    assert not left


def test_an_interrupt_before_the_wake_up_does_not_lose_it() -> None:
    """The item was accepted; so it is sent, and so are those after it."""
    rig = opened()
    interrupt(Core, "rouse", lambda: rig.enqueue("a"))
    rig.run()
    rig.enqueue("b")
    rig.complete()
    assert rig.sent == [["a"], ["b"]]


def test_an_interrupt_before_the_wake_up_for_many_does_not_lose_it() -> None:
    """As for one."""
    rig = opened()
    interrupt(Core, "rouse", lambda: rig.batcher.consume(["a", "b"]))
    rig.run()
    assert rig.sent == [["a", "b"]]


def test_an_interrupt_while_it_closes_in_between_wakes_nobody() -> None:
    """There is no worker any more that could be woken."""
    rig = opened()
    rig.batcher.close()
    rig.batcher._core._wake_again()
    assert rig.steps.ready() == ()


def test_an_interrupted_completion_still_ends_the_batch() -> None:
    """Nobody else can: a second completion is a stray, and a close leaves it alone."""
    rig = opened(min_batch_size=2, max_batch_size=2, min_wait_time=60.0)
    rig.enqueue("a")
    future = rig.batcher.submit("b")
    rig.run()
    interrupt(_core, "settle", lambda: rig.completions[0](OK, "said"))
    assert rig.outcomes == [("a", OK, "said")]
    assert future.result(0) == "said"
    assert rig.batcher.close(0.0).finished


def test_who_was_told_before_an_interrupt_is_not_told_twice() -> None:
    """The second round leaves out those with whom the first had begun."""
    told: list[object] = []
    future = ItemFuture()
    entries: list[Any] = [
        ("a", 1, 0.0, CALLBACKS, (lambda *_: told.append("a"), None)),
        ("b", 1, 0.0, FUTURES, future),
    ]
    assert settle(entries, Outcome(OK, "said"), [CALLBACKS]) == 0
    assert told == []
    assert future.result(0) == "said"


# -- what hardly ever happens ---------------------------------------------------------------------


def test_a_batch_that_fails_after_another_has_faulted_is_reported_once() -> None:
    """The fault is the first one's; the second's items fail all the same."""
    rig = opened(max_pending_batches=2, on_async_error="fault")
    rig.enqueue("a")
    rig.run()
    rig.answer = ProcessResult.ERROR
    rig.on_send = lambda _items, _complete: rig.completions[0](ERROR, None)
    rig.enqueue("b")
    rig.run()
    assert [context for context, result, _ in rig.outcomes if result is ERROR] == ["a", "b"]
    assert len(rig.faults) == 1


def test_a_fork_in_a_callback_leaves_the_child_nothing_to_count() -> None:
    """The batch was the parent's."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    rig.on_outcome = lambda _context: rig.batcher.renew_after_fork()
    rig.completions[0](OK, None)
    rig.on_outcome = None
    assert rig.batcher.stats().pending_batches == 0


def test_there_may_be_nobody_to_help() -> None:
    """A batcher that is not open, or whose worker has been let go, runs nothing here."""
    rig = opened()
    worker = rig.batcher._core.worker
    assert worker is not None
    rig.batcher._release(worker, 0.0)
    rig.batcher._closing.help(lambda: False)
    rig.batcher._release(worker, 0.0)  # a second time there is nothing to let go
    rig.batcher._core.worker = None
    rig.batcher._closing.help(lambda: False)
    rig.batcher._core.worker = worker


def test_two_who_look_at_a_future_at_once_find_the_same() -> None:
    """Who comes second finds what the first has made."""
    future = ItemFuture()
    made = future._condition
    assert future.__getattr__("_condition") is made


# -- the collector --------------------------------------------------------------------------------


class Withdrawing(ItemFuture):
    """A future; looking at its stage runs a destructor that cancels another one."""

    other: ItemFuture | None = None

    def __getattribute__(self, name: str) -> Any:
        if name == "stage":
            other, self.other = self.other, None
            if other is not None:
                other.cancel()
        return super().__getattribute__(name)


def test_a_destructor_may_cancel_a_future_while_others_are_claimed() -> None:
    """The collector runs it wherever it likes: also on the thread that holds the lock."""
    futures = [ItemFuture(), Withdrawing(), ItemFuture()]
    futures[1].other = futures[2]  # type: ignore[attr-defined]
    entries: list[Any] = [(index, 1, 0.0, FUTURES, future) for index, future in enumerate(futures)]
    claiming = in_background(lambda: FUTURES.claim(entries))
    assert [entry[0] for entry in claiming.result(PATIENCE)] == [0, 1]
    assert futures[2].cancelled()


def test_the_lock_of_all_futures_can_be_taken_again() -> None:
    """By the thread that has it."""

    def cancel() -> bool:
        with _shared.lock:
            return ItemFuture().cancel()

    assert in_background(cancel).result(PATIENCE)


# -- the log --------------------------------------------------------------------------------------


def test_a_full_batcher_wakes_its_worker_outside_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that cannot be started is logged, and who handles that may bring items."""
    rig = opened(capacity=2, enqueue_timeout=0.0, min_batch_size=2, min_wait_time=60.0)
    rig.enqueue("a", "b")
    locked = []

    def wake(_: Worker) -> None:
        locked.append(rig.batcher._core.lock.locked())

    monkeypatch.setattr(Worker, "wake", wake)
    assert rig.batcher.enqueue("c", 1, rig.completed).name == "FULL"
    monkeypatch.undo()
    assert locked == [False]


# -- @batched -------------------------------------------------------------------------------------


def double(items: list[int]) -> list[int]:
    """Return the double of each."""
    return [2 * item for item in items]


def test_a_batched_function_is_no_method() -> None:
    """It would get no instance; said when the class is made, not when it is called."""
    # Python before 3.12 wraps what __set_name__ raises.
    with pytest.raises((ConfigError, RuntimeError)) as caught:
        type("Model", (), {"predict": batched()(double)})
    error = caught.value if isinstance(caught.value, ConfigError) else caught.value.__cause__
    assert isinstance(error, ConfigError)
    assert "Model.predict" in str(error)


def test_a_batched_function_may_be_a_static_method() -> None:
    """As the error says."""
    steps = StepExecutor()
    function = batched(max_batch_size=1, clock=steps.clock, factory=steps)(double)
    model: Any = type("Model", (), {"predict": staticmethod(function)})
    future = model().predict.submit(3)
    steps.run_until_idle()
    assert future.result(0) == 6
    function.close()


def test_a_call_during_a_close_says_so() -> None:
    """It cannot start again what is still ending."""
    inside, go_on = threading.Event(), threading.Event()

    @batched(max_batch_size=1)
    def function(items: list[int]) -> list[int]:
        inside.set()
        go_on.wait(PATIENCE)
        return items

    first = function.submit(1)
    assert inside.wait(PATIENCE)
    assert not function.close(0.0).finished
    with pytest.raises(BatcherStateError, match="is being closed"):
        function.submit(2)
    go_on.set()
    assert first.exception(PATIENCE) is not None


# -- late failures --------------------------------------------------------------------------------


def test_a_failure_from_before_a_reset_does_not_fault_again() -> None:
    """What was accepted since has nothing to do with it."""
    rig = opened(max_pending_batches=3, max_batch_size=1, on_async_error="fault")
    rig.enqueue("a", "b")
    rig.run()
    rig.complete(0, ERROR)
    rig.batcher.reset()
    rig.enqueue("new")
    rig.complete(1, ERROR)
    assert not rig.batcher.is_faulted
    assert [fault.batch_id for fault in rig.faults] == [1]
    assert rig.sent[-1] == ["new"]
    rig.complete(2, ERROR)
    assert rig.batcher.is_faulted


# -- the way in -----------------------------------------------------------------------------------


def test_an_item_of_a_bad_size_is_refused_once() -> None:
    """Also if a queue brings it."""
    rig = opened(sizer=lambda _: 0)
    rig.batcher.consume(["a"])
    assert rig.batcher.stats().refused == {"invalid arguments": 1}
    assert [(item, result) for item, result, _ in rig.outcomes] == [("a", CompleteResult.ERROR)]


def test_those_behind_one_that_waited_too_long_for_room_are_let_in() -> None:
    """The first was too large; the next is not."""

    async def main() -> None:
        rig = opened(max_pending_batches=1, max_batch_size=10, capacity=10, enqueue_timeout=60.0)
        rig.enqueue("pending")
        rig.run()
        rig.enqueue("waits", size=8)
        large, small = rig.batcher.asubmit("large", 5), rig.batcher.asubmit("small", 1)
        assert rig.batcher.stats().queued == 1
        rig.batcher._expire(large)
        assert isinstance(large.exception(), BatcherFullError)
        assert rig.batcher.stats().queued == 2
        rig.complete()
        rig.complete()
        assert rig.sent[1:] == [["waits", "small"]]
        assert await small is None

    asyncio.run(main())
