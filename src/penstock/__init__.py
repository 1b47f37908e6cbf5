"""A self-draining batch queue, and the telemetry pipeline that is built on it."""

from __future__ import annotations

from penstock.batchqueue import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    BatchQueueStats,
    BufferStrategy,
    DrainBalancer,
    DrainReport,
    HandlerConsumer,
    PartitionPolicy,
    PartitionSelector,
    QueueErrorHandler,
)
from penstock.errors import PenstockError
from penstock.scheduling import ThreadPolicy

__all__ = [
    "BatchQueue",
    "BatchQueueConfig",
    "BatchQueueManager",
    "BatchQueueStats",
    "BufferStrategy",
    "DrainBalancer",
    "DrainReport",
    "HandlerConsumer",
    "PartitionPolicy",
    "PartitionSelector",
    "PenstockError",
    "QueueErrorHandler",
    "ThreadPolicy",
    "__version__",
]

__version__ = "0.1.0"
