"""The ready-made configurations: every number, and that each makes a queue that works."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    BatchQueueConfig,
    BatchQueueManager,
    BufferStrategy,
    DrainBalancer,
    PartitionPolicy,
    ThreadPolicy,
    presets,
)
from penstock.errors import ConfigError
from penstock.testing import RecordingHandler, StepExecutor

BLOCKING, IF_POSSIBLE = BufferStrategy.BLOCKING, BufferStrategy.IF_POSSIBLE

TYPED: dict[str, Callable[[], BatchQueueConfig[Any]]] = {
    presets.METRICS_L1: presets.metrics_l1,
    presets.METRICS_L2: presets.metrics_l2,
    presets.TOP_N: presets.top_n,
}


def consumer_presets(handler: Any, *, shared: bool) -> dict[str, BatchQueueConfig[Any]]:  # noqa: ANN401 - handlers of any item
    """Return every preset of an I/O queue, by name."""
    return {
        f"{presets.GRPC_REMOTE}.peer": presets.grpc_remote(handler, 2, 300, shared=shared),
        presets.EXPORTER_GRPC_METRICS: presets.exporter_grpc(handler, shared=shared),
        presets.EXPORTER_KAFKA_TRACE: presets.exporter_kafka(handler, shared=shared),
        presets.EXPORTER_KAFKA_LOG: presets.exporter_kafka(handler, shared=shared),
        presets.JDBC_BATCH: presets.jdbc_batch(handler, shared=shared),
    }


IO_NAMES = list(consumer_presets(print, shared=False))


def test_l1_refuses_under_pressure_and_rebalances_every_ten_seconds() -> None:
    """Every number of the L1 queue."""
    assert presets.metrics_l1() == BatchQueueConfig[Any](
        threads=ThreadPolicy.cpu_cores(1.0),
        partitions=PartitionPolicy.adaptive(25),
        balancer=DrainBalancer.throughput_weighted(1.15),
        rebalance_interval=10.0,
        buffer_size=20_000,
        strategy=IF_POSSIBLE,
        consumer=None,
        min_idle=0.001,
        max_idle=0.05,
    )


def test_l2_blocks_and_rebalances_every_ten_seconds() -> None:
    """Every number of the L2 queue."""
    assert presets.metrics_l2() == BatchQueueConfig[Any](
        threads=ThreadPolicy.cpu_cores_with_base(1, 0.25),
        partitions=PartitionPolicy.adaptive(25),
        balancer=DrainBalancer.throughput_weighted(1.15),
        rebalance_interval=10.0,
        buffer_size=2_000,
        strategy=BLOCKING,
        consumer=None,
        min_idle=0.001,
        max_idle=0.05,
    )


def test_top_n_has_one_thread_and_a_longer_patience() -> None:
    """Every number of the TopN queue."""
    assert presets.top_n() == BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(1),
        partitions=PartitionPolicy.adaptive(25),
        balancer=None,
        rebalance_interval=0.0,
        buffer_size=1_000,
        strategy=BLOCKING,
        consumer=None,
        min_idle=0.01,
        max_idle=0.1,
    )


def test_the_thread_counts_on_eight_cores() -> None:
    """Eight threads for L1, three for L2, one for TopN, four for all I/O together."""
    policies = [presets.metrics_l1().threads, presets.metrics_l2().threads, presets.top_n().threads]
    counts = [policy.resolve(cores=8) for policy in policies if policy is not None]
    assert counts == [8, 3, 1]
    assert ("io", ThreadPolicy.cpu_cores(0.5)) == presets.IO_SCHEDULER
    assert presets.IO_SCHEDULER[1].resolve(cores=8) == 4


def test_the_partitions_that_meters_save() -> None:
    """642 types of weight 1 and 1,247 meters share 452 partitions on eight threads."""
    weight = 642 * 1.0 + 1_247 * presets.MAL_WEIGHT
    assert presets.MAL_WEIGHT == 0.05
    assert presets.metrics_l1().partitions.resolve(8, weight) == 452


@pytest.mark.parametrize(
    ("name", "threads", "buffer_size", "strategy", "max_idle"),
    [
        ("grpc.remote.peer", 1, 600, BLOCKING, 0.05),
        ("exporter.grpc.metrics", 1, 20_000, BLOCKING, 0.2),
        ("exporter.kafka.trace", 1, 20_000, IF_POSSIBLE, 0.2),
        ("exporter.kafka.log", 1, 20_000, IF_POSSIBLE, 0.2),
        ("jdbc.batch", 4, 10_000, BLOCKING, 0.02),
    ],
)
def test_an_io_queue_has_as_many_partitions_as_threads(
    name: str, threads: int, buffer_size: int, strategy: BufferStrategy, max_idle: float
) -> None:
    """Every number of the I/O queues, on threads of their own."""
    assert consumer_presets(print, shared=False)[name] == BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(threads),
        partitions=PartitionPolicy.fixed(threads),
        balancer=None,
        rebalance_interval=0.0,
        buffer_size=buffer_size,
        strategy=strategy,
        consumer=print,
        min_idle=0.001,
        max_idle=max_idle,
    )


@pytest.mark.parametrize("name", IO_NAMES)
def test_a_shared_io_queue_differs_in_its_scheduler_only(name: str) -> None:
    """Sharing changes where the queue runs, and with one drain task it has one partition."""
    own = consumer_presets(print, shared=False)[name]
    shared = consumer_presets(print, shared=True)[name]
    assert shared.shared_scheduler == presets.IO_SCHEDULER
    assert shared.threads is None
    assert shared.partitions == PartitionPolicy.fixed(1)
    assert set(own.differences(shared)) <= {"threads", "shared_scheduler", "partitions"}


def test_sizes_can_be_chosen() -> None:
    """Buffer and pool sizes that depend on the deployment are parameters."""
    assert presets.exporter_grpc(print, 7).buffer_size == 7
    assert presets.exporter_kafka(print, 8).buffer_size == 8
    assert presets.grpc_remote(print, 3, 5).buffer_size == 15
    assert presets.jdbc_batch(print, 2).threads == ThreadPolicy.fixed(2)
    assert presets.jdbc_batch(print, 2).partitions == PartitionPolicy.fixed(2)


def test_a_size_that_cannot_work_is_refused() -> None:
    """A preset is checked like any other configuration."""
    with pytest.raises(ConfigError, match="buffer_size"):
        presets.grpc_remote(print, 0, 100)
    with pytest.raises(ConfigError, match="fixed"):
        presets.jdbc_batch(print, 0)


def test_the_names_are_dotted_lower_case() -> None:
    """Names are thread-name and metric prefixes, so they are written alike."""
    assert list(TYPED) == ["metrics.l1", "metrics.l2", "topn"]
    assert IO_NAMES == [
        "grpc.remote.peer",
        "exporter.grpc.metrics",
        "exporter.kafka.trace",
        "exporter.kafka.log",
        "jdbc.batch",
    ]


@pytest.mark.parametrize("name", TYPED)
def test_a_typed_preset_makes_a_queue_that_works(name: str) -> None:
    """Items reach the handler of their type, and shutdown flushes it."""
    steps = StepExecutor()
    numbers, words = RecordingHandler[int](), RecordingHandler[str]()
    queue = BatchQueueManager(clock=steps.clock, factory=steps).create(name, TYPED[name]())
    queue.add_handler(int, numbers)
    queue.add_handler(str, words, weight=presets.MAL_WEIGHT)
    assert queue.produce_many([1, "one", 2, "two"]) == 4
    steps.run_until_idle()
    assert (numbers.items, words.items) == ([1, 2], ["one", "two"])
    assert queue.shutdown().complete
    assert numbers.idle_calls
    assert words.idle_calls


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", IO_NAMES)
def test_an_io_preset_makes_a_queue_that_works(name: str, *, shared: bool) -> None:
    """The consumer gets every item, on threads of the queue's own or on shared ones."""
    steps = StepExecutor()
    handler = RecordingHandler[int]()
    config = consumer_presets(handler, shared=shared)[name]
    queue = BatchQueueManager(clock=steps.clock, factory=steps).create(name, config)
    assert queue.produce_many(range(9)) == 9
    steps.run_until_idle()
    assert sorted(handler.items) == list(range(9))
    assert queue.shutdown().complete
