"""Futures of event loops."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from penstock.batcher import Batcher, BatchSettings, Completion, ProcessResult
from penstock.errors import (
    BatcherFullError,
    BatcherStateError,
    InvalidItemError,
    ItemFailedError,
    NotSentError,
)
from tests.unit.batcher.rig import ERROR, OK, Rig, in_background, opened


def doubling(items: list[int], complete: Completion) -> ProcessResult:
    """Answer at once with twice each item."""
    complete.each([2 * item for item in items])
    return ProcessResult.OK


def ignore(*_: object) -> None:
    """Do nothing."""


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run on a loop of its own."""
    return asyncio.run(coroutine)


def test_items_can_be_awaited() -> None:
    """In the block of an async context manager, which sends and closes on leaving."""

    async def main() -> list[int]:
        settings = BatchSettings(max_batch_size=10, min_batch_size=10, min_wait_time=60.0)
        async with Batcher(doubling, settings, on_batch_faulted=ignore) as batcher:
            futures = [batcher.asubmit(item) for item in range(25)]
            assert await batcher.aflush()
        assert batcher.stats().state == "created"
        return list(await asyncio.gather(*futures))

    assert run(main()) == [2 * item for item in range(25)]


def test_an_async_block_that_raises_abandons() -> None:
    """As the other one does."""

    async def main() -> None:
        settings = BatchSettings(max_batch_size=10, min_batch_size=10, min_wait_time=60.0)
        futures = []

        async def fail() -> None:
            async with Batcher(doubling, settings, on_batch_faulted=ignore) as batcher:
                futures.append(batcher.asubmit(1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(NotSentError):
            await futures[0]

    run(main())


def test_a_future_raises_what_its_item_got() -> None:
    """The same as those of submit."""

    async def main() -> None:
        rig = opened(max_batch_size=1, max_pending_batches=9)
        futures = [rig.batcher.asubmit(item) for item in range(4)]
        rig.run()
        rig.completions[0](OK, "word")
        rig.completions[1](ERROR, ValueError("mine"))
        rig.completions[2](ERROR, "a word")
        rig.completions[3].each([StopIteration()])
        assert await futures[0] == "word"
        with pytest.raises(ValueError, match="mine"):
            await futures[1]
        with pytest.raises(ItemFailedError):
            await futures[2]
        with pytest.raises(ItemFailedError):
            await futures[3]

    run(main())


def test_mistakes_and_states_are_raised_at_once() -> None:
    """Before there is a future to await."""

    async def main() -> None:
        rig = Rig()
        with pytest.raises(InvalidItemError):
            rig.batcher.asubmit(None)
        with pytest.raises(BatcherStateError):
            rig.batcher.asubmit("a")

    run(main())


def test_a_cancelled_item_leaves_its_batch() -> None:
    """Before it is sent; after, its result is dropped and nobody else notices."""

    async def main() -> None:
        rig = opened(max_batch_size=3)
        a, b, c = (rig.batcher.asubmit(item) for item in "abc")
        a.cancel()
        rig.run()
        assert rig.sent == [["b", "c"]]
        b.cancel()
        rig.completions[0].each(["B", "C"])
        assert await c == "C"
        assert b.cancelled()
        assert rig.batcher.stats().cancelled == 1

    run(main())


def test_many_loops_share_one_batcher() -> None:
    """Each gets its own results, on its own thread."""
    barrier = threading.Barrier(4)
    settings = BatchSettings(max_batch_size=50, min_batch_size=50, min_wait_time=0.001)
    with Batcher(doubling, settings, on_batch_faulted=ignore) as batcher:

        async def main(base: int) -> list[int]:
            barrier.wait(10)
            thread = threading.get_ident()
            futures = [batcher.asubmit(base + item) for item in range(100)]
            for future in futures:
                future.add_done_callback(lambda _: threads.append(threading.get_ident() == thread))
            return list(await asyncio.gather(*futures))

        threads: list[bool] = []
        runs = [in_background(partial(run, main(1000 * number))) for number in range(4)]
        for number, each in enumerate(runs):
            assert each.result(10) == [2 * (1000 * number + item) for item in range(100)]
    assert threads == [True] * 400


def test_a_loop_that_is_gone_harms_nobody() -> None:
    """Its future is never resolved, as nobody can await it; the rest of the batch is."""
    rig = opened()

    async def main() -> asyncio.Future[Any]:
        return rig.batcher.asubmit("a")

    future = run(main())
    rig.enqueue("b")
    rig.run()
    rig.complete()
    assert not future.done()
    assert rig.outcomes == [("b", OK, None)]


# -- a full batcher ---------------------------------------------------------------------------


def test_a_full_batcher_makes_futures_wait_in_order() -> None:
    """Without blocking the loop; they are accepted as batches make room."""

    async def main() -> None:
        rig = opened(max_batch_size=2, min_batch_size=2, min_wait_time=60.0, capacity=2)
        futures = [rig.batcher.asubmit(item) for item in range(7)]
        assert rig.batcher.stats().queued == 2
        futures[3].cancel()
        rig.run()
        while rig.batcher.stats().pending_batches:
            rig.complete(result=OK, ll_result="word")
        done = await asyncio.gather(*futures, return_exceptions=True)
        assert [each == "word" for each in done] == [True] * 3 + [False] + [True] * 3
        assert [item for batch in rig.sent for item in batch] == [0, 1, 2, 4, 5, 6]

    run(main())


def test_room_that_was_made_meanwhile_is_used() -> None:
    """Between finding no room and waiting for some, the batcher may have become empty."""

    async def main() -> None:
        rig = opened(max_batch_size=2, capacity=2)
        future = asyncio.get_running_loop().create_future()
        sink = rig.batcher._import_loops()()
        entry = ("a", 1, rig.clock.now(), sink, future)
        assert rig.batcher._accept_later(entry).name == "OK"
        rig.run()
        rig.complete(ll_result="word")
        assert await future == "word"

    run(main())


def test_a_full_batcher_that_refuses_raises() -> None:
    """With enqueue_timeout=0 nobody waits."""

    async def main() -> None:
        rig = opened(capacity=1, max_batch_size=1, enqueue_timeout=0)
        rig.batcher.asubmit("a")
        with pytest.raises(BatcherFullError, match="holds 1 and had no room"):
            rig.batcher.asubmit("b")
        assert rig.batcher.stats().refused == {"full": 1}

    run(main())


def test_waiting_for_room_has_an_end() -> None:
    """The future raises; one that was accepted, or cancelled, does not."""

    async def main() -> None:
        rig = opened(capacity=2, max_batch_size=1, enqueue_timeout=0.001)
        rig.batcher.asubmit("a")
        rig.batcher.asubmit("b")
        late, cancelled, accepted = (rig.batcher.asubmit(item) for item in "cde")
        cancelled.cancel()
        rig.batcher._core.waiting.pop(accepted)
        with pytest.raises(BatcherFullError):
            await late
        rig.batcher._expire(cancelled)
        rig.batcher._expire(accepted)
        assert not accepted.done()
        assert rig.batcher.stats().refused == {"full": 2}

    run(main())


def test_those_who_wait_for_room_are_turned_away_by_a_close() -> None:
    """They were never accepted, so they are not abandoned but refused."""

    async def main() -> None:
        rig = opened(max_batch_size=1, capacity=1)
        accepted, waiting = rig.batcher.asubmit("a"), rig.batcher.asubmit("b")
        rig.batcher.close()
        with pytest.raises(NotSentError):
            await accepted
        with pytest.raises(BatcherStateError):
            await waiting
        assert rig.batcher.stats().refused == {"invalid state": 1}

    run(main())


def test_those_who_wait_for_room_are_turned_away_by_a_fault() -> None:
    """No room will be made until somebody resets."""

    async def main() -> None:
        rig = opened(max_batch_size=1, capacity=1)
        failed, queued, waiting = (rig.batcher.asubmit(item) for item in "abc")
        rig.answer = ProcessResult.ERROR
        rig.run()
        with pytest.raises(ItemFailedError):
            await failed
        with pytest.raises(BatcherStateError, match="faulted"):
            await waiting
        assert not queued.done()
        rig.batcher.close()
        with pytest.raises(NotSentError):
            await queued

    run(main())


def test_waiting_for_room_is_refused_when_the_state_changed_meanwhile() -> None:
    """Between finding no room and waiting for some, the batcher may have closed."""

    async def main() -> None:
        rig = Rig(capacity=1)
        future = asyncio.get_running_loop().create_future()
        entry = ("a", 1, rig.clock.now(), rig.batcher._import_loops()(), future)
        assert rig.batcher._accept_later(entry).name == "INVALID_STATE"

    run(main())
