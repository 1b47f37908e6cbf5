"""Keeping the store's lease while the job runs."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Self

from penstock.clock import SYSTEM_CLOCK, wait_until
from penstock.errors import LeaseLostError, StoreError

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.clock import Clock
    from penstock.store.contract import MetricStore

__all__ = ["LEASE_SECONDS", "HeldLease"]

LEASE_SECONDS = 30.0
_RENEWALS = 3  # per lease: two may fail before it runs out

log = logging.getLogger(__name__)


class HeldLease:
    """Holds the lease for the length of a ``with`` block and renews it from a thread.

    ``lost`` is the error that tells that another job has it now. The store checks the lease in
    every commit, so a job that has not noticed yet writes nothing either.
    """

    def __init__(self, store: MetricStore, holder: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._holder = holder
        self._clock = clock
        self._condition = threading.Condition()
        self._is_over = False
        self.lost: LeaseLostError | None = None
        self._thread = threading.Thread(target=self._renew, name="penstock-lease", daemon=True)

    def __enter__(self) -> Self:
        self._store.acquire(self._holder, LEASE_SECONDS)
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
