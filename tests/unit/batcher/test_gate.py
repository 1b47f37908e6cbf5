"""Waiting for the result of a future that nobody else looks at."""

import concurrent.futures
import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest

from penstock.batcher._futures import ItemFuture
from penstock.testing import eventually
from tests.unit.batcher.rig import ERROR, PATIENCE, Rig, in_background, opened


def sent() -> tuple[Rig, ItemFuture]:
    """Return a rig with one item sent, and its future."""
    rig = opened()
    future = cast("ItemFuture", rig.batcher.submit("a"))
    rig.run()
    return rig, future


def waiting_for(future: ItemFuture) -> Future[Any]:
    """Return the future of a thread that waits for the result of *future*."""
    waiting = in_background(future.result)
    eventually(lambda: future.gate is not None, PATIENCE)
    return waiting


def test_who_waits_needs_no_condition() -> None:
    """One lock is made for a thread that waits, and nothing of the base class."""
    rig, future = sent()
    waiting = waiting_for(future)
    assert not future.is_watched
    rig.complete(ll_result="word")
    assert waiting.result(PATIENCE) == "word"
    assert not future.is_watched


def test_all_who_wait_pass() -> None:
    """Each who passes the gate leaves it open for the next."""
    rig, future = sent()
    waiting = [waiting_for(future) for _ in range(4)]
    rig.complete(ll_result="word")
    assert [thread.result(PATIENCE) for thread in waiting] == ["word"] * 4
    future._stand_at_gate(None)  # for who found no result a moment ago


def test_who_waits_is_told_of_an_error() -> None:
    """As of a result."""
    rig, future = sent()
    waiting = waiting_for(future)
    rig.complete(result=ERROR, ll_result=ValueError("mine"))
    with pytest.raises(ValueError, match="mine"):
        waiting.result(PATIENCE)


def test_who_waits_is_told_of_a_cancellation() -> None:
    """At once, not when the batch goes."""
    rig = opened(min_batch_size=9, max_batch_size=9, min_wait_time=60.0)
    future = cast("ItemFuture", rig.batcher.submit("a"))
    waiting = waiting_for(future)
    assert future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        waiting.result(PATIENCE)


def test_who_waits_does_not_wait_for_done_callbacks() -> None:
    """The result is there before they are called."""
    rig, future = sent()
    waiting = waiting_for(future)
    seen: list[Any] = []
    future.add_done_callback(lambda _future: seen.append(waiting.result(PATIENCE)))
    rig.complete(ll_result="word")
    assert seen == ["word"]


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 0.001])
def test_a_wait_that_is_too_short_can_be_repeated(timeout: float) -> None:
    """Whoever gave up does not stand in the way of those who come later."""
    rig, future = sent()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout)
    waiting = in_background(lambda: future.result(PATIENCE))
    rig.complete(ll_result="word")
    assert waiting.result(PATIENCE) == "word"


def test_a_result_from_another_hand_opens_the_gate() -> None:
    """Also what did not come from the batcher."""
    _, future = sent()
    waiting = waiting_for(future)
    done = threading.Event()
    future.add_done_callback(lambda _future: done.set())
    future.set_result("meddled")
    assert waiting.result(PATIENCE) == "meddled"
    assert done.is_set()
