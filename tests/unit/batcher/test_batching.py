"""When the worker sends what."""

from typing import Any

import pytest

from tests.unit.batcher.rig import ERROR, OK, Rig, opened


def slow(**settings: Any) -> Rig:
    """Return an open rig that waits a minute for five items."""
    limits: dict[str, Any] = {"max_batch_size": 5, "min_batch_size": 5, "min_wait_time": 60.0}
    return opened(**limits | settings)


@pytest.mark.srs("42_054", "42_055", "42_085", "42_086", "42_087")
def test_the_worker_goes_on_until_nothing_is_left() -> None:
    """One wake-up sends all that is due, in order, and then the worker sleeps."""
    rig = opened(max_batch_size=2, max_pending_batches=10)
    rig.enqueue(*range(5))
    rig.run()
    assert rig.sent == [[0, 1], [2, 3], [4]]
    assert rig.steps.ready() == ()
    assert rig.batcher.stats().queued == 0


@pytest.mark.srs("45_012", "42_061", "42_072", "42_092")
def test_no_more_batches_are_pending_than_allowed() -> None:
    """The worker stops at the limit; what waits keeps its order."""
    rig = opened(max_batch_size=1, max_pending_batches=2)
    rig.enqueue("a", "b", "c", "d")
    rig.run()
    assert rig.sent == [["a"], ["b"]]
    assert rig.batcher.stats().pending_batches == 2
    rig.complete(0)
    assert rig.sent == [["a"], ["b"], ["c"]]
    assert rig.batcher.stats().pending_batches == 2


@pytest.mark.srs("42_094")
def test_a_completion_lets_the_next_batch_go() -> None:
    """Also one with an error: whoever ends a batch wakes a worker that was held back."""
    rig = opened(max_batch_size=1)
    rig.enqueue("a", "b")
    rig.run()
    assert rig.sent == [["a"]]
    rig.complete(result=ERROR)
    assert rig.sent == [["a"], ["b"]]


def test_what_gathers_while_the_limit_is_reached_goes_together() -> None:
    """One pending batch at a time makes for large batches."""
    rig = opened(max_batch_size=10)
    rig.enqueue("a")
    rig.run()
    rig.enqueue("b", "c", "d")
    rig.run()
    rig.complete()
    assert rig.sent == [["a"], ["b", "c", "d"]]


def test_an_item_that_comes_while_the_limit_is_reached_is_not_forgotten() -> None:
    """The queue was empty when the worker stopped, so only the completion can tell it."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    rig.enqueue("b")
    assert rig.steps.ready() == ()
    rig.complete()
    assert rig.sent == [["a"], ["b"]]


@pytest.mark.srs("42_053")
def test_a_batch_that_fills_up_does_not_wait_for_its_age() -> None:
    """And the timer that had been set for it goes off without effect."""
    rig = slow()
    rig.enqueue(1, 2)
    rig.run()
    rig.enqueue(3, 4, 5)
    rig.run()
    assert rig.sent == [[1, 2, 3, 4, 5]]
    rig.complete()
    rig.steps.advance(30.0)
    rig.enqueue(6)
    rig.steps.advance(59.0)
    assert len(rig.sent) == 1
    rig.steps.advance(1.0)
    assert rig.sent[1:] == [[6]]


@pytest.mark.srs("42_068")
def test_the_timer_wakes_the_worker() -> None:
    """Without another item the batch goes when its first item is old enough, not before."""
    rig = slow()
    rig.enqueue("a")
    rig.steps.advance(20.0)
    rig.enqueue("b")  # armed once, by the first: this one does not put it off
    rig.steps.advance(39.5)
    assert rig.sent == []
    rig.steps.advance(0.5)
    assert rig.sent == [["a", "b"]]
    assert rig.batcher.stats().sent_because == {"age": 1}


def test_items_below_the_smallest_batch_do_not_wake_the_worker() -> None:
    """It knows when to look again; only the item that makes the batch due is news."""
    rig = slow()
    rig.enqueue(1)
    rig.run()
    rig.enqueue(2, 3, 4)
    assert rig.steps.ready() == ()
    rig.enqueue(5)
    assert len(rig.steps.ready()) == 1


@pytest.mark.srs("42_057")
def test_an_item_that_does_not_fit_sends_those_before_it() -> None:
    """It begins the next batch, which waits for its own company."""
    rig = slow()
    rig.enqueue("a", size=4)
    rig.enqueue("b", size=2)
    rig.run()
    assert rig.sent == [["a"]]
    assert rig.batcher.stats().sent_because == {"overflow": 1}
    assert rig.batcher.stats().queued_size == 2


@pytest.mark.srs("42_073", "42_075")
def test_the_processor_gets_the_items_and_owns_the_list() -> None:
    """What it does to the list harms nobody."""
    rig = opened(max_batch_size=3, max_pending_batches=2)
    rig.on_send = lambda items, _complete: items.clear()
    rig.enqueue("a", "b")
    rig.run()
    rig.complete()
    assert [item for item, _, _ in rig.outcomes] == ["a", "b"]
    assert rig.completions[0].batch_id == 1
    assert repr(rig.completions[0]) == "<Completion of batch 1, 2 items, done>"


def test_reasons_are_counted() -> None:
    """Per batch, by what made it due."""
    rig = slow(max_pending_batches=9)
    rig.enqueue(*range(5))
    rig.run()
    rig.enqueue("f")
    rig.batcher.flush(0)
    rig.enqueue("a")
    rig.steps.advance(60.0)
    assert rig.batcher.stats().sent_because == {"size": 1, "flush": 1, "age": 1}
    assert rig.batcher.stats().batches == 3


def test_every_item_is_counted_once() -> None:
    """Accepted is what waits, is pending or has completed."""
    rig = opened(max_batch_size=2, max_pending_batches=2)
    rig.enqueue(*range(7))
    rig.run()
    rig.complete(0, OK)
    rig.complete(1, ERROR)
    stats = rig.batcher.stats()
    assert stats.accepted == 7
    assert (stats.ok, stats.failed, stats.queued, stats.pending_batches) == (2, 2, 0, 2)
    assert stats.completed == 4
