"""What is due, given the time: pure, so each rule stands alone."""

from typing import Any

import pytest

from penstock.batcher import BatchSettings
from penstock.batcher._sinks import CALLBACKS
from penstock.batcher._staging import Entry, Reason, Staging


def staged(*sizes: int, at: float = 100.0, **settings: Any) -> Staging:
    """Return a staging area with items 0, 1, 2… of these sizes, all brought at the same time."""
    staging = Staging(BatchSettings(**settings))
    for index, size in enumerate(sizes):
        staging.entries.append(entry(index, size, at))
        staging.size += size
    return staging


def entry(item: int, size: int, at: float = 100.0) -> Entry:
    """Return an entry that tells nobody."""
    return (item, size, at, CALLBACKS, None)


def items(batch: list[Entry]) -> list[int]:
    """Return the items of a batch."""
    return [each[0] for each in batch]


def test_nothing_is_due_when_nothing_waits() -> None:
    """Not even what is urgent."""
    assert staged().due(100.0, Reason.FLUSH) is None


@pytest.mark.srs("42_063")
def test_a_batch_is_due_at_its_smallest_size() -> None:
    """Exactly min_batch_size is enough, one less is not."""
    limits = {"max_batch_size": 10, "min_batch_size": 5, "min_wait_time": 60.0}
    assert staged(2, 2, **limits).due(100.0) is None
    assert staged(2, 3, **limits).due(100.0) is Reason.SIZE


@pytest.mark.srs("42_062", "42_064")
def test_a_batch_is_due_when_its_first_item_is_old_enough() -> None:
    """Exactly min_wait_time is enough; before that, the delay is what is left of it."""
    staging = staged(1, max_batch_size=10, min_batch_size=5, min_wait_time=2.0)
    staging.entries.append(entry(1, 1, at=101.5))
    staging.size += 1
    assert staging.due(101.5) is None
    assert staging.delay(101.5) == 0.5
    assert staging.due(102.0) is Reason.AGE


@pytest.mark.srs("42_056")
def test_a_batch_is_due_when_the_next_item_does_not_fit() -> None:
    """Below the smallest size, if the item after it would take it beyond the largest."""
    staging = staged(5, 6, max_batch_size=10, min_batch_size=10, min_wait_time=60.0)
    assert staging.due(100.0) is Reason.OVERFLOW
    assert items(staging.take()) == [0]
    assert staging.due(100.0) is None


def test_what_is_urgent_does_not_wait_for_company() -> None:
    """The reason for the hurry is the reason for the batch."""
    staging = staged(1, max_batch_size=10, min_batch_size=5, min_wait_time=60.0)
    assert staging.due(100.0, Reason.PRESSURE) is Reason.PRESSURE


def test_a_full_staging_area_is_due_below_the_smallest_batch() -> None:
    """Otherwise everybody would wait for the age of an item that nothing can join."""
    limits = {"max_batch_size": 10, "min_batch_size": 10, "min_wait_time": 60.0, "capacity": 4}
    assert staged(3, **limits).due(100.0) is None
    assert staged(4, **limits).due(100.0) is Reason.SIZE


@pytest.mark.srs("42_060")
def test_a_batch_takes_as_much_as_fits() -> None:
    """An item that would exceed the largest size begins the next batch."""
    staging = staged(4, 4, 2, 1, max_batch_size=10)
    assert items(staging.take()) == [0, 1, 2]
    assert items(staging.take()) == [3]


def test_an_oversize_item_goes_alone() -> None:
    """Neither with what came before it nor with what comes after."""
    staging = staged(1, 99, 1, max_batch_size=10)
    assert [items(staging.take()) for _ in range(3)] == [[0], [1], [2]]


def test_an_oversize_item_that_is_alone_is_due_by_its_size() -> None:
    """It overflows nothing: there is no next item."""
    assert staged(99, max_batch_size=10, min_batch_size=10).due(100.0) is Reason.SIZE


def test_items_of_size_one_are_counted_out() -> None:
    """The usual case takes no look at sizes."""
    staging = staged(*[1] * 25, max_batch_size=10)
    assert [len(staging.take()) for _ in range(3)] == [10, 10, 5]


def test_batches_keep_the_order() -> None:
    """All batches together are what came, in the order in which it came."""
    staging = staged(3, 1, 4, 1, 5, 9, 2, 6, max_batch_size=10)
    taken: list[int] = []
    while staging.entries:
        taken += items(staging.take())
    assert taken == list(range(8))


def test_the_size_is_kept_exactly() -> None:
    """Whatever is taken, the size is that of what is left."""
    staging = staged(3, 1, 4, 1, 5, 9, 2, 6, max_batch_size=10)
    while staging.entries:
        staging.take()
        assert staging.size == sum(each[1] for each in staging.entries)
    assert staging.size == 0
