"""Everything that the batcher bench compares, each behind the same small interface.

A contender of threads is a context manager that yields ``submit(item) -> future``, one of
asyncio an asynchronous one that yields ``call(item) -> awaitable``. All double numbers, in
batches of up to `BATCH`, and let an item wait for company for `WAIT` seconds.
"""

from __future__ import annotations

import importlib
import queue
import threading
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.batcher import Batcher, BatchSettings, Completion, ProcessResult, batched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    Submit: TypeAlias = "Callable[[int], Resolved]"
    Call: TypeAlias = "Callable[[int], Awaitable[int]]"
    ThreadContender: TypeAlias = Callable[[], AbstractContextManager[Submit]]
    LoopContender: TypeAlias = Callable[[], AbstractAsyncContextManager[Call]]

__all__ = [
    "BATCH",
    "WAIT",
    "async_batcher",
    "batched_coroutines",
    "batched_threads",
    "double",
    "double_async",
    "load",
    "penstock_asubmit",
    "penstock_decorator",
    "penstock_decorator_async",
    "penstock_submit",
    "queue_loop",
]

# The defaults of `penstock.batcher.batched` and of its namesake from the registry.
BATCH = 32
WAIT = 0.005

_STOP = None


class Resolved(Protocol):
    """What is common to the futures of all."""

    def result(self) -> Any:  # noqa: ANN401 - whatever the item's result is
        """Return the result, waiting for it."""
        ...


def load(package: str) -> Any:  # noqa: ANN401 - a module
    """Import a peer; None if it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def double(batch: list[int]) -> list[int]:
    """Do the work: nearly nothing, so that batching is what is measured."""
    return [2 * item for item in batch]


async def double_async(batch: list[int]) -> list[int]:
    """Do the same without leaving the event loop."""
    return [2 * item for item in batch]


# -- penstock -----------------------------------------------------------------------------


def _process(items: list[int], complete: Completion) -> ProcessResult:
    complete.each(double(items))
    return ProcessResult.OK


def _batcher() -> Batcher[int]:
    settings = BatchSettings(max_batch_size=BATCH, min_batch_size=BATCH, min_wait_time=WAIT)
    return Batcher[int](_process, settings, on_batch_faulted=lambda _fault: None)


@contextmanager
def penstock_submit() -> Iterator[Submit]:
    """Yield `Batcher.submit`."""
    with _batcher() as batcher:
        yield batcher.submit


@contextmanager
def penstock_decorator() -> Iterator[Submit]:
    """Yield the `submit` of a function decorated with `@batched`."""
    function = batched(max_batch_size=BATCH, max_wait=WAIT)(double)
    try:
        yield function.submit
    finally:
        function.close()


@asynccontextmanager
async def penstock_asubmit() -> AsyncIterator[Call]:
    """Yield `Batcher.asubmit`."""
    async with _batcher() as batcher:
        yield batcher.asubmit


@asynccontextmanager
async def penstock_decorator_async() -> AsyncIterator[Call]:
    """Yield the `acall` of a function decorated with `@batched`."""
    function = batched(max_batch_size=BATCH, max_wait=WAIT)(double)
    try:
        yield function.acall
    finally:
        function.close()


# -- the standard library -----------------------------------------------------------------

Job: TypeAlias = "tuple[int, Future[int]]"


@contextmanager
def queue_loop() -> Iterator[Submit]:
    """Yield a `submit` in front of a `queue.Queue` and a thread that empties it in batches."""
    jobs: queue.Queue[Job | None] = queue.Queue()

    def submit(item: int) -> Future[int]:
        future: Future[int] = Future()
        jobs.put((item, future))
        return future

    thread = threading.Thread(target=_loop, args=(jobs,), daemon=True)
    thread.start()
    try:
        yield submit
    finally:
        jobs.put(_STOP)
        thread.join()


def _loop(jobs: queue.Queue[Job | None]) -> None:
    while batch := _take(jobs):
        results = double([item for item, _ in batch])
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)


def _take(jobs: queue.Queue[Job | None]) -> list[Job]:
    """Wait for a job; take what else is there, and wait for the rest of a batch."""
    job = jobs.get()
    deadline = perf_counter() + WAIT
    batch: list[Job] = []
    while job is not _STOP:
        batch.append(job)
        if len(batch) == BATCH:
            break
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            left = deadline - perf_counter()
            if left <= 0:
                break
            try:
                job = jobs.get(timeout=left)
            except queue.Empty:
                break
    return batch


# -- from the registry --------------------------------------------------------------------


@contextmanager
def batched_threads(package: Any) -> Iterator[Submit]:  # noqa: ANN401 - a module
    """Yield what a function decorated with `batched.dynamically` does before it waits.

    A call of such a function waits for its item, so a thread could have no more than one of
    them on its way. The part of the call that makes the future is taken alone, which spares
    the peer a wait for every item.
    """
    processor = package.dynamically(double, batch_size=BATCH, timeout_ms=1000 * WAIT)
    schedule = processor._schedule  # noqa: SLF001 - see above
    try:
        yield lambda item: schedule([item])[0]
    finally:
        processor.shutdown()


@asynccontextmanager
async def batched_coroutines(package: Any, function: Any) -> AsyncIterator[Call]:  # noqa: ANN401
    """Yield *function*, decorated with `batched.aio.dynamically`."""
    processor = package.aio.dynamically(function, batch_size=BATCH, timeout_ms=1000 * WAIT)
    yield processor
    processor._task.cancel()  # noqa: SLF001 - it has no method for this


@asynccontextmanager
async def async_batcher(package: Any, function: Any) -> AsyncIterator[Call]:  # noqa: ANN401
    """Yield the `process` of an `AsyncBatcher` whose work is *function*."""
    members = {"process_batch": staticmethod(function)}
    kind = type("Doubler", (package.batcher.AsyncBatcher,), members)
    batcher = kind(max_batch_size=BATCH, max_queue_time=WAIT)
    yield batcher.process
    await batcher.stop(force=True)  # otherwise it looks only once a second whether to stop
