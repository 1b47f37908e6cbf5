"""Every exception penstock raises on purpose, under one base class."""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "InvalidItemError",
    "PenstockError",
    "QueueClosedError",
    "QueueExistsError",
    "QueueModeError",
    "ReentrantProduceError",
    "SchedulerClosedError",
    "SelectorError",
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
