"""A partitioned, self-draining queue with type-based dispatch."""

from __future__ import annotations

from penstock.batchqueue._queue import BatchQueue
from penstock.batchqueue.balancing import DrainBalancer
from penstock.batchqueue.config import BatchQueueConfig
from penstock.batchqueue.handlers import HandlerConsumer, QueueErrorHandler
from penstock.batchqueue.manager import BatchQueueManager
from penstock.batchqueue.policies import BufferStrategy, PartitionPolicy
from penstock.batchqueue.selectors import PartitionSelector
from penstock.batchqueue.stats import (
    BatchQueueStats,
    DrainReport,
    DropCounts,
    PartitionStats,
    TypeStats,
)

__all__ = [
    "BatchQueue",
    "BatchQueueConfig",
    "BatchQueueManager",
    "BatchQueueStats",
    "BufferStrategy",
    "DrainBalancer",
    "DrainReport",
    "DropCounts",
    "HandlerConsumer",
    "PartitionPolicy",
    "PartitionSelector",
    "PartitionStats",
    "QueueErrorHandler",
    "TypeStats",
]
