"""Queues in processes that fork, are interrupted, or end: each in an interpreter of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.clock import SYSTEM_CLOCK

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "tests.integration.programs"
EMPTY = {"accepted": 0, "consumed": 0, "dropped": 0, "used": 0, "drained": 0}
HUNDRED = {"accepted": 100, "consumed": 100, "dropped": 0, "used": 0, "drained": 100}


class Outcome:
    """How a program ended and what its processes said."""

    def __init__(self, program: str) -> None:
        started = SYSTEM_CLOCK.now()
        self.done = subprocess.run(
            [sys.executable, "-W", "default", "-m", PROGRAMS, program],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )
        self.elapsed = SYSTEM_CLOCK.now() - started
        self.said: list[dict[str, Any]] = list(map(json.loads, self.done.stdout.splitlines()))

    def of(self, who: str) -> list[dict[str, Any]]:
        """Return what *who* said."""
        return [line for line in self.said if line["who"] == who]

    def succeeded(self) -> "Outcome":
        """Check that it ended with exit code 0."""
        assert self.done.returncode == 0, f"{self.done.returncode}: {self.said} {self.done.stderr}"
        return self


Run: TypeAlias = Callable[[str], Outcome]


@pytest.fixture
def run() -> Run:
    """Run one of the programs by its name."""
    return Outcome


def check_child(said: dict[str, Any]) -> None:
    """Check that a child found its queue empty and got its own hundred items through it."""
    assert said == {
        "who": "child",
        "start": EMPTY,
        "accepted": 100,
        "complete": True,
        "got": True,
        "end": HUNDRED,
    }


# -- fork -------------------------------------------------------------------------------


@pytest.mark.usefixtures("untraced")
def test_children_forked_under_load_start_empty_and_work(run: Run) -> None:
    """Ten forks while others produce and drain: no child inherits, the parent loses nothing."""
    outcome = run("fork_while_producing").succeeded()
    for said in outcome.of("child"):
        check_child(said)
    assert outcome.of("parent") == [
        {"who": "parent", "codes": [0] * 10, "complete": True, "got": True, "counted": True}
    ]


def test_a_fork_survives_any_lock_that_is_held(run: Run) -> None:
    """A lock that another thread held stays locked in the child, so the child has new ones."""
    outcome = run("fork_while_locked").succeeded()
    check_child(*outcome.of("child"))
    assert outcome.of("parent") == [{"who": "parent", "code": 0, "complete": True, "got": [1, 2]}]


def test_a_handler_that_is_busy_in_the_parent_is_free_in_the_child(run: Run) -> None:
    """The thread that is in the handler does not exist in the child."""
    outcome = run("fork_while_handling").succeeded()
    check_child(*outcome.of("child"))
    assert outcome.of("parent") == [
        {"who": "parent", "code": 0, "complete": True, "got": [1, 2, 3]}
    ]


def test_a_shared_scheduler_is_given_back_in_the_child_too(run: Run) -> None:
    """The child's queue is its only user; the parent's goes on being used."""
    outcome = run("fork_with_shared_scheduler").succeeded()
    used, given_back = outcome.of("child")
    check_child(used)
    assert given_back["schedulers"] == []
    assert outcome.of("parent") == [{"who": "parent", "code": 0, "schedulers": ["io"]}]


def test_a_child_has_as_many_threads_and_rebalances(run: Run) -> None:
    """Nothing that the configuration asks for is lost by forking."""
    outcome = run("fork_with_balancer").succeeded()
    assert outcome.of("child") == [{"who": "child", "threads": 2}]
    assert outcome.of("parent") == [{"who": "parent", "code": 0, "threads": 2}]


def test_forking_warns_once_at_most_and_never_from_penstock(run: Run) -> None:
    """From Python 3.12 on, os.fork() warns whoever calls it while threads run; we add nothing."""
    outcome = run("fork_and_warn").succeeded()
    expected = [["DeprecationWarning", "forking.py"]] if sys.version_info >= (3, 12) else []
    (parent,) = outcome.of("parent")
    assert parent["warnings"] == expected
    used, warned = outcome.of("child")
    check_child(used)
    assert warned["warnings"] == []


def test_a_child_of_multiprocessing_can_use_the_queue(run: Run) -> None:
    """The same as for os.fork(): empty at first, then as good as the parent's."""
    outcome = run("multiprocessing_child").succeeded()
    check_child(*outcome.of("child"))
    assert outcome.of("parent") == [{"who": "parent", "code": 0, "complete": True, "got": [-1]}]


# -- the end of the interpreter ---------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "code", "count"),
    [
        ("exit_with_backlog", 0, 1000),
        ("exit_with_backlog_and_code", 3, 10),
        ("exit_with_backlog_and_error", 1, 10),
    ],
)
def test_what_waits_when_the_program_ends_is_drained_and_flushed(
    run: Run, program: str, code: int, count: int
) -> None:
    """Queues drain in their order, so that the first one's items reach the second; then on_idle."""
    outcome = run(program)
    assert outcome.done.returncode == code, outcome.done.stderr
    assert [said["sum"] for said in outcome.of("handler")][-1:] == [count]


def test_a_forked_child_drains_at_its_end_what_it_produced(run: Run) -> None:
    """A child that has not used the queue flushes nothing: what it holds is its parent's."""
    outcome = run("exit_in_forked_child").succeeded()
    (parent,), (user,), (bystander,) = map(outcome.of, ("parent", "user", "bystander"))
    flushed = {said["pid"]: said["sum"] for said in outcome.of("handler")}
    assert flushed == {user["pid"]: 2, parent["pid"]: 3}
    assert bystander["pid"] not in flushed


def test_a_handler_that_never_returns_does_not_keep_the_program(run: Run) -> None:
    """The exit deadline ends the wait, and a log line says what was not delivered."""
    outcome = run("exit_with_stuck_handler").succeeded()
    assert outcome.elapsed < 10
    assert "queue.exit_incomplete" in outcome.done.stderr
    assert "5 items of queue 'q' undelivered, 1 in handlers" in outcome.done.stderr


def test_a_daemon_thread_that_waits_for_room_does_not_keep_the_program(run: Run) -> None:
    """It is told that its item was refused, like any producer at a shutdown."""
    outcome = run("exit_with_blocked_daemon").succeeded()
    assert outcome.elapsed < 10
    assert outcome.of("daemon") == [{"who": "daemon", "accepted": False}]


# -- signals ----------------------------------------------------------------------------


def test_ctrl_c_ends_a_wait_for_room_and_nothing_else(run: Run) -> None:
    """The interrupted item was not accepted; the queue takes and delivers the next."""
    outcome = run("interrupt_blocked_producer").succeeded()
    assert outcome.of("parent") == [
        {"who": "parent", "interrupted": True, "complete": True, "got": [0, 1, 2, 4]}
    ]
