"""A batcher on threads that cannot be had, or that it shares with those who wait for it."""

import threading
from typing import Any

import pytest

from penstock import BatchQueue, BatchQueueConfig, ThreadPolicy
from penstock.batcher import Batcher, BatchSettings, CompleteResult, Completion, ProcessResult
from penstock.scheduling import SharedSchedulers, ThreadScheduler
from penstock.testing import eventually
from tests.unit.batcher.rig import ABANDONED, OK, PATIENCE, Rig, opened

COMMON = ("common", ThreadPolicy.fixed(1))


def complete_at_once(_items: list[Any], complete: Completion) -> ProcessResult:
    """Be done."""
    complete(CompleteResult.OK)
    return ProcessResult.OK


def test_an_item_tries_again_for_a_thread_that_could_not_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system had no thread for the first item; the second gets one, and both go."""

    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    rig = Rig(max_batch_size=9)
    rig.on_send = lambda _items, complete: complete(OK, None)
    rig.batcher._factory = ThreadScheduler
    rig.batcher.open()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        rig.enqueue("a")
    rig.enqueue("b")
    eventually(lambda: rig.sent == [["a", "b"]])
    rig.batcher.close()


def test_a_full_batcher_tries_again_for_a_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody needs the room, and no thread could be started to make it."""

    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    rig = Rig(max_batch_size=9, min_batch_size=9, min_wait_time=60.0, capacity=3, enqueue_timeout=0)
    rig.batcher._factory = ThreadScheduler
    rig.batcher.open()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        rig.enqueue("a", size=2)
        assert rig.batcher.enqueue("b", 2, rig.completed).name == "FULL"
    rig.enqueue("c")
    eventually(lambda: rig.sent == [["a", "c"]])
    rig.batcher.close(0.0)


def test_a_queue_on_the_same_single_thread_does_not_wait_for_the_batcher() -> None:
    """Its handler would wait for a worker that only its own thread could run."""
    schedulers = SharedSchedulers()
    outcomes: list[tuple[Any, CompleteResult, Any]] = []
    batcher: Batcher[int] = Batcher(
        complete_at_once,
        BatchSettings(capacity=2, shared_scheduler=COMMON),
        on_batch_faulted=lambda _: None,
        on_item_complete=lambda *outcome: outcomes.append(outcome),
        schedulers=schedulers,
    )
    batcher.open()
    config = BatchQueueConfig[int](shared_scheduler=COMMON)
    queue = BatchQueue("q", config, schedulers=schedulers)
    queue.add_handler(int, batcher)
    queue.produce_many(range(1, 6))
    eventually(lambda: len(outcomes) == 5)
    assert queue.shutdown().complete
    batcher.close()
    assert {result for _, result, _ in outcomes} <= {OK, ABANDONED}
    assert all(ll_result is None for _, _, ll_result in outcomes)


def test_a_task_on_the_same_single_thread_flushes_and_drains_without_waiting() -> None:
    """What it asks for happens after it has returned."""
    schedulers = SharedSchedulers()
    settings = BatchSettings(
        max_batch_size=9, min_batch_size=9, min_wait_time=60.0, shared_scheduler=COMMON
    )
    inner: Batcher[int] = Batcher(
        complete_at_once, settings, on_batch_faulted=lambda _: None, schedulers=schedulers
    )
    answers: list[Any] = []

    def use_inner(_items: list[int], complete: Completion) -> ProcessResult:
        answers.append(inner.flush())
        answers.append(inner.close(drain=True).not_sent)
        complete(OK)
        return ProcessResult.OK

    outer: Batcher[int] = Batcher(
        use_inner,
        BatchSettings(shared_scheduler=COMMON),
        on_batch_faulted=lambda _: None,
        schedulers=schedulers,
    )
    with inner, outer:
        future = inner.submit(1)
        outer.submit(1).result(PATIENCE)
        assert answers == [False, (1,)]
        assert future.exception(PATIENCE) is not None


def test_a_log_handler_that_raises_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that raises what is no Exception."""

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.batcher._log._logger.log", fail)
    rig = opened(max_batch_size=3)
    rig.on_outcome = lambda _item: 1 / 0
    rig.enqueue("a", "b", "c")
    rig.run()
    rig.complete()
    assert [item for item, _, _ in rig.outcomes] == ["a", "b", "c"]
