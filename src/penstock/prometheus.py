"""The figures of queues, batchers and the pipeline as Prometheus metrics, read when scraped.

>>> from prometheus_client import CollectorRegistry
>>> from penstock import BatchQueueManager
>>> registry = CollectorRegistry()
>>> registry.register(QueueCollector(BatchQueueManager()))

Nothing is counted twice or kept here: each scrape takes one snapshot per queue. A queue that
was shut down disappears from the next scrape.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    from prometheus_client.registry import Collector
except ImportError as error:
    _MESSAGE = (
        "penstock.prometheus needs the package prometheus_client, which is an extra: "
        "pip install 'penstock[prometheus]'"
    )
    raise ImportError(_MESSAGE) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from penstock.batcher import Batcher, BatcherStats
    from penstock.batchqueue import BatchQueueManager, BatchQueueStats, DropCounts, TypeStats
    from penstock.figures import Figure

__all__ = ["BatcherCollector", "FigureCollector", "QueueCollector", "exposition", "serve"]

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


class BatcherCollector(Collector):
    """Collects from some batchers; names begin with ``penstock_batcher_``, label ``batcher``."""

    def __init__(self, batchers: Iterable[Batcher[Any]]) -> None:
        self._batchers = tuple(batchers)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        all_stats = [batcher.stats() for batcher in self._batchers]
        for name, documentation, read in _BATCHER_COUNTERS:
            family = CounterMetricFamily(
                f"penstock_batcher_{name}", documentation, labels=["batcher"]
            )
            for stats in all_stats:
                family.add_metric([stats.name], read(stats))
            yield family
        for name, documentation, read in _BATCHER_GAUGES:
            gauge = GaugeMetricFamily(f"penstock_batcher_{name}", documentation, labels=["batcher"])
            for stats in all_stats:
                gauge.add_metric([stats.name], read(stats))
            yield gauge
        due = CounterMetricFamily(
            "penstock_batcher_sent",
            "Batches by what made them due",
            labels=["batcher", "because"],
        )
        for stats in all_stats:
            for cause, count in stats.sent_because.items():
                due.add_metric([stats.name, cause], count)
        yield due


_BATCHER_COUNTERS: Sequence[tuple[str, str, Callable[[BatcherStats], float]]] = (
    ("accepted", "Items accepted", lambda stats: stats.accepted),
    ("ok", "Items that ended well", lambda stats: stats.ok),
    ("failed", "Items that ended in an error", lambda stats: stats.failed),
    ("not_sent", "Items given up before they were sent", lambda stats: stats.not_sent),
    ("indeterminate", "Items given up while being processed", lambda stats: stats.indeterminate),
    ("batches", "Batches sent", lambda stats: stats.batches),
)
_BATCHER_GAUGES: Sequence[tuple[str, str, Callable[[BatcherStats], float]]] = (
    ("queued", "Items that wait", lambda stats: stats.queued),
    ("queued_size", "Their size", lambda stats: stats.queued_size),
    ("pending_batches", "Batches in the processor's hands", lambda stats: stats.pending_batches),
    ("faulted", "1 while it is faulted", lambda stats: stats.is_faulted),
)


class FigureCollector(Collector):
    """Collects what a function tells; names begin with ``penstock_``."""

    def __init__(self, figures: Callable[[], Iterable[Figure]]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        for figure in self._figures():
            kind = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
            family = kind(f"penstock_{figure.name}", figure.help, labels=figure.labels)
            for values, number in figure.samples.items():
                family.add_metric(values, number)
            yield family


def exposition(collectors: Iterable[Collector]) -> Callable[[], tuple[bytes, str]]:
    """Return a function that returns a scrape's text and its content type."""
    registry = _registry(collectors)
    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)


def serve(collectors: Iterable[Collector], host: str, port: int) -> Callable[[], None]:
    """Answer scrapes on a thread of its own; return a function that ends this.

    Raises OSError if the port cannot be had.
    """
    server, thread = start_http_server(port, host, _registry(collectors))

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _registry(collectors: Iterable[Collector]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return registry


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
