"""How a batcher is to batch; checked when it is written down, not when it is used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import ConfigError
from penstock.scheduling import ThreadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BatchSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """The settings of one batcher. Times are seconds. Make variants with ``dataclasses.replace``.

    Sizes are in whatever unit items are measured in: bytes, rows, or simply items (an item
    without a size counts 1). A batch is sent when the next item would take it beyond
    ``max_batch_size``; or when everything waiting fits into one batch and that has reached
    ``min_batch_size``, or its first item has waited for ``min_wait_time``.
    """

    max_pending_batches: int = 1
    """Batches that the processor may have in hand at once; no more are sent until one completes."""
    max_batch_size: int = 1000
    """A batch of more than one item is never larger."""
    min_batch_size: int = 1
    min_wait_time: float = 0.0
    """How long an item waits for company when less than ``min_batch_size`` is there."""
    capacity: int | None = None
    """Size of all waiting items together; None: no bound. An item that finds the batcher empty
    is accepted whatever its size."""
    enqueue_timeout: float = math.inf
    """How long to wait for room when full: ``inf`` blocks, 0 refuses at once."""
    oversize: Literal["alone", "reject"] = "alone"
    """What becomes of an item larger than ``max_batch_size``: a batch of its own, or refusal."""
    on_async_error: Literal["continue", "fault"] = "continue"
    """Whether a batch that is completed with anything but OK faults the batcher."""
    close_timeout: float = 30.0
    """How long ``close()`` waits for batches in the processor's hands when it is not told."""
    sizer: Callable[[Any], int] | None = None
    """Measures items that come without a size; called by the thread that brings the item."""
    shared_scheduler: tuple[str, ThreadPolicy] | None = None
    """The name of a scheduler shared with others; its threads, if this is the first use. Without
    it the batcher has a thread of its own. A slow processor delays all who share."""

    def __post_init__(self) -> None:
        for name in ("max_pending_batches", "max_batch_size", "min_batch_size"):
            _check_count(name, getattr(self, name))
        if self.capacity is not None:
            _check_count("capacity", self.capacity)
        for name in ("min_wait_time", "enqueue_timeout", "close_timeout"):
            _check_seconds(name, getattr(self, name))
        if self.min_batch_size > self.max_batch_size:
            msg = (
                f"min_batch_size ({self.min_batch_size}) must not be above max_batch_size "
                f"({self.max_batch_size}): no batch could ever reach it"
            )
            raise ConfigError(msg)
        _check_choice("oversize", self.oversize, ("alone", "reject"))
        _check_choice("on_async_error", self.on_async_error, ("continue", "fault"))
        if self.sizer is not None and not callable(self.sizer):
            msg = f"sizer must be callable(item), not {self.sizer!r}"
            raise ConfigError(msg)
        match self.shared_scheduler:
            case None | (str(), ThreadPolicy()):
                pass
            case wrong:
                msg = f"shared_scheduler must be (name, ThreadPolicy), not {wrong!r}"
                raise ConfigError(msg)


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        msg = f"{name} must be a whole number of at least 1, not {value!r}"
        raise ConfigError(msg)


def _check_seconds(name: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and value >= 0):  # type: ignore[operator] # not >= 0 is true of NaN too
        msg = f"{name} must be seconds of at least 0, not {value!r}"
        raise ConfigError(msg)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        msg = f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}"
        raise ConfigError(msg)
