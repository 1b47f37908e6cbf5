"""The figures of all queues as Prometheus metrics, read when they are scraped.

>>> from prometheus_client import CollectorRegistry
>>> from penstock import BatchQueueManager
>>> registry = CollectorRegistry()
>>> registry.register(QueueCollector(BatchQueueManager()))

Nothing is counted twice or kept here: each scrape takes one snapshot per queue. A queue that
was shut down disappears from the next scrape.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    _MESSAGE = (
        "penstock.prometheus needs the package prometheus_client, which is an extra: "
        "pip install 'penstock[prometheus]'"
    )
    raise ImportError(_MESSAGE) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.core import Metric

    from penstock.batchqueue import BatchQueueManager, BatchQueueStats, DropCounts, TypeStats

__all__ = ["QueueCollector"]

_FULLEST = 10
_CAUSES = ("full", "closed", "evicted", "no_handler", "abandoned")


class QueueCollector(Collector):
    """Collects from every queue of one manager; give it to a ``CollectorRegistry``.

    All names begin with ``penstock_queue_`` and carry the label ``queue``. One registry takes
    one collector: two would bring the same names.
    """

    def __init__(self, manager: BatchQueueManager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, also those without a sample, so that their names are known."""
        queues = [queue.stats() for queue in self._manager.queues()]
        yield from _fill_levels(queues)
        yield from _totals(queues)
        yield from _threads(queues)
        yield from _types(queues)


def _fill_levels(queues: Sequence[BatchQueueStats]) -> Iterator[Metric]:
    used = _gauge(
        "used_percentage",
        f"How full the queue is (total) and its fullest partitions are (top1 to top{_FULLEST})",
        "slot",
    )
    capacity = _gauge("capacity", "Slots of all partitions together")
    for stats in queues:
        used.add_metric([stats.name, "total"], stats.total_used_percentage)
        for rank, partition in enumerate(stats.top_n(_FULLEST), start=1):
            used.add_metric([stats.name, f"top{rank}"], partition.used_percentage)
        capacity.add_metric([stats.name], stats.total_capacity)
    yield used
    yield capacity


def _totals(queues: Sequence[BatchQueueStats]) -> Iterator[Metric]:
    accepted = _counter("accepted", "Items accepted")
    consumed = _counter("consumed", "Items that handlers got")
    dropped = _counter("dropped", "Items that no handler got, by cause", "cause")
    errors = _counter("handler_errors", "Calls of handlers that raised")
    offered = _counter(
        "partition_offered", "Items that producers brought, refused ones included", "partition"
    )
    for stats in queues:
        accepted.add_metric([stats.name], stats.accepted)
        consumed.add_metric([stats.name], stats.consumed)
        errors.add_metric([stats.name], stats.errors)
        for cause in _CAUSES:
            dropped.add_metric([stats.name, cause], _dropped(stats.dropped, cause))
        for partition in stats.partitions:
            offered.add_metric([stats.name, str(partition.index)], partition.offered)
    yield from (accepted, consumed, dropped, errors, offered)


def _threads(queues: Sequence[BatchQueueStats]) -> Iterator[Metric]:
    drained = _counter("thread_drained", "Items that a drain thread took", "thread")
    ratio = _gauge(
        "thread_load_ratio", "Heaviest over lightest drain thread in the last balancing interval"
    )
    rebalances = _counter("rebalances", "Rebalances that moved something")
    moved = _counter("partitions_moved", "Partitions that changed their drain thread")
    abandoned = _counter("handovers_abandoned", "Rebalances rolled back for a busy thread")
    for stats in queues:
        for thread, count in enumerate(stats.drained_by_thread):
            drained.add_metric([stats.name, str(thread)], count)
        if stats.load_ratio is not None:
            ratio.add_metric([stats.name], stats.load_ratio)
        rebalances.add_metric([stats.name], stats.rebalances)
        moved.add_metric([stats.name], stats.partitions_moved)
        abandoned.add_metric([stats.name], stats.handovers_abandoned)
    yield from (drained, ratio, rebalances, moved, abandoned)


def _types(queues: Sequence[BatchQueueStats]) -> Iterator[Metric]:
    accepted = _counter("type_accepted", "Items of a type accepted", "type")
    consumed = _counter("type_consumed", "Items of a type that handlers got", "type")
    dropped = _counter("type_dropped", "Items of a type dropped for whatever cause", "type")
    errors = _counter("type_handler_errors", "Calls of a type's handler that raised", "type")
    for stats in queues:
        for name, kinds in _by_name(stats).items():
            labels = [stats.name, name]
            accepted.add_metric(labels, sum(kind.accepted for kind in kinds))
            consumed.add_metric(labels, sum(kind.consumed for kind in kinds))
            dropped.add_metric(labels, sum(kind.dropped.total for kind in kinds))
            errors.add_metric(labels, sum(kind.errors for kind in kinds))
    yield from (accepted, consumed, dropped, errors)


def _by_name(stats: BatchQueueStats) -> dict[str, list[TypeStats]]:
    """Group types by name: two may share one, and a series must not come twice in a scrape."""
    named: defaultdict[str, list[TypeStats]] = defaultdict(list)
    for kind, figures in stats.types.items():
        named[f"{kind.__module__}.{kind.__qualname__}"].append(figures)
    return dict(sorted(named.items()))


def _dropped(counts: DropCounts, cause: str) -> int:
    value: int = getattr(counts, cause)
    return value


def _gauge(name: str, documentation: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"penstock_queue_{name}", documentation, labels=["queue", *labels])


def _counter(name: str, documentation: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"penstock_queue_{name}", documentation, labels=["queue", *labels])
