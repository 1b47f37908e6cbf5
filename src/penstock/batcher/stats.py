"""Frozen snapshots of what a batcher holds, has done and has given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BatcherStats", "DrainReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherStats:
    """A batcher at one moment; all numbers are read together."""

    name: str
    state: str
    is_faulted: bool
    queued: int
    """Accepted items that wait to be sent."""
    queued_size: int
    pending_batches: int
    """Batches in the processor's hands, or whose callbacks are running."""
    accepted: int
    ok: int
    failed: int
    not_sent: int
    indeterminate: int
    cancelled: int
    """Items whose future was cancelled before they were sent."""
    batches: int
    sent_because: Mapping[str, int]
    """Batches by what made them due: overflow, size, age, flush, pressure."""
    refused: Mapping[str, int]
    """Items that were not accepted, by cause."""
    stray_completions: int
    """Completions that were ignored because their batch had ended before."""
    callback_errors: int

    @property
    def completed(self) -> int:
        """Accepted items that have ended, in whatever way."""
        return self.ok + self.failed + self.not_sent + self.indeterminate + self.cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """How a close, or a reset, ended."""

    batcher: str
    ok: int
    """Items that ended OK while this went on."""
    failed: int
    not_sent: tuple[Any, ...]
    """Accepted items that the processor never got: yours to store or to send again."""
    indeterminate: tuple[Any, ...]
    """Items given up in the processor's hands: they may have taken effect or not."""
    in_callbacks: int
    """Threads that were in a callback, or in ``process_batch``, and had not returned."""
    elapsed: float
    finished: bool
    """False if the batcher was still closing when the report was made."""

    @property
    def complete(self) -> bool:
        """Whether every accepted item was processed, and nothing goes on."""
        return self.finished and not (self.not_sent or self.indeterminate or self.in_callbacks)
