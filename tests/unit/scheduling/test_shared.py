"""Schedulers shared by name live exactly as long as somebody uses them."""

import threading
from collections.abc import Callable
from types import TracebackType

import pytest

from penstock import ThreadPolicy
from penstock.clock import Clock
from penstock.scheduling import Scheduler, SharedSchedulers, ThreadScheduler
from penstock.testing import FakeClock, StepExecutor
from tests.unit.rig import events, in_background

Hook = Callable[[], None]

ONE, TWO = ThreadPolicy.fixed(1), ThreadPolicy.fixed(2)


class Witness(StepExecutor):
    """A scheduler that remembers how it was made and whether it was closed."""

    def __init__(self, name: str, threads: int, clock: Clock) -> None:
        super().__init__(FakeClock())
        self.name, self.threads, self.made_with = name, threads, clock
        self.closed = False
        self.on_close: Hook = lambda: None

    def close(self, timeout: float) -> bool:
        """Note that it was closed."""
        self.closed = True
        self.on_close()
        return super().close(timeout)


class HookedLock:
    """A lock that lets the test slip in just before it is taken or just after it is let go."""

    def __init__(self) -> None:
        self.before: Hook | None = None
        self.after: Hook | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        hook, self.before = self.before, None
        if hook is not None:
            hook()
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()
        hook, self.after = self.after, None
        if hook is not None:
            hook()


def witness(scheduler: Scheduler) -> Witness:
    """Return *scheduler* as what the factory made."""
    assert isinstance(scheduler, Witness)
    return scheduler


@pytest.mark.parametrize("moment", ["before the release", "after the release", "while it closes"])
def test_acquire_racing_the_last_release_gets_a_live_one(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H1: whenever it comes, an acquire gets a scheduler that nobody is closing."""
    shared = SharedSchedulers(factory=Witness)
    first = witness(shared.acquire("io", ONE))
    lock = HookedLock()
    monkeypatch.setattr(shared, "_lock", lock)
    got: list[Witness] = []

    def slip_in() -> None:
        other = in_background(lambda: witness(shared.acquire("io", ONE)))
        got.append(other.result(timeout=10))

    if moment == "before the release":
        lock.before = slip_in
    elif moment == "after the release":
        lock.after = slip_in
    else:
        first.on_close = slip_in
    shared.release("io")
    assert len(got) == 1
    assert not got[0].closed
    assert (got[0] is first) == (moment == "before the release")
    assert shared.names() == ("io",)
    shared.release("io")
    assert got[0].closed
    assert shared.names() == ()


def test_a_release_racing_an_acquire_leaves_the_scheduler_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H1, the other way round: what was just handed out is in use, whoever leaves meanwhile."""
    shared = SharedSchedulers(factory=Witness)
    shared.acquire("io", ONE)
    lock = HookedLock()
    monkeypatch.setattr(shared, "_lock", lock)
    lock.after = lambda: in_background(lambda: shared.release("io")).result(timeout=10)
    assert not witness(shared.acquire("io", ONE)).closed
    assert shared.names() == ("io",)


def test_a_name_stands_for_one_scheduler() -> None:
    """Everybody who asks for a name gets the same scheduler, made by the first policy."""
    clock = FakeClock()
    shared = SharedSchedulers(clock, Witness)
    first = witness(shared.acquire("io", TWO))
    assert (first.name, first.threads, first.made_with) == ("io", 2, clock)
    assert shared.acquire("io", TWO) is first
    assert shared.acquire("cpu", TWO) is not first
    assert shared.names() == ("io", "cpu")


def test_the_first_policy_wins_and_a_mismatch_warns(caplog: pytest.LogCaptureFixture) -> None:
    """A different policy is ignored, and the log names both and the scheduler."""
    shared = SharedSchedulers(factory=Witness)
    first = witness(shared.acquire("io", ONE))
    assert shared.acquire("io", TWO) is first
    assert first.threads == 1
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("scheduler.policy_ignored: shared scheduler 'io'")
    assert "ThreadPolicy.fixed(1)" in record.getMessage()
    assert "ThreadPolicy.fixed(2)" in record.getMessage()
    assert record.__dict__["scheduler"] == "io"


def test_equal_policies_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    """Two queues with the same configuration share in silence."""
    shared = SharedSchedulers(factory=Witness)
    shared.acquire("io", ThreadPolicy.cpu_cores(1))
    shared.acquire("io", ThreadPolicy.cpu_cores(1.0))
    assert events(caplog) == []


def test_the_scheduler_closes_with_its_last_user() -> None:
    """Uses are counted: only the last release closes."""
    shared = SharedSchedulers(factory=Witness)
    scheduler = witness(shared.acquire("io", ONE))
    shared.acquire("io", ONE)
    shared.acquire("io", ONE)
    for _ in range(2):
        shared.release("io")
        assert not scheduler.closed
    shared.release("io")
    assert scheduler.closed


def test_a_name_can_be_used_again_with_another_policy(caplog: pytest.LogCaptureFixture) -> None:
    """Once the last user has gone, the next one is the first again."""
    shared = SharedSchedulers(factory=Witness)
    gone = shared.acquire("io", ONE)
    shared.release("io")
    fresh = witness(shared.acquire("io", TWO))
    assert fresh is not gone
    assert fresh.threads == 2
    assert events(caplog) == []


def test_real_threads_are_the_default() -> None:
    """Without a factory the scheduler has threads, as many as the policy says."""
    shared = SharedSchedulers()
    scheduler = shared.acquire("io", TWO)
    assert isinstance(scheduler, ThreadScheduler)
    assert repr(scheduler) == "<ThreadScheduler 'io', 0 of 2 threads>"
    shared.release("io")


def test_after_a_fork_users_are_counted_anew() -> None:
    """The child starts with none, and a thread of the parent that was inside does not block it."""
    shared = SharedSchedulers(factory=Witness)
    parents = [shared.acquire("io", ONE) for _ in range(3)]
    assert shared._lock.acquire()
    shared.renew_after_fork()
    assert shared.names() == ()
    childs = witness(shared.acquire("io", ONE))
    assert childs not in parents
    shared.release("io")
    assert childs.closed
