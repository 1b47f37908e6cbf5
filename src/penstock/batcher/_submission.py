"""The ways to bring an item: with a callback, for a future, for asyncio, from a queue."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.batcher._futures import FUTURES, ItemFuture
from penstock.batcher._log import log
from penstock.batcher._sinks import CALLBACKS, OnItemComplete
from penstock.batcher.completion import CompleteResult, EnqueueResult
from penstock.batchqueue.handlers import HandlerConsumer
from penstock.clock import Clock, wait_until
from penstock.errors import (
    BatcherFullError,
    InvalidItemError,
    InvalidSizeError,
    ItemTooLargeError,
    PenstockError,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from concurrent.futures import Future

    from penstock.batcher._core import Core
    from penstock.batcher._loops import LoopSink
    from penstock.batcher._staging import Entry
    from penstock.batcher.settings import BatchSettings

__all__ = ["Submission"]

T = TypeVar("T")

_OK, _FULL = EnqueueResult.OK, EnqueueResult.FULL


class Submission(HandlerConsumer[T], Generic[T]):
    """Accepts items. `Batcher` adds how it is opened and closed."""

    def __init__(
        self, core: Core, clock: Clock, on_item_complete: OnItemComplete | None = None
    ) -> None:
        self.name = core.name
        self.settings: BatchSettings = core.settings
        self._core = core
        self._clock = clock
        self._on_item_complete = on_item_complete or _ignore
        self._sink_of_loop: Callable[[], LoopSink] | None = None
        settings = core.settings
        self._largest = settings.max_batch_size if settings.oversize == "reject" else math.inf
        self._sizer = settings.sizer
        # Looked up once instead of for every item.
        self._now = clock.now
        self._put = core.put

    def enqueue(
        self,
        item: T,
        size: int | None,
        on_item_complete: OnItemComplete,
        context: object = None,
    ) -> EnqueueResult:
        """Accept *item*, whose end calls ``on_item_complete(context, result, ll_result)``, once.

        Args:
            item: Anything but None.
            size: A whole number of at least 1; None has it measured by the settings' ``sizer``,
                or counts it as 1.
            on_item_complete: Called by the thread that ends the item's batch, or by the one
                that closes. What it raises is logged.
            context: Passed on to the callback.

        Returns:
            What became of it. Only OK means that it was accepted.
        """
        if not callable(on_item_complete):
            return self._refuse(EnqueueResult.INVALID_ARGS)
        try:
            size = self._measure(item, size)
        except (InvalidItemError, InvalidSizeError):
            return EnqueueResult.INVALID_ARGS
        except ItemTooLargeError:
            return EnqueueResult.TOO_LARGE
        except Exception as error:  # noqa: BLE001 - an enum, not an exception, is the answer here
            extra = {"batcher": self.name}
            log(logging.ERROR, "batcher.sizer_failed", error=error, extra=extra)
            return self._refuse(EnqueueResult.ERROR)
        return self._accept((item, size, self._now(), CALLBACKS, (on_item_complete, context)))

    def submit(self, item: T, size: int | None = None) -> Future[Any]:
        """Accept *item*; return the future of its outcome.

        The result is the ``ll_result`` of the item's batch, or its own value if the processor
        gave one to each. Otherwise it raises: the exception the processor gave, or
        ItemFailedError; NotSentError or IndeterminateError for an item that was given up.
        The future can be cancelled until the item is sent.

        Raises:
            InvalidItemError, InvalidSizeError, ItemTooLargeError: The item is at fault.
            BatcherStateError: The batcher is not open, or faulted.
            BatcherFullError: There was no room in time.
        """
        future = ItemFuture()
        entry = (item, self._measure(item, size), self._now(), FUTURES, future)
        verdict = self._put(entry)
        if verdict is not _OK:
            if verdict is _FULL:
                verdict = self._accept(entry)
            if verdict is not _OK:
                raise self._refusal(verdict)
        return future

    def asubmit(self, item: T, size: int | None = None) -> asyncio.Future[Any]:
        """Accept *item*; return a future of the running event loop, to be awaited.

        Outcomes and errors are those of :meth:`submit`. If the batcher is full the future
        waits for room, without blocking the loop and in the order of the calls; a
        BatcherFullError is then raised by the future.
        """
        sink = (self._sink_of_loop or self._import_loops())()
        future = sink.loop.create_future()
        entry = (item, self._measure(item, size), self._now(), sink, future)
        core = self._core
        verdict = _FULL if core.waiting else core.put(entry)
        if verdict is _FULL:
            verdict = self._accept_later(entry)
        if verdict is not _OK:
            raise self._refusal(verdict)
        return future

    def consume(self, batch: list[T]) -> None:
        """Accept the items of a BatchQueue, for one or several of its types.

        Each is measured by the settings' ``sizer``, or counts 1, and completes with
        ``on_item_complete(item, result, ll_result)`` as given to the batcher. One that is not
        accepted completes at once: in ERROR if its sizer raised, otherwise as ABANDONED and
        not sent. While there is no room this waits, and so does the queue.
        """
        entries: list[Entry] = []
        now = self._now()
        for item in batch:
            context = (self._on_item_complete, item)
            try:
                entries.append((item, self._measure(item, None), now, CALLBACKS, context))
            except ItemTooLargeError:
                self._core.turn_down(context, CompleteResult.ABANDONED, None)
            except (InvalidItemError, InvalidSizeError) as error:
                self._core.turn_down(context, CompleteResult.ERROR, error)
            except BaseException as error:  # noqa: BLE001 - one item must not harm the others
                self._refuse(EnqueueResult.ERROR)
                self._core.turn_down(context, CompleteResult.ERROR, error)
        if self._core.put_many(entries):
            return
        for entry in entries:
            if self._accept(entry) is not _OK:
                self._core.turn_down(entry[4], CompleteResult.ABANDONED, None)

    # -- behind them ----------------------------------------------------------------

    def _measure(self, item: T, size: int | None) -> int:
        """Return the size of *item*, or raise what is wrong with it."""
        if item is None:
            self._refuse(EnqueueResult.INVALID_ARGS)
            msg = "None cannot be batched; leave it out, or wrap it"
            raise InvalidItemError(msg)
        if size is None:
            size = 1 if self._sizer is None else self._sizer(item)
        if type(size) is not int or size < 1:
            self._refuse(EnqueueResult.INVALID_ARGS)
            msg = f"the size of an item must be a whole number of at least 1, not {size!r}"
            raise InvalidSizeError(msg)
        if size > self._largest:
            self._refuse(EnqueueResult.TOO_LARGE)
            msg = (
                f"an item of size {size} is larger than max_batch_size ({self._largest}), and "
                'oversize="reject"'
            )
            raise ItemTooLargeError(msg)
        return size

    def _accept(self, entry: Entry) -> EnqueueResult:
        """Accept *entry*, waiting for room as long as the settings say."""
        core = self._core
        verdict = core.put(entry)
        if verdict is not _FULL:
            return verdict
        deadline = self._clock.now() + self.settings.enqueue_timeout

        def is_decided() -> bool:
            if not core.life.is_accepting or core.has_room(entry[1]):
                return True
            return not core.is_pressed  # a batch went and made too little room: press again

        while verdict is _FULL:
            with core.lock:
                left = 0.0 if core.must_not_wait() else deadline - self._clock.now()
                if not wait_until(self._clock, core.life.changed, is_decided, left):
                    return core.refuse(_FULL)
            verdict = core.put(entry)
        return verdict

    def _accept_later(self, entry: Entry) -> EnqueueResult:
        timeout = self.settings.enqueue_timeout
        if timeout == 0:
            return self._refuse(_FULL)
        verdict = self._core.wait_for_room(entry)
        if verdict is _OK and timeout < math.inf:
            entry[3].loop.call_later(timeout, self._expire, entry[4])  # type: ignore[attr-defined]
        return verdict

    def _expire(self, future: asyncio.Future[Any]) -> None:
        if self._core.stop_waiting(future) and not future.done():
            future.set_exception(self._refusal(_FULL))

    def _import_loops(self) -> Callable[[], LoopSink]:
        from penstock.batcher._loops import sink_of_running_loop  # noqa: PLC0415 - 50 ms of asyncio

        self._sink_of_loop = sink_of_running_loop
        return sink_of_running_loop

    def _refuse(self, why: EnqueueResult) -> EnqueueResult:
        with self._core.lock:
            return self._core.refuse(why)

    def _refusal(self, verdict: EnqueueResult) -> PenstockError:
        if verdict is _FULL:
            return BatcherFullError(
                f"batcher {self.name!r} holds {self.settings.capacity} and had no room in "
                f"{self.settings.enqueue_timeout} s; try later, or raise capacity"
            )
        return self._core.state_error()


def _ignore(item: object, result: CompleteResult, ll_result: object) -> None:
    """Do nothing: the outcome of items that a queue brought is only counted."""
