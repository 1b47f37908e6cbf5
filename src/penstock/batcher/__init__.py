"""Batches by size and age, with an outcome for every item."""

from __future__ import annotations

from penstock.batcher.batcher import Batcher
from penstock.batcher.completion import (
    Abandonment,
    BatchFault,
    CompleteResult,
    Completion,
    EnqueueResult,
    ProcessResult,
)
from penstock.batcher.decorator import BatchedFunction, batched
from penstock.batcher.settings import BatchSettings
from penstock.batcher.stats import BatcherStats, DrainReport

__all__ = [
    "Abandonment",
    "BatchFault",
    "BatchSettings",
    "BatchedFunction",
    "Batcher",
    "BatcherStats",
    "CompleteResult",
    "Completion",
    "DrainReport",
    "EnqueueResult",
    "ProcessResult",
    "batched",
]
