"""What queues cost that have nothing to do, and how soon one of them answers."""

from __future__ import annotations

import gc
import math
import statistics
import threading
import tracemalloc
from dataclasses import dataclass
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any

from penstock.batchqueue import BatchQueue, BatchQueueConfig, HandlerConsumer, PartitionPolicy
from penstock.bench import _workload
from penstock.bench._harness import Goal, Outcome, Progress
from penstock.scheduling import ThreadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

QUEUES = 50
THREADS = 4
PARTITIONS = 452
SLOTS = 20_000


@dataclass(frozen=True, slots=True)
class Size:
    """How long is looked."""

    seconds: float = 10.0
    """Of idleness, in each of the parts."""
    parts: int = 2
    """How often each kind of queue is looked at, in turn."""
    samples: int = 500
    """Items whose way to the handler is timed."""
    gap: float = 0.005
    """Seconds between two of them, in which the drain threads have long parked."""


QUICK = Size(seconds=0.2, parts=1, samples=20, gap=0.002)


def run(progress: Progress, *, quick: bool = False) -> Outcome:
    """Measure CPU, latency and memory."""
    size = QUICK if quick else Size()
    progress.expect(2 * size.parts + 2)
    outcome = _cpu(size, progress)
    progress.step("latency of an idle queue")
    outcome.join(_latency(size))
    progress.step("memory of an idle queue")
    outcome.join(_memory())
    return outcome


class _Flusher(HandlerConsumer[Any]):
    """A handler with something to do when idle, so that its queue wakes for it."""

    def consume(self, batch: list[Any]) -> None:
        pass

    def on_idle(self) -> None:
        pass


def _cpu(size: Size, progress: Progress) -> Outcome:
    """Watch 50 queues of 4 threads with 4 handlers each: without and with on_idle, in turn."""
    plain: list[float] = []
    flushing: list[float] = []
    threads = 0
    for _ in range(size.parts):
        progress.step(f"{QUEUES} idle queues")
        share, threads = _share_of_a_core(lambda: _workload.no_op, size.seconds)
        plain.append(share)
        progress.step(f"{QUEUES} idle queues with on_idle")
        flushing.append(_share_of_a_core(_Flusher, size.seconds)[0])
    share = statistics.median(plain)
    return Outcome(
        figures={
            "idle_queues": QUEUES,
            "drain_threads_of_all_queues": threads,
            "idle_cpu_percent_of_a_core": share,
            "idle_cpu_percent_of_a_core_with_on_idle": statistics.median(flushing),
        },
        goals=[Goal.below("idle_cpu_percent_of_a_core", share, 0.5)],
    )


def _share_of_a_core(make_handler: Callable[[], Any], seconds: float) -> tuple[float, int]:
    """Return the CPU time of idle queues in per cent of one core, and how many threads they had."""
    before = threading.active_count()
    queues = [_idle_queue(f"idle-{index}", make_handler) for index in range(QUEUES)]
    try:
        threads = threading.active_count() - before
        sleep(min(0.5, seconds))  # let all threads come to rest
        cpu, started = process_time(), perf_counter()
        sleep(seconds)
        return 100 * (process_time() - cpu) / (perf_counter() - started), threads
    finally:
        for queue in queues:
            queue.shutdown()


def _idle_queue(name: str, make_handler: Callable[[], Any]) -> BatchQueue[Any]:
    config = BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(THREADS), partitions=PartitionPolicy.thread_multiply(1)
    )
    queue = BatchQueue[Any](name, config)
    for kind in _workload.make_types(THREADS):
        queue.add_handler(kind, make_handler())
    return queue


class _Ping:
    """An item that knows when it was sent."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = perf_counter()


def _latency(size: Size) -> Outcome:
    """Time single items from produce to consume on a queue that has just parked."""
    taken: list[float] = []
    arrived = threading.Event()

    def consume(batch: list[_Ping]) -> None:
        taken.append(perf_counter() - batch[0].sent)
        arrived.set()

    with _idle_queue("latency", lambda: _workload.no_op) as queue:
        queue.add_handler(_Ping, consume)
        for _ in range(size.samples):
            sleep(size.gap)
            arrived.clear()
            queue.produce(_Ping())
            arrived.wait()
    ranked = sorted(1000 * seconds for seconds in taken)
    median = statistics.median(ranked)
    return Outcome(
        figures={
            "produce_to_consume_median_ms": median,
            "produce_to_consume_p99_ms": ranked[math.ceil(0.99 * len(ranked)) - 1],
        },
        goals=[Goal.below("produce_to_consume_median_ms", median, 2)],
    )


def _memory() -> Outcome:
    """Trace what Python allocates for a queue of 452 partitions of 20,000 slots."""
    config = BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(THREADS),
        partitions=PartitionPolicy.fixed(PARTITIONS),
        buffer_size=SLOTS,
    )
    BatchQueue[Any]("warm-up", config).shutdown()  # what is loaded at first use is no queue's
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with BatchQueue[Any]("memory", config):
            gc.collect()
            used = (tracemalloc.get_traced_memory()[0] - before) / 1e6
    finally:
        tracemalloc.stop()
    name = f"memory_of_{PARTITIONS}_partitions_of_{SLOTS}_slots_mb"
    return Outcome({name: used}, {}, [Goal.below(name, used, 1)])
