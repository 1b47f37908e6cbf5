"""Adds up a queue's scattered counts into the frozen values of `stats`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.batchqueue._dispatch import ConsumerDispatch, Dispatch
from penstock.batchqueue._drainer import Drainer
from penstock.batchqueue._partition import Partition, count
from penstock.batchqueue.stats import BatchQueueStats, DropCounts, PartitionStats, TypeStats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.batchqueue._rebalancer import Rebalancer

__all__ = ["Sources", "stats"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Sources:
    """Where the figures are."""

    name: str
    state: str
    buffer_size: int
    partitions: Sequence[Partition[Any]]
    dispatch: Dispatch
    drainers: Sequence[Drainer]
    rebalancer: Rebalancer | None
    closed: Counter[type]


def stats(sources: Sources) -> BatchQueueStats:
    """Take a snapshot."""
    partitions = tuple(_partition(p, sources.drainers) for p in sources.partitions)
    with sources.dispatch.lock:
        counts = {
            kind: (c.consumed, c.errors, c.failed, c.no_handler, c.abandoned, c.taken)
            for kind, c in sources.dispatch.counts.items()
        }
    totals = [sum(column) for column in zip(*counts.values(), strict=True)] or [0] * 6
    rebalancer = sources.rebalancer
    return BatchQueueStats(
        name=sources.name,
        state=sources.state,
        buffer_size=sources.buffer_size,
        partitions=partitions,
        types=MappingProxyType(_types(sources, counts)),
        accepted=sum(p.accepted for p in partitions),
        consumed=totals[0],
        errors=totals[1],
        failed=totals[2],
        dropped=DropCounts(
            full=sum(p.dropped.full for p in partitions),
            evicted=sum(p.dropped.evicted for p in partitions),
            closed=sources.closed.total(),
            no_handler=totals[3],
            abandoned=totals[4],
        ),
        drained_by_thread=tuple(d.drained for d in sources.drainers),
        load_ratio=rebalancer.load_ratio if rebalancer else None,
        rebalances=rebalancer.rebalances if rebalancer else 0,
        partitions_moved=rebalancer.moved if rebalancer else 0,
        handovers_abandoned=rebalancer.abandoned if rebalancer else 0,
    )


def _partition(part: Partition[Any], drainers: Sequence[Drainer]) -> PartitionStats:
    with part.lock:
        used, drained = part.used, part.drained
        evicted, full = count(part.evicted), count(part.refused)
    owner = part.owner
    return PartitionStats(
        index=part.index,
        used=used,
        capacity=part.capacity,
        accepted=drained + used + evicted,
        drained=drained,
        dropped=DropCounts(full=full, evicted=evicted),
        thread=owner.index if isinstance(owner, Drainer) and owner in drainers else None,
    )


def _types(
    sources: Sources, counts: Mapping[type, tuple[int, int, int, int, int, int]]
) -> dict[type, TypeStats]:
    if isinstance(sources.dispatch, ConsumerDispatch):
        return {}
    waiting, full, evicted = Counter[type](), Counter[type](), Counter[type]()
    for part in sources.partitions:
        if part.buffer:
            waiting.update(part.waiting_by_type())
        if part.refused or part.evicted:
            with part.lock:
                full.update(part.refused or ())
                evicted.update(part.evicted or ())
    kinds = {*counts, *waiting, *full, *evicted, *sources.closed}
    found = {}
    for kind in kinds:
        consumed, errors, failed, no_handler, abandoned, taken = counts.get(kind, (0,) * 6)
        found[kind] = TypeStats(
            accepted=taken + waiting[kind] + evicted[kind],
            consumed=consumed,
            errors=errors,
            failed=failed,
            waiting=waiting[kind],
            dropped=DropCounts(
                full=full[kind],
                closed=sources.closed[kind],
                evicted=evicted[kind],
                no_handler=no_handler,
                abandoned=abandoned,
            ),
        )
    return found
