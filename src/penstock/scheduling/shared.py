"""Named schedulers that several queues share, alive as long as one of them uses it."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._process import renew_after_fork
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.scheduling.threads import ThreadScheduler

if TYPE_CHECKING:
    from penstock.scheduling.policy import ThreadPolicy
    from penstock.scheduling.task import Scheduler, SchedulerFactory

__all__ = ["SharedSchedulers"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Shared:
    policy: ThreadPolicy
    scheduler: Scheduler
    users: int = 0


class SharedSchedulers:
    """Hands out schedulers by name and closes each with its last user."""

    # Guarded by _lock:
    #   H1  A name maps to one open scheduler or to none; taking the first reference,
    #       and giving back the last, are one step each, so nobody is handed a scheduler
    #       that is being closed (test_acquire_racing_the_last_release_gets_a_live_one).

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, factory: SchedulerFactory = ThreadScheduler
    ) -> None:
        self._clock = clock
        self._factory = factory
        self._lock = threading.Lock()
        self._shared: dict[str, _Shared] = {}
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Start with none: queues that live on in the child acquire again."""
        self._lock = threading.Lock()
        self._shared = {}

    def acquire(self, name: str, policy: ThreadPolicy) -> Scheduler:
        """Return the scheduler called *name*, made by *policy* if it is the first use."""
        with self._lock:
            shared = self._shared.get(name)
            if shared is None:
                scheduler = self._factory(name, policy.resolve(), self._clock)
                shared = self._shared[name] = _Shared(policy, scheduler)
            shared.users += 1
            first = shared.policy
        if first != policy:
            logger.warning(
                "scheduler.policy_ignored: shared scheduler %r runs with %r; %r was asked for "
                "and is ignored (the first policy wins)",
                name,
                first,
                policy,
                extra={"scheduler": name},
            )
        return shared.scheduler

    def release(self, name: str) -> None:
        """Give one use of *name* back; the last one closes the scheduler."""
        with self._lock:
            shared = self._shared[name]
            shared.users -= 1
            if shared.users:
                return
            del self._shared[name]
        shared.scheduler.close(0.0)

    def names(self) -> tuple[str, ...]:
        """Return the names of the schedulers in use."""
        with self._lock:
            return tuple(self._shared)
