"""Batchers in processes that fork or end: each in an interpreter of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.clock import SYSTEM_CLOCK

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "tests.integration.batcher_programs"
CHILD = {"who": "child", "start": [0, 0, 0], "right": True, "closed": True}


class Outcome:
    """How a program ended and what its processes said."""

    def __init__(self, program: str) -> None:
        started = SYSTEM_CLOCK.now()
        self.done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-m", PROGRAMS, program],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )
        self.elapsed = SYSTEM_CLOCK.now() - started
        self.said: list[dict[str, Any]] = list(map(json.loads, self.done.stdout.splitlines()))
        assert self.done.returncode == 0, f"{self.done.returncode}: {self.said} {self.done.stderr}"

    def of(self, who: str) -> list[dict[str, Any]]:
        """Return what *who* said."""
        return [line for line in self.said if line["who"] == who]


Run: TypeAlias = Callable[[str], Outcome]


@pytest.fixture
def run() -> Run:
    """Run one of the programs by its name, and see it end well."""
    return Outcome


# -- fork -------------------------------------------------------------------------------


@pytest.mark.usefixtures("untraced")
def test_children_forked_under_load_start_empty_and_work(run: Run) -> None:
    """No child inherits an item, every child gets its own through, the parent loses nothing."""
    outcome = run("fork_while_producing")
    assert outcome.of("child") == [CHILD] * 8
    assert outcome.of("parent") == [
        {"who": "parent", "codes": [0] * 8, "right": [True] * 3, "complete": True}
    ]


def test_a_fork_in_the_middle_of_an_enqueue_leaves_no_lock_behind(run: Run) -> None:
    """A lock that another thread held stays locked in the child, so the child has new ones."""
    outcome = run("fork_in_the_middle_of_enqueue")
    assert outcome.of("child") == [CHILD]
    assert outcome.of("parent") == [{"who": "parent", "code": 0, "got": [42, 8], "complete": True}]


def test_a_fork_inside_the_processor_leaves_the_batch_with_the_parent(run: Run) -> None:
    """In the child its completion is ignored, and the batcher is as good as new."""
    outcome = run("fork_in_process_batch")
    assert outcome.of("child") == [CHILD]
    assert outcome.of("parent") == [{"who": "parent", "codes": [0], "got": 14, "complete": True}]


def test_a_fork_inside_a_callback_does_not_upset_the_parent(run: Run) -> None:
    """All its items are told, once."""
    outcome = run("fork_in_a_callback")
    assert outcome.of("child") == [CHILD]
    assert outcome.of("parent") == [
        {"who": "parent", "codes": [0], "told": [0, 1, 2], "complete": True}
    ]


def test_a_child_shares_a_scheduler_of_its_own(run: Run) -> None:
    """The parent's has no threads there."""
    outcome = run("fork_with_a_shared_scheduler")
    assert outcome.of("child") == [CHILD]
    assert outcome.of("parent") == [{"who": "parent", "code": 0, "got": [42, 8], "complete": True}]


def test_a_child_forked_during_a_close_finds_the_batcher_closed(run: Run) -> None:
    """It can be opened and used; the parent's close goes on."""
    outcome = run("fork_while_closing")
    assert outcome.of("child") == [{"who": "child", "state": "created", "left": 1}]
    assert outcome.of("parent") == [{"who": "parent", "code": 0, "finished": True}]


# -- the end ----------------------------------------------------------------------------


def test_a_silent_processor_does_not_keep_the_interpreter_from_ending(run: Run) -> None:
    """Within the deadline everything completes, and the log says what was given up."""
    outcome = run("exit_with_a_silent_processor")
    assert outcome.elapsed < 10.0
    ends = {line["item"]: (line["result"], line["ll_result"]) for line in outcome.of("item")}
    sent = ("ABANDONED", "INDETERMINATE")
    assert ends == {0: sent, 1: sent, 2: ("ABANDONED", None)} | dict.fromkeys((3, 4), ends[2])
    assert len(outcome.of("item")) == 5
    assert "WARNING batcher.exit_incomplete" in outcome.done.stderr
    assert "3 items of batcher 'batcher' not sent and 2 in the processor's" in outcome.done.stderr


def test_a_processor_that_never_returns_does_not_either(run: Run) -> None:
    """Its thread is left behind."""
    outcome = run("exit_with_a_stuck_processor")
    assert outcome.elapsed < 10.0
    ends = {line["item"]: line["ll_result"] for line in outcome.of("item")}
    assert ends == {0: "INDETERMINATE", 1: None, 2: None}
    assert "WARNING batcher.exit_incomplete" in outcome.done.stderr


@pytest.mark.parametrize("program", ["exit_with_a_backlog", "exit_with_first_items"])
def test_what_waits_at_the_end_is_sent(run: Run, program: str) -> None:
    """Also if no thread could be started any more to do it."""
    outcome = run(program)
    assert [(line["item"], line["result"]) for line in outcome.of("item")] == [
        (0, "OK"),
        (1, "OK"),
        (2, "OK"),
    ]
    assert "exit_incomplete" not in outcome.done.stderr


def test_what_raises_harms_no_other_item(run: Run) -> None:
    """Not even with what ends threads and programs: SystemExit and KeyboardInterrupt."""
    (said,) = run("everything_raises").of("parent")
    assert said["outcomes"] == {"1": "OK", "13": "ERROR", "3": "OK", "5": "OK", "7": "ERROR"}
    assert (said["done"], said["last"]) == (16, 18)
