"""A function of many, called with one: the most common use of a batcher in one line."""

from __future__ import annotations

import functools
import logging
import threading
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from penstock._process import renew_after_fork
from penstock.batcher._log import log
from penstock.batcher.batcher import Batcher
from penstock.batcher.completion import BatchFault, CompleteResult, Completion, ProcessResult
from penstock.batcher.settings import BatchSettings
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BatcherStateError, ConfigError, ReentrantCallError
from penstock.scheduling import ThreadScheduler

if TYPE_CHECKING:
    from asyncio import Future as LoopFuture
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from penstock.batcher.stats import BatcherStats, DrainReport
    from penstock.scheduling import SchedulerFactory

__all__ = ["BatchedFunction", "batched"]

T = TypeVar("T")
R = TypeVar("R")


class BatchedFunction(Generic[T, R]):
    """A function from a list of items to a list of results, to be called per item.

    Call it for the result, :meth:`submit` for a future, ``await`` :meth:`acall`. All callers
    share batches. A batch for which the function raises fails alone; an exception among the
    results is raised to its own caller.
    """

    #   D1  The batcher is opened by the first call, once, and after a close by the next one
    #       (test_the_first_call_opens_and_a_call_after_close_opens_again).

    def __init__(self, function: Callable[[list[T]], Sequence[R]], batcher: Batcher[T]) -> None:
        functools.update_wrapper(cast("Any", self), function)
        self._batcher = batcher
        self._opening = threading.Lock()
        renew_after_fork(self)

    def __set_name__(self, owner: type, name: str) -> None:
        """Refuse to be a method, which would get no instance."""
        msg = (
            f"{owner.__qualname__}.{name}: @batched is for functions of a list of items, not for "
            "methods; put @staticmethod above it, or make one for each instance in __init__"
        )
        raise ConfigError(msg)

    def __call__(self, item: T) -> R:
        """Return the result for *item*, waiting for its batch.

        Raises:
            BatcherStateError: It is being closed on another thread.
            ReentrantCallError: The function called itself, so it would wait for itself.
        """
        self._open()
        if self._batcher._core.life.is_inside():  # noqa: SLF001 - one subsystem
            msg = f"{self._batcher.name} was called by itself; call the function of many instead"
            raise ReentrantCallError(msg)
        return cast("R", self._batcher.submit(item).result())

    def submit(self, item: T) -> Future[R]:
        """Return the future of the result for *item*."""
        self._open()
        return self._batcher.submit(item)

    def acall(self, item: T) -> LoopFuture[R]:
        """Return an awaitable for the result for *item*, in the running event loop."""
        self._open()
        return self._batcher.asubmit(item)

    def close(self, timeout: float | None = None) -> DrainReport:
        """Finish what was asked for and stop the thread; another call starts it again.

        A call that comes before this has returned raises a BatcherStateError.
        """
        return self._batcher.close(timeout, drain=True)

    def stats(self) -> BatcherStats:
        """Return what its batcher holds and has done."""
        return self._batcher.stats()

    def renew_after_fork(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        self._opening = threading.Lock()

    def _open(self) -> None:
        if self._batcher.is_open:
            return
        with self._opening:
            if self._batcher.is_open:
                return
            try:
                self._batcher.open()
            except BatcherStateError as error:
                msg = f"{self._batcher.name} is being closed; call it again after that"
                raise BatcherStateError(msg) from error

    def __repr__(self) -> str:
        return f"<batched {self._batcher.name}, {self._batcher!r}>"


def batched(
    *,
    max_batch_size: int = 32,
    max_wait: float = 0.005,
    clock: Clock = SYSTEM_CLOCK,
    factory: SchedulerFactory = ThreadScheduler,
) -> Callable[[Callable[[list[T]], Sequence[R]]], BatchedFunction[T, R]]:
    """Turn ``def f(items) -> results`` into a function that is called with one item.

    Args:
        max_batch_size: A batch goes as soon as it has so many items,
        max_wait: or once its first item has waited for so many seconds.
        clock: For tests.
        factory: For tests.

    >>> @batched(max_batch_size=100, max_wait=0.0)
    ... def double(numbers: list[int]) -> list[int]:
    ...     return [2 * number for number in numbers]
    >>> double(21)
    42
    >>> double.close().complete
    True
    """
    settings = BatchSettings(
        max_batch_size=max_batch_size, min_batch_size=max_batch_size, min_wait_time=max_wait
    )

    def decorate(function: Callable[[list[T]], Sequence[R]]) -> BatchedFunction[T, R]:
        if not callable(function) or iscoroutinefunction(function):
            msg = f"@batched needs a plain function of a list of items, not {function!r}"
            raise ConfigError(msg)

        def process_batch(items: list[T], complete: Completion) -> ProcessResult:
            try:
                results = function(items)
            except BaseException as error:  # noqa: BLE001 - the batch fails, and nothing else
                complete(CompleteResult.ERROR, error)
            else:
                complete.each(results)
            return ProcessResult.OK

        name = getattr(function, "__qualname__", type(function).__qualname__)
        batcher = Batcher[T](
            process_batch,
            settings,
            on_batch_faulted=_log_fault,
            name=name,
            clock=clock,
            factory=factory,
        )
        return BatchedFunction(function, batcher)

    return decorate


def _log_fault(fault: BatchFault) -> None:
    """Say that the impossible happened: process_batch above never fails."""
    log(logging.ERROR, "batcher.batched_function_faulted", extra={"fault": fault})
