"""The same job without penstock: typed items through the standard library's queues."""

from __future__ import annotations

import queue
from collections import defaultdict
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from penstock.batchqueue.selectors import type_hash
from penstock.bench._harness import Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["bare_call_rate", "stdlib_rate"]


class Source(Protocol):
    """What queue.Queue and queue.SimpleQueue have in common."""

    def put(self, item: Any) -> None:  # noqa: ANN401 - whatever an item is
        """Append *item*, waiting for room if there is a bound."""
        ...

    def get(self) -> Any:  # noqa: ANN401 - whatever an item is
        """Take the first item, waiting for one."""
        ...

    def get_nowait(self) -> Any:  # noqa: ANN401 - whatever an item is
        """Take the first item, or raise queue.Empty."""
        ...


def stdlib_rate(
    sources: Sequence[Source],
    handlers: Mapping[type, Callable[[list[Any]], object]],
    work: Sequence[Sequence[Any]],
) -> float:
    """Return items/s from the first put until the last handler has returned.

    Each of *work* is what one producing thread sends; each of *sources* has one drain
    thread, and a type always goes to the same one.
    """
    puts = {kind: sources[type_hash(kind) % len(sources)].put for kind in handlers}
    drainers = Crew(_drain_job(source, handlers) for source in sources)
    producers = Crew(_produce_job(puts, items) for items in work)
    drainers.release()
    started = perf_counter()
    producers.release()
    producers.join()
    for source in sources:
        source.put(None)
    drainers.join()
    return sum(map(len, work)) / (perf_counter() - started)


def _produce_job(
    puts: Mapping[type, Callable[[Any], None]], items: Sequence[Any]
) -> Callable[[], None]:
    def produce() -> None:
        for item in items:
            puts[type(item)](item)

    return produce


def _drain_job(
    source: Source, handlers: Mapping[type, Callable[[list[Any]], object]]
) -> Callable[[], None]:
    def drain() -> None:
        while True:
            groups = _grouped(_take(source))
            last = groups.pop(type(None), None)
            for kind, items in groups.items():
                handlers[kind](items)
            if last:
                return

    return drain


def _take(source: Source) -> list[Any]:
    """Wait for an item, then take what else is there."""
    batch = [source.get()]
    take = source.get_nowait
    try:
        while True:
            batch.append(take())
    except queue.Empty:
        return batch


def _grouped(batch: list[Any]) -> dict[type, list[Any]]:
    groups: defaultdict[type, list[Any]] = defaultdict(list)
    for item in batch:
        groups[type(item)].append(item)
    return groups


def bare_call_rate(items: Sequence[Any]) -> float:
    """Return items/s of one thread that calls a function per item, which does nothing."""

    def call(item: object) -> None:
        pass

    started = perf_counter()
    for item in items:
        call(item)
    return len(items) / (perf_counter() - started)
