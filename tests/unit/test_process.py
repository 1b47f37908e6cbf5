"""What lives on is called when the process forks or ends, in order, and held weakly."""

import gc
import itertools
import os
import subprocess
import sys
import weakref

import pytest

from penstock import _process
from tests.unit.rig import events


class Subject:
    """Writes down when it is called."""

    def __init__(self, name: str, story: list[str], takes: float = 0.0) -> None:
        self.name, self.story, self.takes = name, story, takes

    def renew_after_fork(self) -> None:
        """Write it down."""
        self.story.append(f"renew {self.name}")

    def drain_at_exit(self, timeout: float) -> float:
        """Write it down, with the time it was given."""
        self.story.append(f"drain {self.name} {timeout}")
        return self.takes


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the objects of other tests out of reach."""
    for name in ("_renewables", "_drainables"):
        monkeypatch.setattr(_process, name, weakref.WeakValueDictionary())
    monkeypatch.setattr(_process, "_order", itertools.count())


def test_after_a_fork_all_are_renewed_in_the_order_of_their_creation() -> None:
    """A scheduler comes before the queue that runs on it."""
    story: list[str] = []
    subjects = [Subject(name, story) for name in "abc"]
    for subject in subjects:
        _process.renew_after_fork(subject)
    _process._renew_all()
    assert story == ["renew a", "renew b", "renew c"]


def test_at_exit_all_share_one_deadline() -> None:
    """In the order of their creation, each gets what the others have left."""
    story: list[str] = []
    subjects = [Subject("a", story, 2.0), Subject("b", story, 4.0), Subject("c", story)]
    for subject in subjects:
        _process.drain_at_exit(subject)
    _process._drain_all()
    assert _process.EXIT_DEADLINE == 5.0
    assert story == ["drain a 5.0", "drain b 3.0", "drain c 0.0"]


def test_at_exit_one_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a subject raises is logged, and the next one gets its time."""

    class Failing(Subject):
        def drain_at_exit(self, timeout: float) -> float:
            raise OSError(timeout)

    story: list[str] = []
    subjects = [Failing("a", story), Subject("b", story)]
    for subject in subjects:
        _process.drain_at_exit(subject)
    _process._drain_all()
    assert story == ["drain b 5.0"]
    assert events(caplog) == ["process.exit_drain_failed"]


def test_what_nobody_holds_is_not_called() -> None:
    """Being registered keeps nothing alive."""
    story: list[str] = []
    subject = Subject("a", story)
    _process.renew_after_fork(subject)
    _process.drain_at_exit(subject)
    del subject
    gc.collect()
    _process._renew_all()
    _process._drain_all()
    assert story == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_and_an_exit_reach_a_real_queue() -> None:
    """In a process of its own: the child starts empty and works, both drain when they end."""
    script = """
import os, sys
from penstock import BatchQueue, BatchQueueConfig, ThreadPolicy

queue = BatchQueue("q", BatchQueueConfig(threads=ThreadPolicy.fixed(1)))
queue.add_handler(str, lambda batch: print(who, *batch, flush=True))
who = "parent"
child = os.fork()
if child == 0:
    who = "child"
    queue.produce("a")
    sys.exit()
os.waitpid(child, 0)
queue.produce("b")
"""
    shown = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert shown.splitlines() == ["child a", "parent b"]
