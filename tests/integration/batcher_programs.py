"""Whole programs around a batcher that `test_batcher_process` runs, each by its name.

A program says what it found as one line of JSON per process.
"""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from penstock import ThreadPolicy, _process
from penstock.batcher import Batcher, BatchSettings, CompleteResult, Completion, ProcessResult
from penstock.batcher import _futures as futures_module
from penstock.testing import eventually
from tests.integration.forking import PATIENCE, fork, say

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future


def doubling(items: list[int], complete: Completion) -> ProcessResult:
    """Answer at once with twice each item."""
    complete.each([2 * item for item in items])
    return ProcessResult.OK


def silent(_items: list[int], _complete: Completion) -> ProcessResult:
    """Take the batch, and never answer."""
    return ProcessResult.OK


def make(
    process: Callable[[list[int], Completion], ProcessResult],
    **settings: Any,  # noqa: ANN401 - any setting
) -> Batcher[int]:
    """Make a batcher and open it."""
    batcher = Batcher(process, BatchSettings(**settings), on_batch_faulted=print)
    batcher.open()
    return batcher


def use(batcher: Batcher[int]) -> None:
    """Say what a child finds, and what it gets for a hundred items of its own."""
    start = batcher.stats()
    futures = [batcher.submit(item) for item in range(100)]
    got = [future.result(10) for future in futures]
    say(
        who="child",
        start=[start.accepted, start.queued, start.pending_batches],
        right=got == [2 * item for item in range(100)],
        closed=batcher.close().complete,
    )


def fork_while_producing() -> None:
    """Fork again and again while threads bring items."""
    batcher = make(doubling, max_batch_size=10, max_pending_batches=4)
    stop = threading.Event()
    results: list[bool] = []

    def produce() -> None:
        futures: list[Future[int]] = []
        while not stop.is_set():
            futures.append(batcher.submit(len(futures)))
        results.append(all(f.result(10) == 2 * n for n, f in enumerate(futures)))

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = [fork(lambda: use(batcher)) for _ in range(8)]
    stop.set()
    for thread in threads:
        thread.join()
    report = batcher.close(drain=True)
    say(who="parent", codes=codes, right=results, complete=report.complete)


def fork_in_the_middle_of_enqueue() -> None:
    """Fork while another thread holds every lock that an enqueue or a result takes."""
    batcher = make(doubling)
    first = batcher.submit(21).result(10)
    worker = batcher._core.worker
    assert worker is not None
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with batcher._core.lock, worker._attaching, futures_module._shared.lock:
            held.set()
            release.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE)
    code = fork(lambda: use(batcher))
    release.set()
    thread.join()
    second = batcher.submit(4).result(10)
    say(who="parent", code=code, got=[first, second], complete=batcher.close().complete)


def fork_in_process_batch() -> None:
    """Fork inside the processor: the batch is the parent's, and the child knows nothing of it."""
    codes: list[int] = []

    def forking(items: list[int], complete: Completion) -> ProcessResult:
        if items == [7]:
            codes.append(fork(lambda: in_child(complete)))
        return doubling(items, complete)

    def in_child(complete: Completion) -> None:
        assert not complete(CompleteResult.ERROR, "not mine")
        assert not future.done()
        use(batcher)

    batcher = make(forking)
    future = batcher.submit(7)
    got = future.result(PATIENCE)
    say(who="parent", codes=codes, got=got, complete=batcher.close().complete)


def fork_in_a_callback() -> None:
    """Fork while items are being told: the child's batcher is new, and nobody is inside."""
    told: list[int] = []
    codes: list[int] = []

    def tell(item: int, _result: object, _ll_result: object) -> None:
        if item == 0:
            codes.append(fork(lambda: use(batcher)))
        told.append(item)

    batcher = make(doubling, max_batch_size=3, min_batch_size=3, min_wait_time=0.01)
    for item in range(3):
        batcher.enqueue(item, 1, tell, item)
    eventually(lambda: len(told) == 3)
    say(who="parent", codes=codes, told=told, complete=batcher.close().complete)


def fork_with_a_shared_scheduler() -> None:
    """The child has a scheduler of the same name, and gives it back."""
    shared = ("common", ThreadPolicy.fixed(1))
    batcher = make(doubling, shared_scheduler=shared)
    first = batcher.submit(21).result(10)
    code = fork(lambda: use(batcher))
    second = batcher.submit(4).result(10)
    say(who="parent", code=code, got=[first, second], complete=batcher.close().complete)


def fork_while_closing() -> None:
    """The closing thread does not live on: the child finds the batcher closed, and opens it."""
    batcher = make(silent, close_timeout=60.0)
    batcher.submit(1)
    eventually(lambda: batcher.stats().pending_batches == 1)
    reports: list[Any] = []
    closing = threading.Thread(target=lambda: reports.append(batcher.close(60.0)))
    closing.start()
    eventually(lambda: batcher.stats().state == "closing")

    def child() -> None:
        state = batcher.stats().state
        batcher.open()
        batcher.submit(1)
        eventually(lambda: batcher.stats().batches == 1)
        say(who="child", state=state, left=len(batcher.close(0.0).indeterminate))

    code = fork(child)
    for batch in list(batcher._core.pending.values()):
        batch(CompleteResult.OK)
    closing.join()
    say(who="parent", code=code, finished=reports[0].finished)


# -- the end ------------------------------------------------------------------------------


def end_soon() -> None:
    """Have little patience at the end."""
    logging.basicConfig(format="%(levelname)s %(message)s")
    _process.EXIT_DEADLINE = 1.0


def tell_all(item: int, result: CompleteResult, ll_result: object) -> None:
    """Say what became of an item."""
    say(who="item", item=item, result=result.name, ll_result=getattr(ll_result, "name", None))


def exit_with_a_silent_processor() -> None:
    """End with a backlog, a batch in the hands of a processor that never answers."""
    end_soon()
    batcher = make(silent, max_batch_size=2)
    for item in range(5):
        batcher.enqueue(item, 1, tell_all, item)
    eventually(lambda: batcher.stats().pending_batches == 1)


def exit_with_a_stuck_processor() -> None:
    """End with a processor that never even returns."""

    def stuck(_items: list[int], _complete: Completion) -> ProcessResult:
        threading.Event().wait()
        raise AssertionError

    end_soon()
    batcher = make(stuck, max_batch_size=1)
    for item in range(3):
        batcher.enqueue(item, 1, tell_all, item)
    eventually(lambda: batcher.stats().pending_batches == 1)


def exit_with_a_backlog() -> None:
    """End with items that wait for company: they are sent."""
    batcher = make(doubling, max_batch_size=9, min_batch_size=9, min_wait_time=60.0)
    for item in range(3):
        batcher.enqueue(item, 1, tell_all, item)


def exit_with_first_items() -> None:
    """Bring the first items of all when the interpreter is already ending."""
    batcher = make(doubling, max_batch_size=9, min_batch_size=9, min_wait_time=60.0)

    def bring() -> None:
        for item in range(3):
            batcher.enqueue(item, 1, tell_all, item)

    atexit.register(bring)


def everything_raises() -> None:
    """A processor, a sizer, a callback and a done-callback raise; the others do not notice."""

    def size(item: int) -> int:
        if item == 13:
            raise SystemExit(13)
        return 1

    def process(items: list[int], complete: Completion) -> ProcessResult:
        if 7 in items:
            raise KeyboardInterrupt
        return doubling(items, complete)

    def callback(item: int, result: CompleteResult, _ll_result: object) -> None:
        outcomes[item] = result.name
        if item == 3:
            raise SystemExit(3)

    def done(_future: object) -> None:
        raise SystemExit(4)

    outcomes: dict[int, str] = {}
    logging.disable()
    batcher = Batcher(
        process,
        BatchSettings(max_batch_size=1, sizer=size),
        on_batch_faulted=lambda _: batcher.reset(),
        on_item_complete=callback,
    )
    with batcher:
        batcher.consume([1, 13, 3, 5])
        batcher.flush(10)
        future = batcher.submit(8)
        future.add_done_callback(done)
        batcher.enqueue(7, None, callback, 7)
        batcher.flush(10)
        eventually(lambda: batcher.is_open)
        last = batcher.submit(9).result(10)
        say(who="parent", outcomes=outcomes, done=future.result(10), last=last)


if __name__ == "__main__":
    signal.alarm(2 * int(PATIENCE))
    globals()[sys.argv[1]]()
