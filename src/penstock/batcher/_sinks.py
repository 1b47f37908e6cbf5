"""Where the outcome of an item goes: a callback, a future, or a future of an event loop.

A sink is told of many items at once, because what is done per item decides how fast a
batcher is. Nothing that user code raises leaves a sink.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.batcher._log import log
from penstock.batcher.completion import Abandonment, CompleteResult
from penstock.errors import IndeterminateError, ItemFailedError, NotSentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.batcher._staging import Entry

__all__ = ["CALLBACKS", "OnItemComplete", "Outcome", "Sink", "claim", "error_of", "settle"]

OnItemComplete: TypeAlias = Callable[[Any, CompleteResult, Any], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a batch ended: one result for all of its items, or a value for each."""

    result: CompleteResult
    ll_result: object = None
    values: Sequence[Any] | None = None
    failed: int = 0
    """How many of the values are exceptions."""


class Sink(Protocol):
    """Tells those who brought items how these ended."""

    def claim(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries that are still wanted; from now on they cannot be cancelled."""
        ...

    def settle(self, contexts: list[Any], result: CompleteResult, ll_result: object) -> int:
        """Tell all of *contexts* the same; return how many calls of user code raised."""
        ...

    def settle_each(self, contexts: list[Any], values: Sequence[Any], failed: int) -> int:
        """Tell each of *contexts* its value, at most *failed* of which are exceptions.

        Returns how many calls of user code raised.
        """
        ...


def claim(entries: list[Entry]) -> list[Entry]:
    """Return those of *entries* that are still wanted, in their order."""
    sinks = {entry[3] for entry in entries}
    if len(sinks) == 1:
        return sinks.pop().claim(entries)
    return [entry for entry in entries if entry[3].claim([entry])]


def settle(entries: list[Entry], outcome: Outcome, begun: list[Sink] | None = None) -> int:
    """Tell everyone the outcome of a batch; return how many calls of user code raised.

    *begun* has the sinks that were told before an interrupt, and gets those that are.
    """
    errors = 0
    begun = [] if begun is None else begun
    for sink in dict.fromkeys(entry[3] for entry in entries):
        if sink in begun:
            continue
        contexts = [entry[4] for entry in entries if entry[3] is sink]
        values = outcome.values
        begun.append(sink)
        if values is None:
            errors += sink.settle(contexts, outcome.result, outcome.ll_result)
        elif len(contexts) == len(entries):
            errors += sink.settle_each(contexts, values, outcome.failed)
        else:
            own = [v for entry, v in zip(entries, values, strict=True) if entry[3] is sink]
            errors += sink.settle_each(contexts, own, outcome.failed)
    return errors


def error_of(result: CompleteResult, ll_result: object) -> BaseException:
    """Return the exception that a future gets for *result*, which is not OK."""
    if result is CompleteResult.ERROR:
        # What ends threads and loops (SystemExit, asyncio's CancelledError…) would do so to the
        # wrong ones, and StopIteration ends a coroutine: they come as the cause of another error.
        if isinstance(ll_result, Exception) and not isinstance(ll_result, StopIteration):
            return ll_result
        failed = ItemFailedError(f"the item's batch failed: {ll_result!r}", ll_result)
        failed.__cause__ = ll_result if isinstance(ll_result, BaseException) else None
        return failed
    if Abandonment.of(ll_result) is Abandonment.NOT_SENT:
        return NotSentError("the item was given up before it was sent; it is safe to retry")
    return IndeterminateError(
        "the item was given up while the processor had it; it may have taken effect", ll_result
    )


class CallbackSink:
    """Calls ``on_item_complete``; a context is the callback and its own context."""

    def claim(self, entries: list[Entry]) -> list[Entry]:
        """Return all: a callback cannot be cancelled."""
        return entries

    def settle(
        self,
        contexts: list[tuple[OnItemComplete, Any]],
        result: CompleteResult,
        ll_result: object,
    ) -> int:
        """Call every callback with the same result."""
        errors = 0
        for callback, context in contexts:
            try:
                callback(context, result, ll_result)
            except BaseException as error:  # noqa: BLE001 - the others must be told as well
                errors += 1
                log(logging.ERROR, "batcher.callback_failed", error=error)
        return errors

    def settle_each(
        self, contexts: list[tuple[OnItemComplete, Any]], values: Sequence[Any], failed: int
    ) -> int:
        """Call every callback with its own value."""
        del failed
        errors = 0
        for context, value in zip(contexts, values, strict=True):
            is_error = isinstance(value, BaseException)
            result = CompleteResult.ERROR if is_error else CompleteResult.OK
            errors += self.settle([context], result, value)
        return errors


CALLBACKS = CallbackSink()
