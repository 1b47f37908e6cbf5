"""How fast items are batched when each has a future of its own, beside other batchers.

Four parts: threads that submit items and take the results afterwards; threads that wait for
each item; coroutines that wait for each item; and what an item costs in memory that waits.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from queue import Queue
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock.bench import _batchers
from penstock.bench._batchers import BATCH, WAIT
from penstock.bench._harness import Crew, Goal, Outcome, Progress, alternate, medians

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.bench._batchers import CallContender, LoopContender, SubmitContender

__all__ = ["run"]

PRODUCERS = 8
CALLERS = 64  # two batches of them, so that one can be formed while the other is processed
COROUTINES = 500
PEERS = {"async-batcher": "async_batcher.batcher", "batched": "batched"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int = 9
    submitted: int = 5_000
    """Items per producing thread, submitted before the first result is taken."""
    called: int = 150
    """Items per thread that waits for each of them."""
    awaited: int = 40
    """Items per coroutine that waits for each of them."""
    held: int = 20_000
    """Items in memory."""


QUICK = Size(rounds=1, submitted=100, called=5, awaited=3, held=1_000)


def run(progress: Progress, *, quick: bool = False) -> Outcome:
    """Measure all four parts, with those peers that are installed."""
    size = QUICK if quick else Size()
    peers = {name: _batchers.load(module) for name, module in PEERS.items()}
    outcome = Outcome(figures=_described(peers))
    parts = _parts(size, {name: peer for name, peer in peers.items() if peer is not None})
    progress.expect(size.rounds * sum(len(part.contenders) for part in parts) + 1)
    for part in parts:
        outcome.join(part.measured(size.rounds, progress))
    progress.step("memory of a queued item")
    outcome.join(_memory(size.held, peers["batched"]))
    return outcome


def _described(peers: Mapping[str, Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {"max_batch_items": BATCH, "max_wait_ms": 1000 * WAIT}
    for name, peer in peers.items():
        label = f"version_of_{name.replace('-', '_')}"
        figures[label] = "not installed" if peer is None else version(name)
    missing = [name for name, peer in peers.items() if peer is None]
    if missing:
        figures["peers_left_out"] = (
            f"{' and '.join(missing)}: pip install --group bench (see pyproject.toml) brings them"
        )
    return figures


# -- items per second ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """One way to use a batcher. The first contender is penstock."""

    contenders: dict[str, Callable[[], float]]
    without_goal: str = ""
    """A peer that is compared, but not to be beaten."""

    def measured(self, rounds: int, progress: Progress) -> Outcome:
        """Run all contenders in turn."""
        rates = medians(alternate(self.contenders, rounds, progress))
        own, *peers = rates
        figures = {f"{name}_items_per_s": rate for name, rate in rates.items()}
        ratios = {f"vs_{peer}": rates[own] / rates[peer] for peer in peers}
        goals = [
            Goal.above(f"vs_{peer}", ratios[f"vs_{peer}"], 1)
            for peer in peers
            if peer != self.without_goal
        ]
        return Outcome(figures, ratios, goals)


def _parts(size: Size, peers: Mapping[str, Any]) -> list[_Part]:
    submits: dict[str, SubmitContender] = {
        "penstock_submit": _batchers.penstock_submit,
        "queue_thread_loop": _batchers.queue_loop,
    }
    calls: dict[str, CallContender] = {
        "penstock_blocking_call": _batchers.penstock_call,
        "queue_thread_loop_blocking_call": _batchers.queue_loop_call,
    }
    awaits: dict[str, LoopContender] = {"penstock_asubmit": _batchers.penstock_asubmit}
    if peer := peers.get("batched"):
        submits["batched_threads"] = partial(_batchers.batched_submit, peer)
        calls["batched_threads_blocking_call"] = partial(_batchers.batched_call, peer)
        for label, function in _batchers.FUNCTIONS.items():
            awaits[f"batched_asyncio{label}"] = partial(_batchers.batched_aio, peer, function)
    if peer := peers.get("async-batcher"):
        for label, function in _batchers.FUNCTIONS.items():
            awaits[f"async_batcher{label}"] = partial(_batchers.async_batcher, peer, function)
    return [
        _Part({name: partial(_submit_rate, c, size.submitted) for name, c in submits.items()}),
        _Part(
            {name: partial(_call_rate, c, size.called) for name, c in calls.items()},
            # Two changes of thread per item, by the system, are most of it for either.
            without_goal="queue_thread_loop_blocking_call",
        ),
        _Part({name: partial(_await_rate, c, size.awaited) for name, c in awaits.items()}),
    ]


def _submit_rate(contender: SubmitContender, items: int) -> float:
    """Return items/s of threads that submit all of their items, then take all results."""
    with contender() as submit:

        def produce(first: int) -> None:
            mine = range(first, first + items)
            futures = [submit(item) for item in mine]
            assert [future.result() for future in futures] == [2 * item for item in mine]

        return _rate_of_threads(produce, PRODUCERS, items)


def _call_rate(contender: CallContender, items: int) -> float:
    """Return items/s of threads that wait for each item before they bring the next."""
    with contender() as call:

        def produce(first: int) -> None:
            for item in range(first, first + items):
                assert call(item) == 2 * item

        return _rate_of_threads(produce, CALLERS, items)


def _rate_of_threads(produce: Callable[[int], None], threads: int, items: int) -> float:
    gc.collect()  # what the one before has left is not to be paid by this one
    crew = Crew(partial(produce, index * items) for index in range(threads))
    started = perf_counter()
    crew.release()
    crew.join()
    return threads * items / (perf_counter() - started)


def _await_rate(contender: LoopContender, items: int) -> float:
    """Return items/s of coroutines that wait for each item before they bring the next."""

    async def main() -> float:
        async with contender() as call:

            async def produce(first: int) -> None:
                for item in range(first, first + items):
                    assert await call(item) == 2 * item

            gc.collect()
            started = perf_counter()
            await asyncio.gather(*(produce(index * items) for index in range(COROUTINES)))
            return COROUTINES * items / (perf_counter() - started)

    return asyncio.run(main())


# -- memory -------------------------------------------------------------------------------


def _memory(items: int, peer: Any) -> Outcome:  # noqa: ANN401 - a module, or None
    """Trace what is allocated for an item that waits, besides the item itself."""
    found: dict[str, float] = {}
    with _batchers.holding(items) as batcher:
        found["penstock_enqueue"] = _bytes_each(
            lambda item: batcher.enqueue(item, 1, _ignore, item), items
        )
    with _batchers.holding(items) as batcher:
        found["penstock_submit_and_its_future"] = _bytes_each(batcher.submit, items)
    plain: Queue[Any] = Queue()
    found["queue_queue_and_a_future"] = _bytes_each(
        lambda item: plain.put((item, Future[int]())), items
    )
    if peer is not None:
        found["batched_threads_and_its_future"] = _bytes_each(_batchers.batched_put(peer), items)
    return Outcome({f"memory_per_queued_item_{name}_bytes": n for name, n in found.items()})


def _bytes_each(put: Callable[[int], object], items: int) -> float:
    for item in range(100):  # what is made at first use is no item's
        put(item)
    numbers = list(range(items))
    gc.collect()
    tracemalloc.start()
    try:
        for item in numbers:
            put(item)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / items
    finally:
        tracemalloc.stop()


def _ignore(context: object, result: object, ll_result: object) -> None:
    """Be told of an item's end."""
