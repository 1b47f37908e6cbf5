"""Metrics in two steps and a ranking: L1 condenses, L2 merges minutes, TopN keeps the slowest.

    requests ─┬─▶ metrics.l1 ──(merged per entity and minute)──▶ metrics.l2 ──▶ stored
              └─▶ topn ──(the 50 slowest statements)──▶ slowest

Each stage is a queue with one handler for each type. ``shutdown_all`` closes the queues in the
order of their creation and flushes each before the next one refuses items, so nothing that L1
still held back is lost on its way through L2.
"""

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock import BatchQueue, BatchQueueManager, HandlerConsumer, presets
from penstock.clock import SYSTEM_CLOCK, Clock

TOP = 50
FLUSH_PERIOD = 0.5


@dataclass
class Metric:
    """A mergeable state: what one entity did in one minute."""

    entity: str
    minute: int
    total: int
    count: int

    def combine(self, other: "Metric") -> None:
        """Take *other*, of the same entity and minute, into this one."""
        self.total += other.total
        self.count += other.count


class ResponseTime(Metric):
    """Milliseconds; its value is the mean."""


class Errors(Metric):
    """Failed calls among all calls."""


@dataclass(order=True)
class SlowStatement:
    """A database call that took too long; ordered by latency, ties by identity."""

    latency: int
    identity: int


class MergeCache:
    """One metric for each entity and minute. Used by one handler, so it needs no lock."""

    def __init__(self) -> None:
        self._merged: dict[tuple[str, int], Metric] = {}

    def accept(self, metric: Metric) -> None:
        """Merge *metric* into what is known of its entity and minute."""
        known = self._merged.setdefault((metric.entity, metric.minute), metric)
        if known is not metric:
            known.combine(metric)

    def take(self) -> list[Metric]:
        """Return everything merged so far, and start anew."""
        merged, self._merged = self._merged, {}
        return list(merged.values())


class L1Handler(HandlerConsumer[Metric]):
    """Merges what comes and passes it on twice a second, or as soon as nothing more comes."""

    def __init__(self, forward: Callable[[Metric], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        self._forward = forward
        self._clock = clock
        self._flushed_at = clock.now()
        self._cache = MergeCache()
        self.forwarded = 0

    def consume(self, batch: list[Metric]) -> None:
        """Merge *batch*; pass on if the period is over."""
        for metric in batch:
            self._cache.accept(metric)
        if self._clock.now() - self._flushed_at > FLUSH_PERIOD:
            self.on_idle()

    def on_idle(self) -> None:
        """Pass everything on; L2 blocks, so a slow L2 slows L1 down and loses nothing."""
        self._flushed_at = self._clock.now()
        for metric in self._cache.take():
            assert self._forward(metric)
            self.forwarded += 1


class L2Handler(HandlerConsumer[Metric]):
    """Merges the parts of a minute that came from L1 at different times, and stores them."""

    def __init__(self, stored: dict[tuple[str, int], Metric]) -> None:
        self._stored = stored
        self._cache = MergeCache()

    def consume(self, batch: list[Metric]) -> None:
        """Merge *batch*."""
        for metric in batch:
            self._cache.accept(metric)

    def on_idle(self) -> None:
        """Write what was merged; a database would get one statement for all of it."""
        for metric in self._cache.take():
            known = self._stored.setdefault((metric.entity, metric.minute), metric)
            if known is not metric:
                known.combine(metric)


class TopNHandler(HandlerConsumer[SlowStatement]):
    """Keeps the slowest statements.

    A heap has its smallest element in front, also while it fills up. A list that is appended to
    until it is full and only then treated as sorted loses true maxima: upstream does that, and
    gets the right answer for input in ascending order only.
    """

    def __init__(self) -> None:
        self._heap: list[SlowStatement] = []

    def consume(self, batch: list[SlowStatement]) -> None:
        """Take in what is slower than the fastest kept."""
        for statement in batch:
            if len(self._heap) < TOP:
                heapq.heappush(self._heap, statement)
            else:
                heapq.heappushpop(self._heap, statement)

    def slowest(self) -> list[SlowStatement]:
        """Return what was kept, slowest first."""
        return sorted(self._heap, reverse=True)


def send_requests(
    seed: int, l1: BatchQueue[Metric], top_n: BatchQueue[SlowStatement], log: list[SlowStatement]
) -> None:
    """Be a server that handles 4,000 requests."""
    chance = random.Random(seed)
    for number in range(4_000):
        service, minute = f"service-{number % 3}", number // 2_000
        latency = 1 + int(chance.expovariate(1 / 150))
        # L1 refuses under pressure. In real life that is counted (queue.stats().dropped) and
        # bearable; here every request matters for the sums, so a refused one is sent again.
        for metric in (
            ResponseTime(service, minute, latency, 1),
            Errors(service, minute, int(latency > 900), 1),
        ):
            while not l1.produce(metric):
                pass
        if latency > 200:
            statement = SlowStatement(latency, seed * 100_000 + number)
            log.append(statement)
            top_n.produce(statement)


queues = BatchQueueManager()
# The order of creation is the order of shutdown: L1 before L2.
l1_queue = queues.get_or_create(presets.METRICS_L1, presets.metrics_l1())
l2_queue = queues.get_or_create(presets.METRICS_L2, presets.metrics_l2())
top_queue = queues.get_or_create(presets.TOP_N, presets.top_n())

response_times: dict[tuple[str, int], Metric] = {}
errors: dict[tuple[str, int], Metric] = {}
condensers = [L1Handler(l2_queue.produce), L1Handler(l2_queue.produce)]
ranking = TopNHandler()
l1_queue.add_handler(ResponseTime, condensers[0])
l1_queue.add_handler(Errors, condensers[1])
l2_queue.add_handler(ResponseTime, L2Handler(response_times))
l2_queue.add_handler(Errors, L2Handler(errors))
top_queue.add_handler(SlowStatement, ranking)

logs: list[list[SlowStatement]] = [[], [], []]
servers = [
    threading.Thread(target=send_requests, args=(seed, l1_queue, top_queue, log))
    for seed, log in enumerate(logs)
]
for server in servers:
    server.start()
for server in servers:
    server.join()
reports = queues.shutdown_all()

for (service_name, minute_number), mean in sorted(response_times.items()):
    failed = errors[service_name, minute_number]
    print(
        f"{service_name} minute {minute_number}: {mean.count} calls, "
        f"mean {mean.total // mean.count} ms, {failed.total} failed"
    )
print(f"12,000 requests, two metrics each: L2 got {sum(c.forwarded for c in condensers)} items")
print("slowest statements:", [s.latency for s in ranking.slowest()[:10]], "…")

assert [report.queue for report in reports] == ["metrics.l1", "metrics.l2", "topn"]
assert all(report.complete for report in reports)
assert sum(metric.count for metric in response_times.values()) == 12_000
assert sum(metric.count for metric in errors.values()) == 12_000
everything = sorted((statement for log in logs for statement in log), reverse=True)
assert ranking.slowest() == everything[:TOP]
