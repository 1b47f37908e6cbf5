"""Every exception penstock raises on purpose, under one base class."""

from __future__ import annotations

__all__ = [
    "AbandonedError",
    "BatcherFullError",
    "BatcherStateError",
    "CompletionError",
    "ConfigError",
    "DependencyError",
    "FilesMergedError",
    "IndeterminateError",
    "InvalidItemError",
    "InvalidSizeError",
    "ItemFailedError",
    "ItemTooLargeError",
    "JobError",
    "LandingError",
    "LeaseLostError",
    "MetricChangedError",
    "NotSentError",
    "PenstockError",
    "QueueClosedError",
    "QueueExistsError",
    "QueueModeError",
    "ReceiverError",
    "ReentrantCallError",
    "ReentrantProduceError",
    "ResultCountError",
    "RulesError",
    "SchedulerClosedError",
    "SelectorError",
    "StoreBusyError",
    "StoreError",
    "StoreUnavailableError",
]


class PenstockError(Exception):
    """Base of all errors raised by penstock."""


class ConfigError(PenstockError, ValueError):
    """A setting has a value that cannot work; the message names the field and the remedy."""


class InvalidItemError(PenstockError, TypeError):
    """An item that no queue can carry (None) was produced; nothing of the call was accepted."""


class SelectorError(PenstockError, ValueError):
    """A partition selector answered with something that is not a partition index."""


class QueueExistsError(PenstockError, ValueError):
    """A queue of that name is registered already; names are unique per manager."""


class QueueModeError(PenstockError, RuntimeError):
    """Consumer mode and handler-map mode were mixed on one queue."""


class QueueClosedError(PenstockError, RuntimeError):
    """The queue has been shut down and takes no more handlers."""


class SchedulerClosedError(PenstockError, RuntimeError):
    """The scheduler has been closed and takes no more tasks."""


class ReentrantProduceError(PenstockError, RuntimeError):
    """A handler produced into its own full, blocking queue, which would wait for itself.

    ``accepted`` is how many items of the call had been accepted before.
    """

    def __init__(self, message: str, accepted: int = 0) -> None:
        super().__init__(message)
        self.accepted = accepted


class BatcherStateError(PenstockError, RuntimeError):
    """The batcher's state does not allow the call; the message names the state and the remedy."""


class BatcherFullError(PenstockError, RuntimeError):
    """The batcher had no room for the item in time; it was not accepted."""


class InvalidSizeError(PenstockError, ValueError):
    """An item's size is not a whole number of at least 1; the item was not accepted."""


class ItemTooLargeError(PenstockError, ValueError):
    """An item is larger than a batch may be, and the settings reject those."""


class ReentrantCallError(PenstockError, RuntimeError):
    """A batched function called itself per item, which would wait for its own batch."""


class CompletionError(PenstockError, TypeError):
    """A batch was completed with something that is not a CompleteResult; it is still open."""


class ResultCountError(PenstockError, ValueError):
    """A batch was given another number of results than it has items; all of them failed."""


class ItemFailedError(PenstockError, RuntimeError):
    """An item's batch failed. ``ll_result`` is what the processor said about it."""

    def __init__(self, message: str, ll_result: object = None) -> None:
        super().__init__(message)
        self.ll_result = ll_result


class AbandonedError(PenstockError, RuntimeError):
    """An accepted item was given up; which of the two subclasses says what that means.

    ``ll_result`` is what the processor said about it, if it said anything.
    """

    def __init__(self, message: str, ll_result: object = None) -> None:
        super().__init__(message)
        self.ll_result = ll_result


class NotSentError(AbandonedError):
    """The processor never got the item: it is safe to submit it again."""


class IndeterminateError(AbandonedError):
    """The processor had the item when it was given up: it may have taken effect or not."""


class DependencyError(PenstockError, RuntimeError):
    """Something outside penstock is missing (an extra, Java); the message says how to get it."""


class ReceiverError(PenstockError, RuntimeError):
    """The receiver cannot listen; the message says where, and what to do."""


class RulesError(PenstockError, ValueError):
    """Metric rules have errors; the message lists each with file, line, column and remedy."""


class JobError(PenstockError, RuntimeError):
    """The aggregation cannot start or go on; the message says why and what to do."""


class LandingError(PenstockError, RuntimeError):
    """The landing folder cannot be used; the message says why and what to do."""


class MetricChangedError(JobError):
    """A metric's definition differs from the one its stored values were made with."""


class StoreError(PenstockError, RuntimeError):
    """The store refused what it was asked; nothing of the transaction took effect."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, or not with these credentials."""


class StoreBusyError(StoreError):
    """Another job holds the store's lease: ``holder``, for ``seconds`` more unless it renews it."""

    def __init__(self, message: str, holder: str, seconds: float) -> None:
        super().__init__(message)
        self.holder = holder
        self.seconds = seconds


class LeaseLostError(StoreError):
    """The lease passed to another job; this one must not write any more."""


class FilesMergedError(StoreError):
    """Some landed files are in the ledger already; ``files`` are their names."""

    def __init__(self, message: str, files: tuple[str, ...]) -> None:
        super().__init__(message)
        self.files = files
