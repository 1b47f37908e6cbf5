"""What a child process makes of a batcher, done here in the parent: children are not measured."""

import pytest

from penstock.batcher import EnqueueResult, ProcessResult
from tests.unit.batcher.rig import OK, Rig, faulted, opened


def fork(rig: Rig) -> None:
    """Do to the batcher what happens in the child of a fork."""
    rig.steps._ready.clear()  # as a real scheduler does
    rig.steps._timers.clear()
    rig.batcher.renew_after_fork()


def send_one(rig: Rig) -> None:
    """See an item of the child's own sent and completed."""
    rig.enqueue("child's")
    rig.run()
    assert rig.sent[-1] == ["child's"]
    assert rig.complete()
    assert rig.outcomes[-1] == ("child's", OK, None)


def test_after_a_fork_an_open_batcher_is_empty_and_works() -> None:
    """What waited and what was pending is the parent's, and nobody is told of it here."""
    rig = opened(max_batch_size=1, max_pending_batches=1)
    rig.enqueue("pending", "waiting")
    rig.run()
    fork(rig)
    stats = rig.batcher.stats()
    assert (stats.state, stats.accepted, stats.queued, stats.pending_batches) == ("opened", 0, 0, 0)
    send_one(rig)
    assert len(rig.outcomes) == 1


def test_after_a_fork_the_lock_is_another() -> None:
    """A thread of the parent may have held the old one."""
    rig = opened()
    with rig.batcher._core.lock:
        fork(rig)
        assert rig.batcher._core.lock.acquire(blocking=False)
    rig.batcher._core.lock.release()


def test_after_a_fork_a_batch_of_the_parent_ends_without_effect() -> None:
    """Even if the child has a batch of the same number."""
    rig = opened()
    rig.enqueue("parent's")
    rig.run()
    fork(rig)
    rig.enqueue("child's")
    rig.run()
    assert [batch.batch_id for batch in rig.completions] == [1, 1]
    assert not rig.complete(0)
    assert rig.batcher.stats().pending_batches == 1
    assert rig.complete(1)


@pytest.mark.parametrize("was_open", [False, True])
def test_after_a_fork_a_batcher_that_is_not_open_can_be_opened(was_open: bool) -> None:
    """Until then it has nothing that could run, and takes nothing."""
    rig = Rig()
    if was_open:
        rig.batcher.open()
        rig.batcher.close()
    fork(rig)
    assert rig.batcher.stats().state == "created"
    assert rig.batcher._core.worker is None
    assert rig.batcher.enqueue("early", 1, rig.completed, "early") is EnqueueResult.INVALID_STATE
    rig.batcher.open()
    send_one(rig)


def test_after_a_fork_a_faulted_batcher_can_be_reset() -> None:
    """The fault is the processor's, and that is the child's as well."""
    rig = faulted()
    fork(rig)
    assert rig.batcher.is_faulted
    rig.answer = ProcessResult.OK
    rig.batcher.reset()
    send_one(rig)
