"""How fast items go through a queue, beside the standard library's queues.

Three parts: a whole run of 16 producers and 4 drain threads against the same job on
``queue.Queue`` and ``queue.SimpleQueue``; ``produce_many`` against ``produce`` on the
producing side; and what an item costs with 100, 500 and 2,000 types.
"""

from __future__ import annotations

import queue
import random
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from penstock.batchqueue import BatchQueue, BatchQueueConfig, PartitionPolicy
from penstock.bench import _peers, _workload
from penstock.bench._gate import GatedQueue
from penstock.bench._harness import Crew, Goal, Outcome, Progress, alternate, medians
from penstock.scheduling import ThreadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

PRODUCERS = 16
THREADS = 4
BUFFER = 2_000
PER_THREAD = 25  # partitions per thread: a peer's queue has the room of as many
LIST = 1_000
TYPES = (100, 500, 2_000)
LABELS = {
    "queue_simplequeue": "queue_simplequeue_unbounded",
    "bare_call": "bare_call_one_thread",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int = 7
    turns: int = 30
    """How often each producer goes over the list of 830 items."""
    lists: int = 400
    """Lists of 1,000 items per round of producing."""
    producing_rounds: int = 15
    """... more rounds, because they are short."""
    burst: int = 200
    """Items of each type that wait when the drain threads set to work."""
    bursts: int = 10
    """... how often at 100 types; more types make longer bursts, so fewer of them."""


QUICK = Size(rounds=1, turns=1, lists=20, producing_rounds=1, burst=3, bursts=1)


def run(progress: Progress, *, quick: bool = False) -> Outcome:
    """Measure all three parts."""
    size = QUICK if quick else Size()
    progress.expect(size.rounds * (6 + len(TYPES)) + 6 * size.producing_rounds)
    outcome = _throughput(size, progress)
    outcome.join(_producing(size, progress))
    outcome.join(_cost_by_types(size, progress))
    return outcome


# -- a whole run: 16 producers, 4 drain threads ----------------------------------------


def _throughput(size: Size, progress: Progress) -> Outcome:
    types = _workload.make_types(100)
    items = _workload.shuffled(types, _workload.weights_of(_workload.MIX))
    work = [items * size.turns] * PRODUCERS
    alone = [items * size.turns * 4]  # one thread sends the list, four times as often
    handlers = {kind: _new_no_op() for kind in types}
    contenders: dict[str, Callable[[], float]] = {
        "penstock_produce": lambda: _penstock_rate(handlers, work),
        "queue_queue": lambda: _peers.stdlib_rate(_bounded(), handlers, work),
        "queue_simplequeue": lambda: _peers.stdlib_rate(_unbounded(), handlers, work),
        "bare_call": lambda: _peers.bare_call_rate(items * size.turns * PRODUCERS),
        "penstock_produce_one_producer": lambda: _penstock_rate(handlers, alone),
        "queue_queue_one_producer": lambda: _peers.stdlib_rate(_bounded(), handlers, alone),
    }
    rates = medians(alternate(contenders, size.rounds, progress))
    own, own_alone = rates["penstock_produce"], rates["penstock_produce_one_producer"]
    ratios = {
        f"vs_{peer}": own / rates[peer]
        for peer in ("queue_queue", "queue_simplequeue", "bare_call")
    }
    # Sixteen producers queue up behind a lock of queue.Queue; with one it shows its best side.
    ratios["vs_queue_queue_one_producer"] = own_alone / rates["queue_queue_one_producer"]
    figures = {f"{LABELS.get(name, name)}_items_per_s": rate for name, rate in rates.items()}
    return Outcome(
        {"items_per_round": sum(map(len, work)), **figures},
        ratios,
        [Goal.at_least("vs_queue_queue", ratios["vs_queue_queue"], 4)],
    )


def _new_no_op() -> Callable[[list[Any]], None]:
    """Return a handler of its own for a type: one that is shared is entered by one at a time."""
    return partial(_workload.no_op)


def _bounded() -> list[_peers.Source]:
    return [queue.Queue(BUFFER * PER_THREAD) for _ in range(THREADS)]


def _unbounded() -> list[_peers.Source]:
    return [queue.SimpleQueue() for _ in range(THREADS)]


def _penstock_rate(
    handlers: dict[type, Callable[[list[Any]], None]], work: list[list[Any]]
) -> float:
    """Return items/s from the first produce until the last handler has returned."""
    config = BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(THREADS),
        partitions=PartitionPolicy.adaptive(PER_THREAD),
        buffer_size=BUFFER,
        shutdown_timeout=60,
    )
    with BatchQueue[Any]("bench", config) as target:
        for kind, handler in handlers.items():
            target.add_handler(kind, handler)
        crew = Crew(partial(_produce_all, target, items) for items in work)
        started = perf_counter()
        crew.release()
        crew.join()
        report = target.shutdown()
        elapsed = perf_counter() - started
        total = sum(map(len, work))
        assert report.complete
        assert target.stats().consumed == total
        return total / elapsed


def _produce_all(target: BatchQueue[Any], items: list[Any]) -> None:
    produce = target.produce
    for item in items:
        produce(item)


# -- produce_many beside produce: one thread that produces, drain threads held up -------


def _producing(size: Size, progress: Progress) -> Outcome:
    outcome = Outcome()
    for label, number, goal in (("1_type", 1, 5), ("10_types", 10, 2)):
        types = _workload.make_types(number)
        items = _workload.shuffled(types, [LIST // number] * number)
        ratio = _one_against_many(label, [items] * size.lists, outcome, size, progress)
        outcome.goals.append(Goal.at_least(f"produce_many_vs_produce_{label}", ratio, goal))
    items = _workload.shuffled(_workload.make_types(100), _workload.weights_of(_workload.MIX)) * -(
        -LIST * size.lists // 830
    )
    lists = [items[start : start + LIST] for start in range(0, LIST * size.lists, LIST)]
    _one_against_many("100_types_weighted", lists, outcome, size, progress)
    return outcome


def _one_against_many(
    label: str, lists: list[list[Any]], outcome: Outcome, size: Size, progress: Progress
) -> float:
    """Send *lists* item by item and list by list, in turn; return how much faster lists are."""
    types = list(dict.fromkeys(type(item) for batch in lists for item in batch))
    one, many = f"produce_one_by_one_{label}", f"produce_many_lists_of_1000_{label}"
    with GatedQueue(types, room=LIST * len(lists)) as gated:
        contenders: dict[str, Callable[[], float]] = {
            one: lambda: _producer_rate(gated, lists, _send_items),
            many: lambda: _producer_rate(gated, lists, _send_lists),
        }
        rates = medians(alternate(contenders, size.producing_rounds, progress))
    for name, rate in rates.items():
        outcome.figures[f"{name}_items_per_s_of_the_producing_thread"] = rate
    ratio = outcome.ratios[f"produce_many_vs_produce_{label}"] = rates[many] / rates[one]
    return ratio


def _producer_rate(
    gated: GatedQueue,
    lists: list[list[Any]],
    send: Callable[[BatchQueue[Any], list[list[Any]]], None],
) -> float:
    total = sum(map(len, lists))
    gated.hold(total)
    started = perf_counter()
    send(gated.queue, lists)
    elapsed = perf_counter() - started
    gated.drain()
    return total / elapsed


def _send_items(target: BatchQueue[Any], lists: list[list[Any]]) -> None:
    produce = target.produce
    for batch in lists:
        for item in batch:
            produce(item)


def _send_lists(target: BatchQueue[Any], lists: list[list[Any]]) -> None:
    produce_many = target.produce_many
    for batch in lists:
        produce_many(batch)


# -- what an item costs when there are more types ----------------------------------------


def _cost_by_types(size: Size, progress: Progress) -> Outcome:
    """Measure CPU time per item, from produce to the handler, with more and more types.

    However many types there are, the same number of items of each waits when the drain
    threads set to work: a call of a handler is then shared by as many items at 2,000 types
    as at 100, and what is compared is the work per item, not the size of the batches.
    """
    contenders: dict[str, Callable[[], float]] = {}
    for number in TYPES:
        contenders[str(number)] = partial(_cpu_per_item, number, size)
    costs = medians(alternate(contenders, size.rounds, progress))
    growth = costs[str(TYPES[-1])] / costs[str(TYPES[0])]
    name = f"cpu_per_item_{TYPES[-1]}_types_vs_{TYPES[0]}_types"
    figures: dict[str, Any] = {
        f"cpu_per_item_{number}_types_ns": cost * 1e9 for number, cost in costs.items()
    }
    figures["items_per_handler_call_at_any_number_of_types"] = size.burst
    return Outcome(figures, {name: growth}, [Goal.at_most(name, growth, 1.5)])


def _cpu_per_item(number: int, size: Size) -> float:
    types = _workload.make_types(number)
    items = _workload.shuffled(types, [1] * number) * size.burst
    random.Random(_workload.SEED).shuffle(items)  # noqa: S311 - an order, not a secret
    bursts = max(1, size.bursts * TYPES[0] // number)
    spent = 0.0
    with GatedQueue(types, room=size.burst) as gated:
        _burst(gated, items)  # gives every type its route
        for _ in range(bursts):
            spent += _burst(gated, items)
    return spent / (bursts * len(items))


def _burst(gated: GatedQueue, items: list[Any]) -> float:
    gated.hold(len(items))
    started = process_time()
    _produce_all(gated.queue, items)
    gated.drain()
    return process_time() - started
