"""Getting the store's lease and keeping it while the job runs.

A job that was killed leaves its lease behind. Whoever finds it taken looks for a sign of life of
its holder: one that is dead is relieved of it, one that lives on this machine keeps it. Where
there is no telling, the lease is watched until it runs out, or is renewed: then its holder lives.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Self

from penstock.clock import SYSTEM_CLOCK, wait_until
from penstock.errors import JobError, LeaseLostError, StoreBusyError, StoreError
from penstock.spark.presence import Presence

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.clock import Clock
    from penstock.store.contract import MetricStore

__all__ = ["LEASE_SECONDS", "HeldLease"]

LEASE_SECONDS = 30.0
_RENEWALS = 3  # per lease: two may fail before it runs out
_LOOK_EVERY = 1.0  # seconds between looks at a lease that another job holds

log = logging.getLogger(__name__)


class HeldLease:
    """Holds the lease for the length of a ``with`` block and renews it from a thread.

    ``lost`` is the error that tells that another job has it now. The store checks the lease in
    every commit, so a job that has not noticed yet writes nothing either. Entering the block
    raises StoreBusyError if another job lives and holds the lease, and JobError if *stopped* is
    set while one that may be dead is waited for.
    """

    def __init__(
        self,
        store: MetricStore,
        holder: str,
        clock: Clock = SYSTEM_CLOCK,
        stopped: threading.Event | None = None,
    ) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._stopped = stopped or threading.Event()
        self._presence = Presence(holder)
        self._condition = threading.Condition()
        self._is_over = False
        self.lost: LeaseLostError | None = None
        self._thread = threading.Thread(target=self._renew, name="penstock-lease", daemon=True)

    def __enter__(self) -> Self:
        self._presence.show()
        try:
            self._acquire()
        except BaseException:
            self._presence.end()
            raise
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._condition:
            self._is_over = True
            self._condition.notify_all()
        self._thread.join(LEASE_SECONDS)
        try:
            self._store.release(self._holder)
        except StoreError as failure:
            log.warning("lease.not_released: %s; it runs out by itself", failure)
        finally:
            self._presence.end()

    def _acquire(self) -> None:
        watched: StoreBusyError | None = None
        while True:
            try:
                self._store.acquire(self._holder, LEASE_SECONDS)
            except StoreBusyError as busy:
                is_alive = Presence(busy.holder).is_alive()
                if is_alive or (watched is not None and _is_renewed(watched, busy)):
                    raise
                if is_alive is False:
                    # By its name: should it be another's by now, that one keeps it.
                    log.warning("lease.taken_over: %s, which held the lease, is dead", busy.holder)
                    self._store.release(busy.holder)
                else:
                    self._wait(busy, is_first=watched is None)
                    watched = busy
            else:
                return

    def _wait(self, busy: StoreBusyError, *, is_first: bool) -> None:
        if is_first:
            log.warning(
                "lease.waiting: %s holds the lease for %.0f s more, and may be dead; waiting",
                busy.holder,
                busy.seconds,
            )
        with self._condition:
            if wait_until(self._clock, self._condition, self._stopped.is_set, _LOOK_EVERY):
                raise JobError(f"stopped while waiting for {busy.holder}, which holds the lease")

    def _renew(self) -> None:
        while self.lost is None and not self._is_over_after(LEASE_SECONDS / _RENEWALS):
            try:
                self._store.renew(self._holder, LEASE_SECONDS)
            except LeaseLostError as error:
                self.lost = error
            except StoreError as error:
                log.warning("lease.not_renewed: %s; trying again", error)

    def _is_over_after(self, seconds: float) -> bool:
        with self._condition:
            return wait_until(self._clock, self._condition, lambda: self._is_over, seconds)


def _is_renewed(before: StoreBusyError, now: StoreBusyError) -> bool:
    return now.holder != before.holder or now.seconds >= before.seconds
