"""A batcher that holds only so much."""

from typing import Any

import pytest

from penstock.batcher import CompleteResult, EnqueueResult
from penstock.errors import BatcherFullError
from penstock.testing import StepExecutor, eventually
from tests.unit.batcher.rig import Rig, Unhelpful, in_background, opened

FULL, OK = EnqueueResult.FULL, EnqueueResult.OK


def small(steps: StepExecutor | None = None, **settings: Any) -> Rig:
    """Return an open rig that holds three, and waits a minute for a batch of ten."""
    limits = {"capacity": 3, "max_batch_size": 10, "min_batch_size": 10, "min_wait_time": 60.0}
    return opened(steps, **limits | settings)


def test_a_full_batcher_refuses_at_once_if_told_to() -> None:
    """With a timeout of 0, by result or by exception."""
    rig = small(enqueue_timeout=0)
    rig.enqueue("a", "b", "c")
    assert rig.batcher.enqueue("d", 1, rig.completed) is FULL
    with pytest.raises(BatcherFullError, match="'rig' holds 3 and had no room in 0 s"):
        rig.batcher.submit("d")
    assert rig.batcher.stats().refused == {"full": 2}


def test_a_full_batcher_makes_room_without_waiting_for_company() -> None:
    """Below the smallest batch and before its age: somebody needs the room."""
    rig = small(capacity=5, enqueue_timeout=0)
    rig.enqueue("a", "b", size=2)
    rig.run()
    assert rig.sent == []
    assert rig.batcher.enqueue("c", 2, rig.completed) is FULL
    rig.run()
    assert rig.sent == [["a", "b"]]
    assert rig.batcher.stats().sent_because == {"pressure": 1}
    assert rig.batcher.enqueue("c", 2, rig.completed) is OK


def test_a_blocked_producer_goes_on_when_there_is_room() -> None:
    """It waits for the batch that its own need has sent."""
    rig = small()
    rig.enqueue("a", "b", "c")
    blocked = in_background(lambda: rig.batcher.enqueue("d", 1, rig.completed))
    rig.clock.await_sleepers(1)
    rig.run()
    assert blocked.result(10) is OK
    assert rig.sent == [["a", "b", "c"]]
    assert rig.batcher.stats().queued == 1


def test_a_blocked_producer_gives_up_when_its_time_is_over() -> None:
    """The item was not accepted."""
    rig = small(Unhelpful(), enqueue_timeout=2.0)
    rig.enqueue("a", "b", "c")
    blocked = in_background(lambda: rig.batcher.enqueue("d", 1, rig.completed))
    rig.clock.await_sleepers(1)
    rig.clock.advance(2.0)
    assert blocked.result(10) is FULL
    assert rig.batcher.stats().accepted == 3


def test_a_producer_that_needs_much_room_has_it_made_batch_by_batch() -> None:
    """One batch may not be enough; the next goes without delay too."""
    rig = small(capacity=10, max_batch_size=5, min_batch_size=5, max_pending_batches=9)
    rig.enqueue("a", size=4)
    rig.enqueue("b", size=4)
    rig.run()  # "a" goes by overflow, "b" waits for company
    rig.enqueue("c", size=1)  # which it has now
    rig.enqueue("d", size=4)
    blocked = in_background(lambda: rig.batcher.enqueue("e", 7, rig.completed))
    rig.clock.await_sleepers(1)
    eventually(lambda: rig.steps.run_until_idle() == 0 and blocked.done())
    assert blocked.result(10) is OK
    assert rig.sent == [["a"], ["b", "c"], ["d"], ["e"]]


def test_a_blocked_producer_is_refused_by_a_close() -> None:
    """Its item was never accepted."""
    rig = small(Unhelpful())
    rig.enqueue("a", "b", "c")
    blocked = in_background(lambda: rig.batcher.enqueue("d", 1, rig.completed))
    rig.clock.await_sleepers(1)
    rig.batcher.close()
    assert blocked.result(10) is EnqueueResult.INVALID_STATE


def test_a_blocked_producer_is_refused_by_a_fault() -> None:
    """The batch that failed has made room, but not enough."""
    rig = small(capacity=10, max_batch_size=4, min_batch_size=4)
    rig.enqueue("a", "b", size=4)
    blocked = in_background(lambda: rig.batcher.enqueue("c", 9, rig.completed))
    rig.clock.await_sleepers(1)
    rig.answer = ValueError("no")
    rig.run()
    assert blocked.result(10) is EnqueueResult.INVALID_STATE


def test_an_item_larger_than_the_capacity_is_accepted_when_nothing_waits() -> None:
    """Otherwise it could never be."""
    rig = small(enqueue_timeout=0)
    assert rig.batcher.enqueue("huge", 99, rig.completed) is OK
    assert rig.batcher.enqueue("a", 1, rig.completed) is FULL


def test_a_callback_never_waits_for_room() -> None:
    """It would wait for whoever waits for it to return."""
    rig = small(max_batch_size=1, min_batch_size=1)
    results: list[EnqueueResult] = []

    def bring_more(_item: object) -> None:
        results.append(rig.batcher.enqueue("more", 1, lambda *_: None))

    rig.on_outcome = bring_more
    rig.enqueue("a")
    rig.run()
    rig.enqueue("b", "c", "d")
    rig.completions[0](CompleteResult.OK)
    assert results == [FULL]
