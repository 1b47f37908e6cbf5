"""Everything that the batcher bench compares, each behind the same small interface.

A contender is a context manager that yields ``submit(item) -> future`` or, to be waited for,
``call(item)``; those of asyncio are asynchronous and yield ``call(item) -> awaitable``. All
double numbers, in batches of up to `BATCH`, and let an item wait for company for `WAIT` seconds.
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
    Call: TypeAlias = Callable[[int], int]
    AsyncCall: TypeAlias = Callable[[int], Awaitable[int]]
    SubmitContender: TypeAlias = Callable[[], AbstractContextManager[Submit]]
    CallContender: TypeAlias = Callable[[], AbstractContextManager[Call]]
    LoopContender: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncCall]]

__all__ = [
    "BATCH",
    "FUNCTIONS",
    "WAIT",
    "async_batcher",
    "batched_aio",
    "batched_call",
    "batched_put",
    "batched_submit",
    "holding",
    "load",
    "penstock_asubmit",
    "penstock_call",
    "penstock_submit",
    "queue_loop",
    "queue_loop_call",
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


# Batchers of asyncio call a coroutine function in the event loop, which is their best side, and
# a plain function in a thread, which is what penstock does.
FUNCTIONS = {"": double_async, "_plain_function": double}


# -- penstock -----------------------------------------------------------------------------


def _process(items: list[int], complete: Completion) -> ProcessResult:
    complete.each(double(items))
    return ProcessResult.OK


def _batcher(settings: BatchSettings) -> Batcher[int]:
    return Batcher[int](_process, settings, on_batch_faulted=lambda _fault: None)


SETTINGS = BatchSettings(max_batch_size=BATCH, min_batch_size=BATCH, min_wait_time=WAIT)


@contextmanager
def penstock_submit() -> Iterator[Submit]:
    """Yield `Batcher.submit`."""
    with _batcher(SETTINGS) as batcher:
        yield batcher.submit


@contextmanager
def penstock_call() -> Iterator[Call]:
    """Yield a function decorated with `@batched`."""
    function = batched(max_batch_size=BATCH, max_wait=WAIT)(double)
    try:
        yield function
    finally:
        function.close()


@asynccontextmanager
async def penstock_asubmit() -> AsyncIterator[AsyncCall]:
    """Yield `Batcher.asubmit`."""
    async with _batcher(SETTINGS) as batcher:
        yield batcher.asubmit


def holding(items: int) -> Batcher[int]:
    """Return a batcher that sends nothing before it has more than *items*."""
    many = 2 * items
    return _batcher(BatchSettings(max_batch_size=many, min_batch_size=many, min_wait_time=3600.0))


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


@contextmanager
def queue_loop_call() -> Iterator[Call]:
    """Yield a call that waits for the future of `queue_loop`."""
    with queue_loop() as submit:
        yield lambda item: submit(item).result()


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
def batched_call(package: Any) -> Iterator[Any]:  # noqa: ANN401 - a module, and its processor
    """Yield a function decorated with `batched.dynamically`."""
    processor = package.dynamically(double, batch_size=BATCH, timeout_ms=1000 * WAIT)
    try:
        yield processor
    finally:
        processor.shutdown()


@contextmanager
def batched_submit(package: Any) -> Iterator[Submit]:  # noqa: ANN401 - a module
    """Yield what such a function does before it waits.

    It has no public way to get the future; waiting for each item would hold it back.
    """
    with batched_call(package) as processor:
        schedule = processor._schedule  # noqa: SLF001 - see above
        yield lambda item: schedule([item])[0]


def batched_put(package: Any) -> Callable[[int], object]:  # noqa: ANN401 - a module
    """Return what such a function does to queue an item, with nobody to take it out."""
    queued = package.dynamically(double).batch_queue
    make = package.batch_generator.BatchItem
    return lambda item: queued.extend([make(content=item, priority=0)])


@asynccontextmanager
async def batched_aio(package: Any, function: Any) -> AsyncIterator[AsyncCall]:  # noqa: ANN401
    """Yield *function*, decorated with `batched.aio.dynamically`."""
    processor = package.aio.dynamically(function, batch_size=BATCH, timeout_ms=1000 * WAIT)
    yield processor
    processor._task.cancel()  # noqa: SLF001 - it has no method for this


@asynccontextmanager
async def async_batcher(package: Any, function: Any) -> AsyncIterator[AsyncCall]:  # noqa: ANN401
    """Yield the `process` of an `AsyncBatcher` whose work is *function*."""
    members = {"process_batch": staticmethod(function)}
    kind = type("Doubler", (package.AsyncBatcher,), members)
    batcher = kind(max_batch_size=BATCH, max_queue_time=WAIT)
    yield batcher.process
    await batcher.stop(force=True)  # otherwise it looks only once a second whether to stop
