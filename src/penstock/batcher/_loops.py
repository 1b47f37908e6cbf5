"""Outcomes for asyncio: each event loop resolves its own futures, a batch at a time.

Apart from the other sinks because importing asyncio takes longer than all of penstock.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.batcher._log import log
from penstock.batcher._sinks import error_of
from penstock.batcher.completion import CompleteResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.batcher._staging import Entry

__all__ = ["LoopSink", "sink_of_running_loop"]

End: TypeAlias = tuple[Any, BaseException | None]


class LoopSink:
    """Resolves futures of one event loop, on that loop; a context is the future."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def claim(self, entries: list[Entry]) -> list[Entry]:
        """Return those that are not cancelled.

        A look from another thread may be a moment late. Then the item is sent, and its
        result finds the future cancelled: no harm to anyone else.
        """
        return [entry for entry in entries if not entry[4].done()]

    def settle(self, contexts: list[Any], result: CompleteResult, ll_result: object) -> int:
        """Give every future the same result."""
        if result is CompleteResult.OK:
            self._post(contexts, [(ll_result, None)] * len(contexts))
        else:
            self._post(contexts, [(None, error_of(result, ll_result)) for _ in contexts])
        return 0

    def settle_each(self, contexts: list[Any], values: Sequence[Any], failed: int) -> int:
        """Give every future its own value; one that is an exception is raised by it."""
        del failed
        self._post(contexts, [_end(value) for value in values])
        return 0

    def _post(self, futures: list[asyncio.Future[Any]], ends: Iterable[End]) -> None:
        try:
            self.loop.call_soon_threadsafe(_resolve, futures, ends)
        except RuntimeError:  # the loop was closed; nobody waits any more
            log(logging.DEBUG, "batcher.loop_gone")


def _end(value: object) -> End:
    if isinstance(value, BaseException):
        return None, error_of(CompleteResult.ERROR, value)
    return value, None


def _resolve(futures: list[asyncio.Future[Any]], ends: Iterable[End]) -> None:
    for future, (value, error) in zip(futures, ends, strict=True):
        if future.done():  # cancelled
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class _Known(threading.local):
    sink: LoopSink | None = None


_known = _Known()


def sink_of_running_loop() -> LoopSink:
    """Return the sink of the calling thread's event loop."""
    loop = asyncio.get_running_loop()
    sink = _known.sink
    if sink is None or sink.loop is not loop:
        sink = _known.sink = LoopSink(loop)
    return sink
