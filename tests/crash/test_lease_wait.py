"""Getting the lease when another job has it: dead, alive here, or somewhere else."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from penstock.errors import JobError, PenstockError, StoreBusyError
from penstock.spark.lease import LEASE_SECONDS, HeldLease
from penstock.spark.presence import Presence
from penstock.store import open_store
from penstock.store.contract import MetricStore
from penstock.testing import FakeClock

ELSEWHERE = "another-host/17/1f2e3d4c"  # leaves no sign of life on this machine
HOLD = """
import sys
from penstock.spark.presence import Presence
Presence(sys.argv[1]).show()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep signs of life of this test apart from those of real jobs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def clock() -> FakeClock:
    """Return the clock by which all here waits and by which leases run out."""
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MetricStore]:
    """Return an empty store."""
    store = open_store(str(tmp_path / "metrics.db"), now=clock.now)
    store.migrate()
    yield store
    store.close()


@contextmanager
def process_of(holder: str) -> Iterator[subprocess.Popen[str]]:
    """Run another process that shows itself as *holder*."""
    command = [sys.executable, "-c", HOLD, holder]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


class Taking:
    """A thread that takes the lease; the test's own thread moves the clock."""

    def __init__(
        self, store: MetricStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stopped = threading.Event()
        self.error: PenstockError | None = None
        self.has_lease = threading.Event()
        self._is_done = threading.Event()
        self._clock = clock
        self.acquire = store.acquire  # without being counted
        self._looks = threading.Semaphore(0)
        self._store = store
        self._monkeypatch = monkeypatch
        self._lease = HeldLease(store, "here/1/aaaa", clock, self.stopped)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._monkeypatch.setattr(self._store, "acquire", self._looked)
        self._thread.start()
        self._wait_for_look()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self._thread.join(10)

    def look_again(self, times: int = 1) -> None:
        """Let a second pass, and the thread see what has become of the lease meanwhile."""
        for _ in range(times):
            self._clock.await_sleepers(1)
            self._clock.advance(1.0)
            self._wait_for_look()

    def _wait_for_look(self) -> None:
        # Whoever has looked is no longer among those who slept before.
        assert self._looks.acquire(timeout=10)

    def _looked(self, holder: str, ttl: float) -> None:
        try:
            self.acquire(holder, ttl)
        finally:
            self._looks.release()

    def ended(self) -> None:
        """Wait until the attempt has ended, in whichever way."""
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with self._lease:
                self.has_lease.set()
                self._is_done.wait(10)
        except PenstockError as error:
            self.error = error


@pytest.fixture
def taking(store: MetricStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Taking:
    """Return a thread that will take the store's lease."""
    return Taking(store, clock, monkeypatch)


def test_a_free_lease_is_taken_and_given_back(store: MetricStore, clock: FakeClock) -> None:
    """Nobody holds it: no wait; at the end of the block the next job may have it at once."""
    with HeldLease(store, "here/1/aaaa", clock), pytest.raises(StoreBusyError) as caught:
        store.acquire("here/2/bbbb", 1.0)
    assert (caught.value.holder, caught.value.seconds) == ("here/1/aaaa", LEASE_SECONDS)
    store.acquire("here/2/bbbb", 1.0)


def test_the_lease_of_a_killed_job_of_this_machine_is_taken_over_at_once(
    store: MetricStore, taking: Taking, caplog: pytest.LogCaptureFixture
) -> None:
    """The process is gone, so its lease is worth nothing: nobody waits for it."""
    with process_of("here/2/bbbb") as process:
        store.acquire("here/2/bbbb", LEASE_SECONDS)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with taking:
            assert taking.has_lease.wait(10)
            store.renew("here/1/aaaa", LEASE_SECONDS)
    assert "lease.taken_over: here/2/bbbb" in caplog.text


def test_a_job_that_lives_on_this_machine_keeps_its_lease(
    store: MetricStore, taking: Taking
) -> None:
    """It is alive: the second job is told so at once, and who holds the lease."""
    with process_of("here/2/bbbb"):
        store.acquire("here/2/bbbb", LEASE_SECONDS)
        with taking:
            taking.ended()
        store.renew("here/2/bbbb", LEASE_SECONDS)
    assert isinstance(taking.error, StoreBusyError)
    assert "is held by 'here/2/bbbb' for 30 more seconds" in str(taking.error)


def test_the_same_process_id_is_not_the_same_job(store: MetricStore, taking: Taking) -> None:
    """In a container every job may have the same id: what counts is the lock, not the number."""
    dead = f"here/{os.getpid()}/bbbb"
    with process_of(dead):
        pass
    store.acquire(dead, LEASE_SECONDS)
    with taking:
        assert taking.has_lease.wait(10)


def test_a_lease_from_elsewhere_is_waited_for_until_it_runs_out(
    store: MetricStore, taking: Taking, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody here can tell whether that job lives; if it does not renew, it is dead."""
    store.acquire(ELSEWHERE, LEASE_SECONDS)
    with caplog.at_level(logging.WARNING), taking:
        taking.look_again(29)
        assert not taking.has_lease.is_set()
        taking.look_again()
        assert taking.has_lease.wait(10)
    assert caplog.text.count("lease.waiting") == 1
    assert f"{ELSEWHERE} holds the lease for 30 s more" in caplog.text


def test_a_lease_from_elsewhere_that_is_renewed_is_not_waited_for(
    store: MetricStore, taking: Taking
) -> None:
    """That job lives, so there is nothing to wait for."""
    store.acquire(ELSEWHERE, LEASE_SECONDS)
    with taking:
        taking.look_again(9)
        store.renew(ELSEWHERE, LEASE_SECONDS)
        taking.look_again()
        taking.ended()
    assert isinstance(taking.error, StoreBusyError)
    assert ELSEWHERE in str(taking.error)


def test_a_lease_that_a_third_job_takes_is_not_waited_for(
    store: MetricStore, taking: Taking
) -> None:
    """Two jobs wait and one of them gets it: the other one ends, naming the winner."""
    store.acquire(ELSEWHERE, LEASE_SECONDS)
    with taking:
        store.release(ELSEWHERE)
        taking.acquire("third-host/3/cccc", 5.0)
        taking.look_again()
        taking.ended()
    assert isinstance(taking.error, StoreBusyError)
    assert taking.error.holder == "third-host/3/cccc"


def test_a_lease_that_is_given_back_meanwhile_is_taken(store: MetricStore, taking: Taking) -> None:
    """The job before was only slow to end: the wait is over within a second."""
    store.acquire(ELSEWHERE, LEASE_SECONDS)
    with taking:
        store.release(ELSEWHERE)
        taking.look_again()
        assert taking.has_lease.wait(10)


def test_a_stop_ends_the_wait(store: MetricStore, taking: Taking, clock: FakeClock) -> None:
    """Ctrl-C while waiting for a lease ends the job, and leaves no sign of life behind."""
    store.acquire(ELSEWHERE, LEASE_SECONDS)
    with taking:
        clock.await_sleepers(1)
        taking.stopped.set()
        clock.advance(1.0)
        taking.ended()
    assert isinstance(taking.error, JobError)
    assert f"stopped while waiting for {ELSEWHERE}" in str(taking.error)
    assert Presence("here/1/aaaa").is_alive() is None


def test_a_job_is_seen_until_its_block_ends(store: MetricStore, clock: FakeClock) -> None:
    """The sign of life goes with the lease, and so does its file."""
    presence = Presence("here/1/aaaa")
    assert presence.is_alive() is None
    with HeldLease(store, "here/1/aaaa", clock):
        assert presence.is_alive() is True
    assert presence.is_alive() is None


def test_without_room_for_the_sign_of_life_the_lease_alone_counts(
    store: MetricStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder for temporary files that cannot be written stops no job."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with HeldLease(store, "here/1/aaaa", clock):
        store.renew("here/1/aaaa", LEASE_SECONDS)
        assert Presence("here/1/aaaa").is_alive() is None
