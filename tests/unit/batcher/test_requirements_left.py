"""Requirements of the seed that no other test happens to show."""

import pytest

from tests.unit.batcher.rig import OK, opened


@pytest.mark.srs("42_059")
def test_a_batch_grows_with_its_items() -> None:
    """Nothing has to be reserved for it: a hundred thousand small items make one batch."""
    rig = opened(max_batch_size=200_000, min_batch_size=100_000, min_wait_time=60.0)
    items = list(range(100_000))
    rig.batcher.consume(items)
    rig.run()
    assert rig.sent == [items]
    rig.complete()
    assert rig.outcomes == [(item, OK, None) for item in items]


@pytest.mark.srs("45_010")
def test_a_worker_that_looks_after_the_close_sends_nothing() -> None:
    """It looks at the state before it looks at the timer; another opening is not its concern."""
    rig = opened(min_batch_size=5, max_batch_size=5, min_wait_time=1.0)
    old = rig.batcher._core.worker
    assert old is not None
    rig.batcher.close()
    assert old.run() is None
    rig.batcher.open()
    rig.enqueue("a")
    rig.clock.advance(1.0)
    assert old.run() is None
    assert rig.sent == []
    rig.run()
    assert rig.sent == [["a"]]
