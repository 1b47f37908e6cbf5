"""A batcher as the handler of a queue: type dispatch and acknowledgement together."""

from typing import Any

import pytest

from penstock import BatchQueue, BatchQueueConfig, BatchQueueManager, HandlerConsumer, ThreadPolicy
from penstock.batcher import Batcher, BatchSettings, ProcessResult
from tests.unit.batcher.rig import ABANDONED, ERROR, OK, Unhelpful, in_background, opened


def test_a_batcher_handles_types_of_a_queue() -> None:
    """One line: items of the type go into batches, and each is acknowledged."""
    rig = opened(max_batch_size=2, min_batch_size=2, min_wait_time=60.0)
    assert isinstance(rig.batcher, HandlerConsumer)
    manager = BatchQueueManager(clock=rig.clock, factory=rig.steps)
    queue: BatchQueue[Any] = manager.create("q", BatchQueueConfig(threads=ThreadPolicy.fixed(1)))
    queue.add_handler(str, rig.batcher)
    queue.add_handler(int, rig.batcher)
    queue.produce("a")
    queue.produce("b")
    queue.produce(3)
    rig.run()
    assert rig.sent == [["a", "b"]]
    rig.complete(ll_result="stored")
    assert rig.outcomes == [("a", OK, "stored"), ("b", OK, "stored")]
    manager.shutdown_all()
    rig.batcher.close()
    assert rig.outcomes[-1] == (3, ABANDONED, None)


def test_a_queue_with_a_batcher_does_not_wake_when_idle() -> None:
    """A batcher looks after its own timers: it has no on_idle."""
    rig = opened()
    assert type(rig.batcher).on_idle is HandlerConsumer.on_idle


def test_items_are_measured_by_the_sizer() -> None:
    """One that cannot be measured ends in error, and the others go on."""
    rig = opened(sizer=len, max_batch_size=5, oversize="reject", min_wait_time=1.0)
    rig.batcher.consume(["ab", 7, "abcdef", "abc"])
    assert [(item, result) for item, result, _ in rig.outcomes] == [
        (7, ERROR),
        ("abcdef", ABANDONED),
    ]
    assert isinstance(rig.outcomes[0][2], TypeError)
    assert rig.batcher.stats().queued_size == 5
    assert rig.batcher.stats().refused == {"error": 1, "too large": 1}


def test_items_that_are_not_accepted_are_acknowledged_as_not_sent() -> None:
    """The queue has accepted them, so somebody must say what became of them."""
    rig = opened()
    rig.batcher.close()
    rig.batcher.consume(["a", "b"])
    assert rig.outcomes == [("a", ABANDONED, None), ("b", ABANDONED, None)]


def test_a_full_batcher_holds_up_the_queue() -> None:
    """The handler waits for room, so the queue fills up behind it."""
    rig = opened(Unhelpful(), capacity=2, max_batch_size=2)
    consuming = in_background(lambda: rig.batcher.consume(["a", "b", "c"]))
    rig.clock.await_sleepers(1)
    rig.run()
    consuming.result(10)
    assert rig.sent == [["a", "b"]]
    assert rig.batcher.stats().queued == 1


def test_below_the_smallest_batch_the_worker_is_not_woken() -> None:
    """Once it knows of the first item."""
    rig = opened(max_batch_size=9, min_batch_size=9, min_wait_time=60.0)
    rig.batcher.consume([1])
    rig.run()
    rig.batcher.consume([2, 3])
    assert rig.steps.ready() == ()
    rig.batcher.consume(list(range(6)))
    assert len(rig.steps.ready()) == 1


def test_without_a_callback_outcomes_are_only_counted() -> None:
    """Nobody has to care."""

    def process(items: list[Any], complete: Any) -> ProcessResult:
        complete(OK, items)
        return ProcessResult.OK

    with Batcher(process, BatchSettings(), on_batch_faulted=lambda _: None) as batcher:
        batcher.consume([1, 2, 3])
        assert batcher.flush(10)
        assert batcher.stats().ok == 3


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_a_sizer_that_raises_harms_no_other_item(error: BaseException) -> None:
    """Also with what is no Exception."""

    def fail(item: object) -> int:
        if item == "bad":
            raise error
        return 1

    rig = opened(sizer=fail)
    rig.batcher.consume(["a", "bad", "b"])
    rig.run()
    assert rig.sent == [["a", "b"]]
    assert rig.outcomes == [("bad", ERROR, error)]
