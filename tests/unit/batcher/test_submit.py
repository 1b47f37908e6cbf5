"""Futures for items."""

import asyncio
import concurrent.futures
import logging
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.batcher import Abandonment, ProcessResult
from penstock.batcher._futures import ItemFuture
from penstock.errors import (
    BatcherStateError,
    IndeterminateError,
    InvalidItemError,
    InvalidSizeError,
    ItemFailedError,
    ItemTooLargeError,
    NotSentError,
)
from tests.unit.batcher.rig import ABANDONED, ERROR, OK, Rig, in_background, opened


def test_a_future_has_the_result_of_its_batch() -> None:
    """The ll_result of all, or the value of each."""
    rig = opened(max_batch_size=2)
    a, b, c, d = (rig.batcher.submit(item) for item in "abcd")
    rig.run()
    assert not a.done()
    rig.complete(ll_result="word")
    assert (a.result(0), b.result(0)) == ("word", "word")
    rig.completions[1].each(["C", "D"])
    assert (c.result(), d.result(0)) == ("C", "D")
    assert isinstance(a, Future)
    assert a.exception() is None


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_future_raises_what_its_item_got(looked_at: bool) -> None:
    """Whether or not somebody watched it before."""
    rig = opened(max_batch_size=1, max_pending_batches=9)
    futures = [rig.batcher.submit(item) for item in range(5)]
    if looked_at:
        assert [future.cancelled() for future in futures] == [False] * 5
    rig.run()
    error = ValueError("mine")
    rig.completions[0](ERROR, error)
    rig.completions[1](ERROR, "a word")
    rig.completions[2](ERROR, SystemExit(3))
    rig.completions[3](ABANDONED, "gone")
    rig.completions[4].each([StopIteration()])
    assert futures[0].exception(0) is error
    with pytest.raises(ValueError, match="mine"):
        futures[0].result(0)
    with pytest.raises(ItemFailedError, match="'a word'") as failed:
        futures[1].result(0)
    assert failed.value.ll_result == "a word"
    with pytest.raises(ItemFailedError) as ended:
        futures[2].result(0)
    assert isinstance(ended.value.__cause__, SystemExit)
    with pytest.raises(IndeterminateError) as gone:
        futures[3].result(0)
    assert gone.value.ll_result == "gone"
    with pytest.raises(ItemFailedError):
        futures[4].result(0)


def test_a_close_tells_futures_what_became_of_their_items() -> None:
    """Not sent is safe to retry; what the processor had is not."""
    rig = opened(max_batch_size=1)
    sent, unsent = rig.batcher.submit("a"), rig.batcher.submit("b")
    rig.run()
    report = rig.batcher.close(0.0)
    with pytest.raises(IndeterminateError) as caught:
        sent.result(0)
    assert caught.value.ll_result is Abandonment.INDETERMINATE
    with pytest.raises(NotSentError, match="safe to retry"):
        unsent.result(0)
    assert (report.indeterminate, report.not_sent) == (("a",), ("b",))


def test_a_processor_that_is_not_open_has_not_been_sent_anything() -> None:
    """NOT_OPEN is a promise that nothing was done."""
    rig = opened()
    rig.answer = ProcessResult.NOT_OPEN
    future = rig.batcher.submit("a")
    rig.run()
    with pytest.raises(NotSentError):
        future.result(0)


def test_a_mistake_of_the_caller_is_raised_at_once() -> None:
    """Nothing is accepted, and the refusal is counted."""
    rig = opened(max_batch_size=5, oversize="reject", sizer=len)
    for item, size, error in [
        (None, 1, InvalidItemError),
        ("a", 0, InvalidSizeError),
        ("abcdef", None, ItemTooLargeError),
        (5, None, TypeError),
    ]:
        with pytest.raises(error):
            rig.batcher.submit(item, size)
    assert rig.batcher.stats().refused == {"invalid arguments": 2, "too large": 1}
    assert rig.batcher.stats().accepted == 0
    rig.batcher.close()
    with pytest.raises(BatcherStateError, match=r"'rig' is created; open\(\) it first"):
        rig.batcher.submit("a")


def test_an_item_can_be_cancelled_until_it_is_sent() -> None:
    """It leaves its batch, which goes on without it."""
    rig = opened(max_batch_size=3, min_batch_size=3, min_wait_time=60.0)
    a, b, c = (rig.batcher.submit(item) for item in "abc")
    assert not b.running()
    assert b.cancel()
    assert b.cancel()
    rig.run()
    assert rig.sent == [["a", "c"]]
    assert a.running()
    assert not a.cancel()
    rig.completions[0].each(["A", "C"])
    assert (a.result(0), c.result(0)) == ("A", "C")
    assert b.cancelled()
    assert not a.running()
    assert not a.cancelled()
    assert rig.batcher.stats().cancelled == 1
    assert rig.batcher.stats().completed == 3


def test_a_batch_of_cancelled_items_is_not_sent() -> None:
    """And the next one is."""
    rig = opened(max_batch_size=1)
    first, second = rig.batcher.submit("a"), rig.batcher.submit("b")
    first.cancel()
    rig.run()
    rig.complete(ll_result="B")
    assert rig.sent == [["b"]]
    assert second.result(0) == "B"


def test_a_cancelled_item_is_not_abandoned_as_well() -> None:
    """A close finds it withdrawn."""
    rig = opened(min_batch_size=9, max_batch_size=9, min_wait_time=60.0)
    future = rig.batcher.submit("a")
    future.cancel()
    assert rig.batcher.close().not_sent == ()
    assert rig.batcher.stats().cancelled == 1


def test_a_future_that_was_finished_by_another_hand_harms_nobody() -> None:
    """Its batch ends as ever; the oddity is logged and counted."""
    rig = opened(max_batch_size=2)
    odd, even = rig.batcher.submit("a"), rig.batcher.submit("b")
    odd.set_result("meddled")
    assert odd.cancel() is False
    rig.run()
    rig.completions[0].each(["B"])
    assert (odd.result(), even.result()) == ("meddled", "B")


def test_a_future_finished_in_flight_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The processor's answer finds it taken, and goes on to the next."""
    rig = opened(max_batch_size=2)
    odd, even = rig.batcher.submit("a"), rig.batcher.submit("b")
    rig.run()
    odd.set_result("meddled")
    with caplog.at_level(logging.ERROR):
        rig.completions[0].each(["A", "B"])
    assert (odd.result(), even.result()) == ("meddled", "B")
    assert rig.batcher.stats().callback_errors == 1


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_a_done_callback_that_raises_harms_no_other_item(error: BaseException) -> None:
    """Not even with what is no Exception, which the standard library lets through."""
    rig = opened()
    first, second = rig.batcher.submit("a"), rig.batcher.submit("b")

    def fail(_future: object) -> None:
        raise error

    first.add_done_callback(fail)
    rig.run()
    rig.complete(ll_result="fine")
    assert (first.result(0), second.result(0)) == ("fine", "fine")


def test_callbacks_and_futures_share_batches() -> None:
    """Each is told in its own way, with its own value."""
    rig = opened()
    future = rig.batcher.submit("a")
    rig.enqueue("b")
    other = rig.batcher.submit("c")
    rig.run()
    rig.completions[0].each([1, 2, 3])
    assert (future.result(), other.result()) == (1, 3)
    assert rig.outcomes == [("b", OK, 2)]


def test_a_cancelled_future_leaves_a_mixed_batch() -> None:
    """The callback next to it is not disturbed."""
    rig = opened()
    future = rig.batcher.submit("a")
    rig.enqueue("b")
    future.cancel()
    rig.run()
    rig.completions[0].each([2])
    assert rig.outcomes == [("b", OK, 2)]


# -- what the standard library does with futures ----------------------------------------------


def test_the_fields_of_the_base_class_are_known() -> None:
    """Those of a plain future are all that ours makes later, or has from its class."""
    made_later = {"_condition", "_waiters", "_done_callbacks"}
    ours = {name for name in vars(ItemFuture) if name.startswith("_")}
    assert set(vars(Future())) <= made_later | ours
    future = ItemFuture()
    for name in made_later:
        assert type(getattr(future, name)) is type(getattr(Future(), name))
    with pytest.raises(AttributeError, match="'ItemFuture' object has no attribute 'nonsense'"):
        future.nonsense  # noqa: B018 - asking is the test


def submitted(count: int) -> tuple[Rig, list[Future[Any]]]:
    """Return a rig with so many items sent."""
    rig = opened(max_batch_size=count)
    futures = [rig.batcher.submit(item) for item in range(count)]
    rig.run()
    return rig, futures


def test_wait_and_as_completed_work() -> None:
    """They watch from inside, so all of it must be there."""
    rig, futures = submitted(4)
    waiting = in_background(lambda: concurrent.futures.wait(futures))
    iterating = in_background(
        lambda: [f.result() for f in concurrent.futures.as_completed(futures)]
    )
    rig.completions[0].each([0, 1, 2, 3])
    assert waiting.result(10).not_done == set()
    assert sorted(iterating.result(10)) == [0, 1, 2, 3]


def test_waiting_for_a_cancelled_future_ends() -> None:
    """The waiter is told at once, not when the batch goes."""
    rig = opened(min_batch_size=9, max_batch_size=9, min_wait_time=60.0)
    future = rig.batcher.submit("a")
    waiting = in_background(lambda: concurrent.futures.wait([future]))
    assert future.cancel()
    assert waiting.result(10).done == {future}


def test_a_result_can_be_waited_for() -> None:
    """By a thread that came before it, and in vain with a timeout."""
    rig, (future,) = submitted(1)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    waiting = in_background(future.result)
    rig.complete(ll_result="word")
    assert waiting.result(10) == "word"
    rig, (future,) = submitted(1)
    waiting = in_background(future.exception)
    rig.complete()
    assert waiting.result(10) is None


def test_a_done_callback_is_called() -> None:
    """Also one that was added after the result."""
    rig, futures = submitted(2)
    called: list[Any] = []
    futures[0].add_done_callback(lambda f: called.append(f.result()))
    rig.complete(ll_result=1)
    futures[1].add_done_callback(lambda f: called.append(f.result()))
    assert called == [1, 1]


def test_a_future_can_be_awaited_through_asyncio() -> None:
    """As any other future of the standard library."""
    rig, (future,) = submitted(1)

    async def main() -> Any:
        wrapped = asyncio.wrap_future(future)
        threading.Thread(target=rig.completions[0], args=(OK, "word")).start()
        return await wrapped

    assert asyncio.run(main()) == "word"
