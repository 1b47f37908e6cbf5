"""What is said about items and batches: results, and the handle a processor answers with."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import CompletionError, ResultCountError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.batcher._staging import Entry

__all__ = [
    "Abandonment",
    "BatchFault",
    "CompleteResult",
    "Completion",
    "EnqueueResult",
    "ProcessResult",
]


class EnqueueResult(enum.Enum):
    """What became of an item that was brought to a batcher."""

    OK = "ok"
    """Accepted: it will complete exactly once."""
    INVALID_ARGS = "invalid arguments"
    """The item is None, the size is not a whole number above 0, or there is no callback."""
    INVALID_STATE = "invalid state"
    """The batcher is not open, or faulted."""
    ERROR = "error"
    """The sizer raised; the error is logged."""
    FULL = "full"
    """There was no room for it in time."""
    TOO_LARGE = "too large"
    """It is larger than a batch may be, and the settings reject those."""


class CompleteResult(enum.Enum):
    """How a batch, and each item in it, ended."""

    OK = "ok"
    ABANDONED = "abandoned"
    """Given up. :meth:`Abandonment.of` says whether the processor ever had it."""
    ERROR = "error"


class ProcessResult(enum.Enum):
    """What a processor says at once about a batch that it was handed."""

    OK = "ok"
    """Taken: the completion has been called, or will be."""
    NOT_OPEN = "not open"
    """Not taken, nothing was done: the items are ABANDONED and the batcher faults."""
    INVALID_ARGS = "invalid arguments"
    ERROR = "error"
    """Not taken: the items end in ERROR and the batcher faults."""


class Abandonment(enum.Enum):
    """What ABANDONED means for an item."""

    NOT_SENT = "not sent"
    """The processor never took it: it is safe to bring it again."""
    INDETERMINATE = "indeterminate"
    """The processor had it when it was given up: it may have taken effect or not."""

    @classmethod
    def of(cls, ll_result: object) -> Abandonment:
        """Tell the two apart by the ``ll_result`` of an ABANDONED item: None means not sent."""
        return cls.NOT_SENT if ll_result is None else cls.INDETERMINATE


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFault:
    """Why a batcher stopped; given to ``on_batch_faulted``."""

    batcher: str
    batch_id: int
    items: int
    result: ProcessResult | CompleteResult
    error: BaseException | None
    """What the processor raised or completed with, if it was an exception."""


class Finisher(Protocol):
    """Takes note of the end of a batch. `Core` is one."""

    def finish(self, batch: Completion, result: CompleteResult, ll_result: object) -> bool:
        """End *batch*, all of its items alike; False if it has ended before."""
        ...

    def finish_each(self, batch: Completion, values: Sequence[Any]) -> bool:
        """End *batch*, each item with its own value; False if it has ended before."""
        ...


class Completion:
    """Ends one batch: call it once, from any thread, also before ``process_batch`` returns.

    A second call is ignored, counted and logged.
    """

    __slots__ = ("_finisher", "batch_id", "count", "entries", "epoch", "first", "is_done")

    def __init__(self, finisher: Finisher, batch_id: int, first: int, entries: list[Entry]) -> None:
        self._finisher = finisher
        self.batch_id = batch_id
        self.first = first  # how many items were taken into batches before
        self.entries = entries
        self.count = len(entries)
        self.epoch = 0  # the finisher's when it was sent: a later one is not faulted by it
        self.is_done = False  # guarded by the finisher's lock (C2)

    def __call__(self, result: CompleteResult, ll_result: object = None) -> bool:
        """End every item of the batch with *result* and *ll_result*.

        Returns:
            Whether this call ended the batch; False if it had ended before.

        Raises:
            CompletionError: *result* is no CompleteResult. The batch goes on waiting.
        """
        if type(result) is not CompleteResult:
            msg = f"a batch is completed with a CompleteResult, not {result!r}"
            raise CompletionError(msg)
        return self._finisher.finish(self, result, ll_result)

    def each(self, values: Sequence[Any]) -> bool:
        """End each item, in their order, with its own value: ERROR if it is an exception, else OK.

        Another number of values than items ends all of them in ERROR, with a ResultCountError;
        so does what *values* raises when it is read.

        Returns:
            Whether this call ended the batch; False if it had ended before.
        """
        try:
            count = len(values)
            values = list(values)  # once, and before the batch has ended: it may be user code
            count = len(values)
        except TypeError:
            count = -1
        except BaseException as error:  # noqa: BLE001 - it is what the items are told
            return self._finisher.finish(self, CompleteResult.ERROR, error)
        if count != self.count:
            got = f"{count} results" if count >= 0 else repr(type(values).__name__)
            msg = f"a batch of {self.count} items was given {got}; it needs one per item"
            return self._finisher.finish(self, CompleteResult.ERROR, ResultCountError(msg))
        return self._finisher.finish_each(self, values)

    def __repr__(self) -> str:
        state = "done" if self.is_done else "pending"
        return f"<Completion of batch {self.batch_id}, {self.count} items, {state}>"
