"""What moving partitions between threads gains when the load is skewed.

Handlers wait instead of computing, each item for the same time, so a thread can serve so
many items per second and no more, whatever the machine. The producers go over one shuffled
list and wait when a partition is full: a type is offered in proportion to its weight, in
the long run exactly, and nobody gets ahead of the thread with the largest share by more
than the buffers hold. So that thread sets the pace of all: throughput is
``rate of a thread / its share``, and the most that rebalancing can gain is
``largest share * threads - 1``.
"""

from __future__ import annotations

import statistics
import threading
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock.batchqueue import BatchQueue, BatchQueueConfig, DrainBalancer, PartitionPolicy
from penstock.batchqueue.selectors import type_hash
from penstock.bench import _workload
from penstock.bench._harness import Crew, Goal, Outcome, Progress
from penstock.scheduling import ThreadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["run"]

THREADS = 4
PRODUCERS = 4
MIX = ((8, 24), (12, 8), (8, 4), (12, 1))
"""Types and weights in the proportions of ``bench queue``: 40 types, 332 items in a turn."""
PREFIX = "Skewed"
LEAST_SKEW = 1.3
LEAST_SHARE = 0.9
BUFFER = 160
PER_ITEM = 0.0002  # seconds that a handler waits for each item
SPREAD = 0.1  # throughput of the ten intervals: (highest - lowest) / median


@dataclass(frozen=True, slots=True)
class Size:
    """How long is measured."""

    interval: float = 2.0
    """Seconds between rebalances, and of each interval that is looked at."""
    intervals: int = 10
    static_intervals: int = 3
    """... without a balancer, once before and once after."""


QUICK = Size(interval=0.15, static_intervals=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened between two looks at the statistics."""

    rate: float
    by_thread: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """What is offered, and how long each interval lasts."""

    types: Sequence[type]
    items: list[Any]
    seconds: float
    progress: Progress


def run(progress: Progress, *, quick: bool = False) -> Outcome:
    """Measure without a balancer, with one, and once more without."""
    size = QUICK if quick else Size()
    progress.expect(2 * size.static_intervals + size.intervals + 3)
    types = _workload.make_types(sum(number for number, _ in MIX), PREFIX)
    weights = _workload.weights_of(MIX)
    shares = _placed(types, weights)
    assert max(shares) >= LEAST_SKEW * min(shares), shares
    load = Load(types, _workload.shuffled(types, weights), size.interval, progress)
    before, _ = _watch(load, _config(None), size.static_intervals)
    balanced, rebalances = _watch(load, _config(size.interval), size.intervals)
    after, _ = _watch(load, _config(None), size.static_intervals)
    ceiling = max(shares) * THREADS / sum(shares) - 1
    outcome = _compare(before + after, balanced, ceiling)
    outcome.figures["static_ratio_from_weights"] = max(shares) / min(shares)
    outcome.figures["rebalances"] = rebalances
    return outcome


def _placed(types: Sequence[type], weights: Sequence[int]) -> list[int]:
    """Return the weight that each thread gets by the initial placement."""
    count = PartitionPolicy.adaptive().resolve(THREADS, len(types))
    loads = [0] * THREADS
    for kind, weight in zip(types, weights, strict=True):
        loads[type_hash(kind) % count % THREADS] += weight
    return loads


def _config(interval: float | None) -> BatchQueueConfig[Any]:
    return BatchQueueConfig[Any](
        threads=ThreadPolicy.io_bound(THREADS),
        partitions=PartitionPolicy.adaptive(),
        buffer_size=BUFFER,
        balancer=None if interval is None else DrainBalancer.throughput_weighted(),
        rebalance_interval=interval or 0.0,
    )


def _watch(load: Load, config: BatchQueueConfig[Any], intervals: int) -> tuple[list[Interval], int]:
    """Run a queue under *load*; return its intervals once it is under way, and its rebalances."""
    over = threading.Event()  # ends the waiting in handlers, so that shutting down is quick
    label = "static" if config.balancer is None else "rebalanced"
    with BatchQueue[Any](label, config) as queue:
        for kind in load.types:
            queue.add_handler(kind, _waiting_handler(over))
        crew = Crew(partial(_offer, queue, load.items, start) for start in range(PRODUCERS))
        crew.release()
        try:
            load.progress.step(f"{label}: getting under way")
            _settle(queue, load.seconds)
            found = []
            for index in range(intervals):
                load.progress.step(f"{label}: interval {index + 1}/{intervals}")
                found.append(_interval(queue, load.seconds))
            rebalances = queue.stats().rebalances
        finally:
            over.set()
            queue.shutdown()
            crew.join()
    return found, rebalances


def _waiting_handler(over: threading.Event) -> Callable[[list[Any]], None]:
    def wait(batch: list[Any]) -> None:
        over.wait(len(batch) * PER_ITEM)

    return wait


def _offer(queue: BatchQueue[Any], items: list[Any], start: int) -> None:
    """Go round the list, each producer from another place, until the queue is shut down."""
    first = start * len(items) // PRODUCERS
    turn = items[first:] + items[:first]
    while all(map(queue.produce, turn)):
        pass


def _settle(queue: BatchQueue[Any], seconds: float) -> None:
    """Wait for full buffers and, with a balancer, for the first rebalance to be done."""
    pause = threading.Event()
    pause.wait(seconds)
    while queue.config.balancer is not None and not queue.stats().rebalances:
        pause.wait(seconds / 10)
    pause.wait(seconds / 2)  # what was waiting for the old owners is served


def _interval(queue: BatchQueue[Any], seconds: float) -> Interval:
    first, started = queue.stats(), perf_counter()
    threading.Event().wait(seconds)
    last, elapsed = queue.stats(), perf_counter() - started
    drained = zip(first.drained_by_thread, last.drained_by_thread, strict=True)
    by_thread = tuple(new - old for old, new in drained)
    return Interval((last.consumed - first.consumed) / elapsed, by_thread)


def _ratio(intervals: Sequence[Interval]) -> float:
    """Return heaviest over lightest thread in all *intervals* together."""
    loads = [sum(i.by_thread[thread] for i in intervals) for thread in range(THREADS)]
    return max(loads) / max(1, min(loads))


def _compare(static: list[Interval], balanced: list[Interval], ceiling: float) -> Outcome:
    static_rate = statistics.median(i.rate for i in static)
    rates = [i.rate for i in balanced]
    rate = statistics.median(rates)
    ratio, ratios = _ratio(balanced), [_ratio([i]) for i in balanced]
    gain = rate / static_rate - 1
    spread = (max(rates) - min(rates)) / rate
    return Outcome(
        figures={
            "static_ratio_measured": _ratio(static),
            "rebalanced_ratio": ratio,
            "static_items_per_s": static_rate,
            "rebalanced_items_per_s": rate,
            "gain_percent": 100 * gain,
            "ceiling_of_the_gain_percent": 100 * ceiling,
            "ratio_in_each_interval": ratios,
            "items_per_s_in_each_interval": rates,
            "throughput_spread": spread,
        },
        ratios={"vs_static_placement": rate / static_rate, "gain_vs_ceiling": gain / ceiling},
        goals=[
            Goal.at_most("rebalanced_ratio", ratio, 1.05),
            Goal.at_least("gain_vs_ceiling", gain / ceiling, LEAST_SHARE),
            Goal.at_most("highest_ratio_of_an_interval", max(ratios), 1.15),
            Goal.at_most("throughput_spread", spread, SPREAD),
        ],
    )
