"""Keeping the lease: by a clock that stands still. How it is got is tested with crashes."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import LeaseLostError, StoreError, StoreUnavailableError
from penstock.spark.lease import LEASE_SECONDS, HeldLease
from penstock.store import open_store
from penstock.store.contract import MetricStore
from penstock.testing import FakeClock, eventually
from tests.unit.rig import events

ME, SOMEBODY_ELSE = "me", "somebody else"
RENEWAL = LEASE_SECONDS / 3


@pytest.fixture
def clock() -> FakeClock:
    """Return the clock by which leases run out."""
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MetricStore]:
    """Return a new store."""
    store = open_store(str(tmp_path / "metrics.db"), now=clock.now)
    store.migrate()
    yield store
    store.close()


class Counting:
    """A store that counts renewals, and fails them when told to."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        self.renewals = 0
        self.error: StoreError | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    def renew(self, holder: str, ttl: float) -> None:
        """Renew, or fail."""
        try:
            if self.error is not None:
                raise self.error
            self._store.renew(holder, ttl)
        finally:
            self.renewals += 1


def pass_time(clock: FakeClock, store: Counting) -> None:
    """Let time pass until the next renewal, and wait for it."""
    before = store.renewals
    clock.await_sleepers(1)
    clock.advance(RENEWAL)
    eventually(lambda: store.renewals > before)


def is_free(store: MetricStore) -> bool:
    """Whether somebody else can have the lease."""
    try:
        store.acquire(SOMEBODY_ELSE, LEASE_SECONDS)
    except StoreError:
        return False
    return True


def test_the_lease_is_held_for_the_block(store: MetricStore, clock: FakeClock) -> None:
    """And is free after it."""
    with HeldLease(store, ME, clock) as lease:
        assert not is_free(store)
        assert lease.lost is None
    assert is_free(store)


def test_the_lease_is_renewed_before_it_runs_out(store: MetricStore, clock: FakeClock) -> None:
    """Three times as often as needed, however long the job runs."""
    counting = Counting(store)
    with HeldLease(counting, ME, clock):
        for _ in range(7):
            pass_time(clock, counting)
        assert not is_free(store)
    assert counting.renewals == 7


def test_a_renewal_that_fails_is_tried_again(
    store: MetricStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Two may fail before the lease runs out; each is told."""
    counting = Counting(store)
    with (
        caplog.at_level(logging.WARNING),
        HeldLease(counting, ME, clock) as lease,
    ):
        counting.error = StoreUnavailableError("the server is away")
        pass_time(clock, counting)
        pass_time(clock, counting)
        counting.error = None
        pass_time(clock, counting)
        assert lease.lost is None
        assert not is_free(store)
    assert events(caplog) == ["lease.not_renewed", "lease.not_renewed"]


def test_a_lease_that_passed_to_another_job_is_lost(store: MetricStore, clock: FakeClock) -> None:
    """The error tells who has it; the other one keeps it."""
    counting = Counting(store)
    with HeldLease(counting, ME, clock) as lease:
        store.release(ME)
        store.acquire(SOMEBODY_ELSE, LEASE_SECONDS)
        pass_time(clock, counting)
        eventually(lambda: lease.lost is not None)
        assert isinstance(lease.lost, LeaseLostError)
        assert SOMEBODY_ELSE in str(lease.lost)
    store.renew(SOMEBODY_ELSE, LEASE_SECONDS)


def test_a_lease_that_cannot_be_given_back_is_told(
    store: MetricStore,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What happened in the block is not hidden by it."""

    def fail(_: str) -> None:
        raise StoreUnavailableError("the server is away")

    monkeypatch.setattr(store, "release", fail)
    with pytest.raises(ValueError, match="the real reason"), HeldLease(store, ME, clock):
        raise ValueError("the real reason")
    assert events(caplog) == ["lease.not_released"]


def test_the_block_does_not_end_before_its_thread(store: MetricStore, clock: FakeClock) -> None:
    """No renewal comes after the release."""
    with HeldLease(store, ME, clock):
        clock.await_sleepers(1)
    assert "penstock-lease" not in {thread.name for thread in threading.enumerate()}
