"""Bringing items with a callback."""

from typing import Any

import pytest

from penstock.batcher import EnqueueResult
from tests.unit.batcher.rig import OK, Rig, events, faulted, opened


@pytest.mark.srs("42_037")
def test_none_is_no_item() -> None:
    """It is refused as an invalid argument."""
    rig = opened()
    assert rig.batcher.enqueue(None, 1, rig.completed) is EnqueueResult.INVALID_ARGS
    assert rig.batcher.stats().refused == {"invalid arguments": 1}


@pytest.mark.srs("42_038")
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
def test_a_size_is_a_whole_number_of_at_least_one(size: Any) -> None:
    """Anything else is refused as an invalid argument."""
    rig = opened()
    assert rig.batcher.enqueue("a", size, rig.completed) is EnqueueResult.INVALID_ARGS
    assert rig.batcher.stats().refused == {"invalid arguments": 1}


@pytest.mark.srs("42_039")
def test_there_must_be_a_callback() -> None:
    """An item nobody wants to hear of is refused as an invalid argument."""
    rig = opened()
    missing: Any = None
    assert rig.batcher.enqueue("a", 1, missing) is EnqueueResult.INVALID_ARGS


@pytest.mark.srs("42_040", "42_041")
def test_an_item_is_refused_unless_the_batcher_is_open() -> None:
    """Before opening, after a fault and after closing, with nothing raised and nothing called."""
    new, broken, closed = Rig(), faulted(), opened()
    closed.batcher.close()
    broken.outcomes.clear()
    for rig in (new, broken, closed):
        assert rig.batcher.enqueue("a", 1, rig.completed) is EnqueueResult.INVALID_STATE
        assert rig.batcher.stats().refused == {"invalid state": 1}
        assert rig.outcomes == []


@pytest.mark.srs("42_042")
def test_an_item_ages_from_the_moment_it_was_brought() -> None:
    """Not from the worker's first look at it, and not from the last batch."""
    rig = opened(min_batch_size=5, max_batch_size=5, min_wait_time=2.0)
    rig.enqueue("a")
    rig.clock.advance(1.5)
    rig.run()
    rig.steps.advance(0.25)
    assert rig.sent == []
    rig.steps.advance(0.25)
    assert rig.sent == [["a"]]


@pytest.mark.srs("42_043", "42_044", "42_045", "42_050")
def test_an_accepted_item_is_sent_and_completes_with_its_context() -> None:
    """The worker is woken by it, without any other call."""
    rig = opened()
    assert rig.batcher.enqueue("a", 3, rig.completed, "context") is EnqueueResult.OK
    rig.run()
    assert rig.sent == [["a"]]
    rig.complete(ll_result="done")
    assert rig.outcomes == [("context", OK, "done")]


@pytest.mark.srs("42_051")
def test_a_sizer_that_raises_refuses_the_item(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets ERROR, the log the reason, and other items go their way."""
    rig = opened(sizer=len)
    assert rig.batcher.enqueue(5, None, rig.completed) is EnqueueResult.ERROR
    assert rig.batcher.enqueue("abc", None, rig.completed) is EnqueueResult.OK
    assert events(caplog) == ["batcher.sizer_failed"]
    assert rig.batcher.stats().queued_size == 3


def test_an_item_without_a_size_counts_one() -> None:
    """Without a sizer, sizes are numbers of items."""
    rig = opened()
    assert rig.batcher.enqueue("abc", None, rig.completed) is EnqueueResult.OK
    assert rig.batcher.stats().queued_size == 1


def test_a_size_that_the_sizer_gets_wrong_is_an_invalid_argument() -> None:
    """It is checked like one that was given."""
    rig = opened(sizer=len)
    assert rig.batcher.enqueue("", None, rig.completed) is EnqueueResult.INVALID_ARGS


def test_an_oversize_item_is_sent_alone_or_rejected() -> None:
    """As the settings say."""
    alone = opened(max_batch_size=5)
    alone.enqueue("small")
    alone.enqueue("large", size=6)
    alone.enqueue("other")
    alone.run()
    alone.complete()
    alone.complete()
    assert alone.sent == [["small"], ["large"], ["other"]]
    strict = opened(max_batch_size=5, oversize="reject")
    strict.enqueue("fits", size=5)
    assert strict.batcher.enqueue("large", 6, strict.completed) is EnqueueResult.TOO_LARGE
    assert strict.batcher.stats().refused == {"too large": 1}
