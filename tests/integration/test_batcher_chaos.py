"""Many threads, random completions, faults: nothing lost, nothing doubled, order kept."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest

from penstock.batcher import (
    Abandonment,
    Batcher,
    BatchFault,
    BatchSettings,
    CompleteResult,
    Completion,
    EnqueueResult,
    ProcessResult,
)
from penstock.testing import FakeClock, eventually

PRODUCERS = 12
ITEMS = 400
WAIT = 60.0


class Attempt(NamedTuple):
    """One try to have an item processed; a producer counts its tries."""

    producer: int
    turn: int
    item: int


class Processor:
    """Takes batches and ends them after random times on the fake clock, or fails."""

    def __init__(self, seed: int, clock: FakeClock) -> None:
        self.random = random.Random(seed)
        self.clock = clock
        self.batches: list[list[Attempt]] = []
        self.processed: Counter[tuple[int, int]] = Counter()
        self.faults = 0
        self.inside = 0
        self._sequence = itertools.count()
        self._due: list[tuple[float, int, list[Attempt], Completion]] = []
        self._lock = threading.Lock()

    def process(self, batch: list[Attempt], complete: Completion) -> ProcessResult:
        """Take most batches, and turn one in thirty down."""
        with self._lock:
            self.inside += 1
            assert self.inside == 1, "process_batch was entered twice"
            self.batches.append(batch)
            fails = self.random.random() < 1 / 30
            if not fails:
                due = self.clock.now() + self.random.uniform(0.001, 0.1)
                heapq.heappush(self._due, (due, next(self._sequence), batch, complete))
            self.inside -= 1
        if fails:
            return self.random.choice([ProcessResult.NOT_OPEN, ProcessResult.ERROR])
        return ProcessResult.OK

    def complete_due(self) -> None:
        """End what has been processed by now; what was abandoned meanwhile does not count."""
        with self._lock:
            due = []
            while self._due and self._due[0][0] <= self.clock.now():
                due.append(heapq.heappop(self._due))
        for _, _, batch, complete in due:
            with self._lock:
                self.processed.update((a.producer, a.item) for a in batch)
            assert complete(CompleteResult.OK, None)


class Producer:
    """Brings items in order; after a fault, brings those again that were not processed."""

    def __init__(self, number: int, batcher: Batcher[Attempt]) -> None:
        self.number = number
        self.batcher = batcher
        self.turns = itertools.count()
        self.done: Counter[int] = Counter()
        self.ends: Counter[Attempt] = Counter()
        self.accepted: list[Attempt] = []
        self._again: list[int] = []
        self._changed = threading.Condition()
        self._in_flight = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Bring every item until it has been processed."""
        try:
            left = list(range(ITEMS))
            while left:
                for item in left:
                    self.bring(item)
                left = self.await_outcomes()
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            self.error = error

    def bring(self, item: int) -> None:
        """Bring one item until it is accepted."""
        attempt = Attempt(self.number, next(self.turns), item)
        with self._changed:
            self._in_flight += 1
        while True:
            result = self.batcher.enqueue(attempt, None, self.ended, attempt)
            if result is EnqueueResult.OK:
                self.accepted.append(attempt)
                return
            assert result is EnqueueResult.INVALID_STATE  # faulted: the driver will reset it
            eventually(lambda: self.batcher.is_open, WAIT)

    def ended(self, attempt: Attempt, result: CompleteResult, ll_result: Any) -> None:  # noqa: ANN401 - whatever the processor says
        """Count an outcome."""
        with self._changed:
            self.ends[attempt] += 1
            self._in_flight -= 1
            if result is CompleteResult.OK:
                self.done[attempt.item] += 1
            else:
                is_error = result is CompleteResult.ERROR
                assert is_error or Abandonment.of(ll_result) is Abandonment.NOT_SENT
                self._again.append(attempt.item)
            self._changed.notify_all()

    def await_outcomes(self) -> list[int]:
        """Wait until everything brought has ended; return what has to be brought again."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._in_flight == 0, WAIT)
            again, self._again = sorted(self._again), []
        return again


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_twelve_producers_and_faults_lose_double_and_reorder_nothing(seed: int) -> None:
    """Every item is processed once; each producer's tries are in batches in their order."""
    clock = FakeClock()
    processor = Processor(seed, clock)
    faults: list[BatchFault] = []
    batcher: Batcher[Attempt] = Batcher(
        processor.process,
        BatchSettings(
            max_pending_batches=4,
            max_batch_size=20,
            min_batch_size=15,
            min_wait_time=0.01,
            capacity=200,
        ),
        on_batch_faulted=faults.append,
        clock=clock,
    )
    batcher.open()
    producers = [Producer(number, batcher) for number in range(PRODUCERS)]
    threads = [threading.Thread(target=producer.run) for producer in producers]
    for thread in threads:
        thread.start()

    def drive() -> bool:
        """Move time, end batches, recover from faults; return whether all are done."""
        clock.advance(0.005)
        processor.complete_due()
        if batcher.is_faulted:
            batcher.reset()
        return not any(thread.is_alive() for thread in threads)

    eventually(drive, WAIT)
    assert [producer.error for producer in producers] == [None] * PRODUCERS
    report = batcher.close()
    assert report.complete
    check(processor, producers)
    assert faults, "the processor has never failed: the run shows nothing"
    stats = batcher.stats()
    assert stats.completed == stats.accepted == sum(len(p.accepted) for p in producers)
    assert stats.stray_completions == 0


def check(processor: Processor, producers: list[Producer]) -> None:
    """Nothing lost, nothing doubled, order kept."""
    everything = {(p, item) for p in range(PRODUCERS) for item in range(ITEMS)}
    assert set(processor.processed) == everything
    assert set(processor.processed.values()) == {1}
    for producer in producers:
        assert producer.done == Counter(range(ITEMS))
        assert set(producer.ends) == set(producer.accepted)
        assert set(producer.ends.values()) == {1}
    turns: defaultdict[int, list[int]] = defaultdict(list)
    for attempt in itertools.chain.from_iterable(processor.batches):
        turns[attempt.producer].append(attempt.turn)
    assert all(order == sorted(set(order)) for order in turns.values())
    assert all(len(batch) <= 20 for batch in processor.batches)
