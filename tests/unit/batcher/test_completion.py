"""Ending a batch."""

from typing import Any

import pytest

from penstock.batcher import Abandonment, CompleteResult
from penstock.errors import CompletionError, ResultCountError
from tests.unit.batcher.rig import ABANDONED, ERROR, OK, events, opened


@pytest.mark.srs("42_089", "42_090")
@pytest.mark.parametrize("result", list(CompleteResult))
def test_every_item_gets_the_result_of_its_batch(result: CompleteResult) -> None:
    """And the same ll_result, in the order in which they were brought."""
    rig = opened(max_batch_size=3)
    rig.enqueue("a", "b", "c")
    rig.run()
    assert rig.complete(result=result, ll_result="word")
    assert rig.outcomes == [(item, result, "word") for item in "abc"]


def test_a_processor_that_abandons_is_never_taken_for_not_sent() -> None:
    """It had the batch; without a word of its own the items are indeterminate."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    rig.complete(result=ABANDONED)
    assert rig.outcomes == [("a", ABANDONED, Abandonment.INDETERMINATE)]
    assert rig.batcher.stats().indeterminate == 1


def test_of_two_completions_one_counts(caplog: pytest.LogCaptureFixture) -> None:
    """The second is ignored, counted and logged; its caller is told."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    assert rig.complete(result=OK)
    assert not rig.complete(result=ERROR)
    assert not rig.completions[0].each([1])
    assert rig.outcomes == [("a", OK, None)]
    assert rig.batcher.stats().stray_completions == 2
    assert events(caplog) == ["batcher.stray_completion"] * 2


def test_a_batch_may_complete_inside_process_batch() -> None:
    """A processor that is done at once says so at once."""
    rig = opened(max_batch_size=1)
    rig.on_send = lambda items, complete: complete(OK, items[0].upper())
    rig.enqueue("a", "b", "c")
    rig.run()
    assert rig.outcomes == [("a", OK, "A"), ("b", OK, "B"), ("c", OK, "C")]


def test_a_completion_before_a_failure_stands() -> None:
    """The items keep what they were told; the batcher faults all the same."""
    rig = opened()
    rig.on_send = lambda _items, complete: complete(OK, None)
    rig.answer = ValueError("after the fact")
    rig.enqueue("a")
    rig.run()
    assert rig.outcomes == [("a", OK, None)]
    assert rig.batcher.is_faulted


def test_each_item_can_have_its_own_value() -> None:
    """An exception among them is its item's error."""
    rig = opened()
    error = ValueError("b")
    rig.enqueue("a", "b", "c")
    rig.run()
    assert rig.completions[0].each((1, error, 3))
    assert rig.outcomes == [("a", OK, 1), ("b", ERROR, error), ("c", OK, 3)]
    assert (rig.batcher.stats().ok, rig.batcher.stats().failed) == (2, 1)


@pytest.mark.parametrize(
    ("values", "named"), [([1], "1 results"), ([1, 2, 3], "3 results"), (None, "'NoneType'")]
)
def test_another_number_of_values_fails_the_batch(values: Any, named: str) -> None:
    """Nobody can tell which value belongs to whom, so nobody gets one."""
    rig = opened()
    rig.enqueue("a", "b")
    rig.run()
    assert rig.completions[0].each(values)
    for _, result, error in rig.outcomes:
        assert result is ERROR
        assert isinstance(error, ResultCountError)
        assert named in str(error)


@pytest.mark.parametrize("result", [None, True, "ok", 0])
def test_a_result_that_is_none_is_the_processors_mistake(result: Any) -> None:
    """It is raised where it was made, and the batch goes on waiting for a real one."""
    rig = opened()
    rig.enqueue("a")
    rig.run()
    with pytest.raises(CompletionError, match="with a CompleteResult, not"):
        rig.completions[0](result)
    assert repr(rig.completions[0]) == "<Completion of batch 1, 1 items, pending>"
    assert rig.complete()


def test_batches_complete_in_any_order() -> None:
    """Each is its own."""
    rig = opened(max_batch_size=1, max_pending_batches=3)
    rig.enqueue("a", "b", "c")
    rig.run()
    for index in (2, 0, 1):
        rig.complete(index)
    assert [item for item, _, _ in rig.outcomes] == ["c", "a", "b"]
