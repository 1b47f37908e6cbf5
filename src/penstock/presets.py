"""Ready configurations for the usual concerns of a metrics pipeline.

Each function returns a :class:`BatchQueueConfig`; the constants are the names that go with
them. Change a number with ``dataclasses.replace``.

>>> metrics_l1().buffer_size
20000
>>> jdbc_batch(print, shared=True).shared_scheduler
('io', ThreadPolicy.cpu_cores(0.5))
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.batchqueue import BatchQueueConfig, BufferStrategy, DrainBalancer, PartitionPolicy
from penstock.scheduling import ThreadPolicy

if TYPE_CHECKING:
    from penstock.batchqueue.config import Handler

__all__ = [
    "EXPORTER_GRPC_METRICS",
    "EXPORTER_KAFKA_LOG",
    "EXPORTER_KAFKA_TRACE",
    "GRPC_REMOTE",
    "IO_SCHEDULER",
    "JDBC_BATCH",
    "MAL_WEIGHT",
    "METRICS_L1",
    "METRICS_L2",
    "TOP_N",
    "exporter_grpc",
    "exporter_kafka",
    "grpc_remote",
    "jdbc_batch",
    "metrics_l1",
    "metrics_l2",
    "top_n",
]

T = TypeVar("T")

METRICS_L1 = "metrics.l1"
METRICS_L2 = "metrics.l2"
TOP_N = "topn"
GRPC_REMOTE = "grpc.remote"
"""There is one such queue for each peer: append a dot and the peer's name."""
EXPORTER_GRPC_METRICS = "exporter.grpc.metrics"
EXPORTER_KAFKA_TRACE = "exporter.kafka.trace"
EXPORTER_KAFKA_LOG = "exporter.kafka.log"
JDBC_BATCH = "jdbc.batch"

MAL_WEIGHT = 0.05
"""The weight of a meter type on the L1 queue, where a type derived from traffic weighs 1.

A scrape brings about 500 items of a meter type, so 40 types would fill the 20,000 slots of
one partition; a weight of one twentieth leaves half of them free.
"""

IO_SCHEDULER = ("io", ThreadPolicy.cpu_cores(0.5))
"""The threads that all queues made with ``shared=True`` have in common.

A handler that waits occupies one of them. None of these queues may therefore wait for room
in another of them: with both on one thread, neither would go on.
"""


def metrics_l1() -> BatchQueueConfig[Any]:
    """First aggregation: many types, much traffic; under pressure a new item is refused."""
    return BatchQueueConfig(
        threads=ThreadPolicy.cpu_cores(1.0),
        partitions=PartitionPolicy.adaptive(),
        balancer=DrainBalancer.throughput_weighted(),
        rebalance_interval=10.0,
        buffer_size=20_000,
        strategy=BufferStrategy.IF_POSSIBLE,
        min_idle=0.001,
        max_idle=0.05,
    )


def metrics_l2() -> BatchQueueConfig[Any]:
    """Merging before storage: what L1 has condensed is not dropped any more."""
    return BatchQueueConfig(
        threads=ThreadPolicy.cpu_cores_with_base(1, 0.25),
        partitions=PartitionPolicy.adaptive(),
        balancer=DrainBalancer.throughput_weighted(),
        rebalance_interval=10.0,
        buffer_size=2_000,
        strategy=BufferStrategy.BLOCKING,
        min_idle=0.001,
        max_idle=0.05,
    )


def top_n() -> BatchQueueConfig[Any]:
    """Rankings: a few types with little traffic, all on one thread."""
    return BatchQueueConfig(
        threads=ThreadPolicy.fixed(1),
        partitions=PartitionPolicy.adaptive(),
        buffer_size=1_000,
        strategy=BufferStrategy.BLOCKING,
        min_idle=0.01,
        max_idle=0.1,
    )


def grpc_remote(
    consumer: Handler[T], channel_size: int, buffer_size: int, *, shared: bool = False
) -> BatchQueueConfig[T]:
    """Sending to one peer over gRPC, with room for *channel_size* times *buffer_size* items."""
    config = BatchQueueConfig(
        threads=ThreadPolicy.fixed(1),
        partitions=PartitionPolicy.fixed(1),
        buffer_size=channel_size * buffer_size,
        strategy=BufferStrategy.BLOCKING,
        consumer=consumer,
        min_idle=0.001,
        max_idle=0.05,
    )
    return _on_io_threads(config) if shared else config


def exporter_grpc(
    consumer: Handler[T], buffer_size: int = 20_000, *, shared: bool = False
) -> BatchQueueConfig[T]:
    """Exporting over gRPC: a slow peer slows its producers down."""
    config = BatchQueueConfig(
        threads=ThreadPolicy.fixed(1),
        partitions=PartitionPolicy.fixed(1),
        buffer_size=buffer_size,
        strategy=BufferStrategy.BLOCKING,
        consumer=consumer,
        min_idle=0.001,
        max_idle=0.2,
    )
    return _on_io_threads(config) if shared else config


def exporter_kafka(
    consumer: Handler[T], buffer_size: int = 20_000, *, shared: bool = False
) -> BatchQueueConfig[T]:
    """Exporting to Kafka: a slow broker costs new items, never the producers' time."""
    config = exporter_grpc(consumer, buffer_size, shared=shared)
    return replace(config, strategy=BufferStrategy.IF_POSSIBLE)


def jdbc_batch(
    consumer: Handler[T], pool_size: int = 4, *, shared: bool = False
) -> BatchQueueConfig[T]:
    """Batched writes to a database: *pool_size* threads with a partition each.

    *consumer* is called on several threads at once. With ``shared=True`` it is not: the queue
    then has one drain task and one partition, whatever *pool_size* is.
    """
    config = BatchQueueConfig(
        threads=ThreadPolicy.fixed(pool_size),
        partitions=PartitionPolicy.fixed(pool_size),
        buffer_size=10_000,
        strategy=BufferStrategy.BLOCKING,
        consumer=consumer,
        min_idle=0.001,
        max_idle=0.02,
    )
    return _on_io_threads(config) if shared else config


def _on_io_threads(config: BatchQueueConfig[T]) -> BatchQueueConfig[T]:
    """Move *config* to the shared threads, where one drain task needs one partition."""
    return replace(
        config,
        threads=None,
        shared_scheduler=IO_SCHEDULER,
        partitions=PartitionPolicy.fixed(1),
    )
