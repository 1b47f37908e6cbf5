"""Sending without waiting for company."""

from typing import Any

import pytest

from penstock.batcher import ProcessResult
from tests.unit.batcher.rig import OK, Rig, Unhelpful, faulted, in_background, opened

SLOW: dict[str, Any] = {
    "max_batch_size": 3,
    "min_batch_size": 3,
    "min_wait_time": 60.0,
    "max_pending_batches": 9,
}


def test_a_flush_sends_what_was_accepted_and_waits_for_it() -> None:
    """All batches of it, also the small one at the end."""
    rig = opened(**SLOW)
    rig.on_send = lambda _items, complete: complete(OK, None)
    rig.enqueue(*range(5))
    assert rig.batcher.flush()
    assert rig.sent == [[0, 1, 2], [3, 4]]
    assert len(rig.outcomes) == 5


def test_a_flush_of_nothing_is_done() -> None:
    """There is nothing to wait for."""
    assert opened(**SLOW).batcher.flush(0)


def test_what_comes_after_a_flush_waits_for_company_again() -> None:
    """A flush is about what was there."""
    rig = opened(Unhelpful(), **SLOW)
    rig.enqueue("a")
    assert not rig.batcher.flush(0)
    rig.run()
    rig.enqueue("b")
    rig.run()
    assert rig.sent == [["a"]]


def test_a_flush_waits_only_for_what_was_there() -> None:
    """A batch that was sent later may go on."""
    rig = opened(Unhelpful(), **SLOW)
    rig.enqueue("a")
    flushing = in_background(rig.batcher.flush)
    rig.clock.await_sleepers(1)
    rig.run()
    rig.enqueue(1, 2, 3)
    rig.run()
    rig.complete(0)
    assert flushing.result(10)
    assert rig.batcher.stats().pending_batches == 1


def test_a_flush_may_take_too_long() -> None:
    """Then it says so, and what it began goes on."""
    rig = opened(**SLOW)
    rig.enqueue("a")
    flushing = in_background(lambda: rig.batcher.flush(5.0))
    rig.clock.await_sleepers(1)
    rig.clock.advance(5.0)
    assert not flushing.result(10)
    assert rig.sent == [["a"]]


@pytest.mark.parametrize("how", ["fault", "close"])
def test_a_flush_ends_with_the_batcher(how: str) -> None:
    """Even if it was sent, nobody can rely on what a fault has left behind."""
    rig = opened(Unhelpful(), **SLOW)
    rig.enqueue("a", "b")
    flushing = in_background(rig.batcher.flush)
    rig.clock.await_sleepers(1)
    if how == "fault":
        rig.answer = ProcessResult.ERROR
        rig.run()
        rig.batcher.reset()
    else:
        rig.batcher.close()
    assert flushing.result(10) is False


def test_a_batcher_that_does_not_send_cannot_be_flushed() -> None:
    """Not opened, or faulted."""
    assert not Rig().batcher.flush()
    assert not faulted().batcher.flush()


def test_a_flush_inside_a_callback_does_not_wait() -> None:
    """It has everything sent, and returns."""
    rig = opened(**SLOW)
    flushed: list[bool] = []
    rig.on_outcome = lambda _item: flushed.append(rig.batcher.flush())
    rig.enqueue(1, 2, 3)
    rig.run()
    rig.enqueue("x")
    rig.complete()
    assert flushed == [False] * 3
    assert rig.sent[-1] == ["x"]
