"""Every interval: measure, plan, hand over. On a thread of its own, never a drain thread."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.batchqueue.balancing import UNOWNED, DrainBalancer, thread_loads
from penstock.scheduling import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.batchqueue._ownership import OwnershipTable
    from penstock.batchqueue._shutdown import Shutdown

__all__ = ["RebalanceSettings", "Rebalancer"]

logger = logging.getLogger("penstock.batchqueue")


@dataclass(slots=True, frozen=True)
class RebalanceSettings:
    """When and how to rebalance."""

    queue: str
    balancer: DrainBalancer
    interval: float
    handover_timeout: float
    threads: int


class Rebalancer(Task):
    """Moves partitions between drainers so that each has about the same load."""

    __slots__ = (
        "_due",
        "_settings",
        "_shutdown",
        "_table",
        "abandoned",
        "load_ratio",
        "moved",
        "rebalances",
    )

    def __init__(
        self, settings: RebalanceSettings, table: OwnershipTable[Any], shutdown: Shutdown
    ) -> None:
        super().__init__()
        self._settings = settings
        self._table = table
        self._shutdown = shutdown
        self._due = False  # the first run comes at once, the first rebalance an interval later
        self.rebalances = 0
        self.moved = 0
        self.abandoned = 0
        self.load_ratio: float | None = None

    def run(self) -> float | None:
        """Rebalance once, and come back after the interval."""
        if self._shutdown.is_begun():
            return None
        if self._due:
            self.rebalance()
        self._due = True
        return self._settings.interval

    def has_work(self) -> bool:
        """Return whether a shutdown waits for it to end."""
        return self._shutdown.is_begun()

    def rebalance(self) -> int:
        """Measure, plan, hand over; return how many partitions moved."""
        settings = self._settings
        throughput = self._measure()
        owners = self._table.owners()[: len(throughput)]
        before = thread_loads(throughput, owners, settings.threads)
        self.load_ratio = _ratio(before)
        plan = self._plan(throughput, owners)
        targets = {
            p: new
            for p, (old, new) in enumerate(zip(owners, plan, strict=True))
            if old not in (new, UNOWNED)
        }
        if not targets:
            return 0
        moved = self._table.hand_over(targets, settings.handover_timeout)
        extra = {"queue": settings.queue, "partitions": len(targets)}
        if not moved and self._table.is_closed:  # a shutdown came in between
            return 0
        if not moved:
            self.abandoned += 1
            logger.warning(
                "queue.rebalance_abandoned: a handler of queue %r did not return within %s s; "
                "nothing was moved",
                settings.queue,
                settings.handover_timeout,
                extra=extra,
            )
            return 0
        self.rebalances += 1
        self.moved += moved
        after = thread_loads(throughput, plan, settings.threads)
        delta = 100.0 * (max(before) - max(after)) / max(1, *before)
        logger.info(
            "queue.rebalanced: rebalanced %d partitions, max thread load delta: %.1f%%",
            moved,
            delta,
            extra=extra,
        )
        return moved

    def _measure(self) -> list[int]:
        """Return what each partition was offered since the last time."""
        throughput = []
        for part in self._table.partitions:
            offered = part.offered
            throughput.append(offered - part.mark)
            part.mark = offered
        return throughput

    def _plan(self, throughput: list[int], owners: list[int]) -> Sequence[int]:
        """Ask the balancer; keep the owners if it has no plan or one that makes no sense."""
        threads = self._settings.threads
        try:
            plan = self._settings.balancer.assign(tuple(throughput), tuple(owners), threads)
            if plan is None:
                return owners
            plan = list(plan)
        except BaseException:
            logger.exception("queue.balancer_failed", extra={"queue": self._settings.queue})
            return owners
        sound = len(plan) == len(owners) and all(
            type(new) is int and (0 <= new < threads or new == old)
            for old, new in zip(owners, plan, strict=True)
        )
        if not sound:
            logger.error(
                "queue.balancer_ignored: the balancer of queue %r returned %.200r; it must return "
                "one thread index from 0 to %d for each of the %d partitions, or None",
                self._settings.queue,
                plan,
                threads - 1,
                len(owners),
                extra={"queue": self._settings.queue},
            )
            return owners
        return plan


def _ratio(loads: list[int]) -> float | None:
    """Return heaviest over lightest; None if nothing came, infinite if one had nothing."""
    if not max(loads):
        return None
    return max(loads) / min(loads) if min(loads) else float("inf")
