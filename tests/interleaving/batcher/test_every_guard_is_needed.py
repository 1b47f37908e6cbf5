"""Break each guard once, in a copy, and see the test that is named for it fail.

A forced interleaving proves something only if it fails without the line that it is about.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CLOSING = "tests/interleaving/batcher/test_closing.py::"
SENDING = "tests/interleaving/batcher/test_sending.py::"


@dataclass(frozen=True)
class Guard:
    """A line of the batcher, what breaks it, and the test that must notice."""

    name: str
    module: str
    line: str
    broken: str
    test: str


GUARDS = [
    Guard(
        "close x enqueue",
        "_intake",
        "                if not self.life.is_accepting:\n"
        "                    return self.refuse(EnqueueResult.INVALID_STATE)\n"
        "                staging",
        "                staging",
        CLOSING + "test_an_item_that_meets_a_close_is_refused_or_abandoned",
    ),
    Guard(
        "close x completion, the close first",
        "_core",
        "        if batch.is_done or self.pending.get(batch.batch_id) is not batch:",
        "        if self.pending.get(batch.batch_id) is not batch:",
        CLOSING + "test_a_completion_that_meets_the_end_of_a_close_counts_once",
    ),
    Guard(
        "close x completion, the completion first",
        "_closing",
        "[b for b in self._core.pending.values() if self._core.latch(b)]",
        "list(self._core.pending.values())",
        CLOSING + "test_a_close_does_not_give_up_what_is_being_completed",
    ),
    Guard(
        "close x callback",
        "_core",
        "        return not self.pending and not self.life.calls",
        "        return not self.pending",
        CLOSING + "test_no_callback_runs_after_close_returned",
    ),
    Guard(
        "close x timer",
        "_core",
        "            if worker is not self.worker:\n                return None",
        "            if worker is None:\n                return None",
        CLOSING + "test_a_worker_that_wakes_after_another_opening_leaves_it_alone",
    ),
    Guard(
        "close x timer, while closing",
        "_core",
        "        if not self.life.is_sending:\n            return None, math.inf\n",
        "",
        CLOSING + "test_a_worker_that_wakes_while_the_batcher_closes_sends_nothing",
    ),
    Guard(
        "close x close",
        "_closing",
        "            if not leads and (account.inside or not core.is_unattended):",
        "            if not leads and account.inside:",
        CLOSING + "test_a_second_close_waits_for_the_first",
    ),
    Guard(
        "close x drain",
        "_lifecycle",
        "    (_S.DRAINING, SOUND, _E.DRAINED): (_S.CLOSING, SOUND),",
        "    (_S.DRAINING, SOUND, _E.DRAINED): (_S.CLOSING, SOUND),\n"
        "    (_S.DRAINING, SOUND, _E.CLOSE): (_S.CLOSING, SOUND),",
        CLOSING + "test_a_close_during_a_drain_waits_for_it",
    ),
    Guard(
        "close inside a callback",
        "_closing",
        "            left = 0.0 if account.inside else account.deadline - self._clock.now()",
        "            left = account.deadline - self._clock.now()",
        CLOSING + "test_close_inside_a_callback_does_not_wait",
    ),
    Guard(
        "the end of a close inside a callback",
        "_core",
        "            gone = self.end_if_idle()",
        "            gone = None",
        CLOSING + "test_a_close_inside_a_callback_ends_by_itself",
    ),
    Guard(
        "fault x enqueue",
        "_lifecycle",
        "        self.is_accepting = sound and self.state is State.OPENED",
        "        self.is_accepting = self.state is State.OPENED",
        SENDING + "test_an_item_that_meets_a_fault_is_refused",
    ),
    Guard(
        "the wake-up of a worker that parks",
        "_core",
        "            self.wake_at = 0\n            return None, math.inf",
        "            return None, math.inf",
        SENDING + "test_an_item_that_comes_while_the_worker_parks_is_sent",
    ),
    Guard(
        "the wake-up of a worker that was held back",
        "_core",
        "worker = self.want() if self._is_held and self.life.is_sending else None",
        "worker = None",
        SENDING + "test_a_completion_that_meets_the_limit_lets_the_worker_go_on",
    ),
    Guard(
        "two completions",
        "_core",
        "        batch.is_done = True",
        "        batch.is_done = False",
        SENDING + "test_two_completions_at_once_count_once",
    ),
    Guard(
        "completion during process_batch",
        "_core",
        "        if latched:\n            errors",
        "        if batch:\n            errors",
        SENDING + "test_a_failure_that_meets_a_completion_counts_once",
    ),
    Guard(
        "cancel x claim",
        "_futures",
        "            if self.stage == _TAKEN:\n                return False\n",
        "",
        SENDING + "test_a_cancel_that_meets_the_claim_is_refused",
    ),
    Guard(
        "cancel under way x claim",
        "_futures",
        "                if entry[4].stage == _WAITING:\n",
        "                if entry:\n",
        SENDING + "test_a_cancel_under_way_keeps_the_item_from_being_sent",
    ),
    Guard(
        "waiter x result",
        "_futures",
        "        with _shared.lock:\n            if not self.is_watched:",
        "        if True:\n            if not self.is_watched:",
        SENDING + "test_a_waiter_that_meets_the_result_is_not_left_waiting",
    ),
]


def run_test(test: str, source: Path) -> subprocess.CompletedProcess[str]:
    """Run one test against the batcher in *source*, with little patience."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]),
        "PENSTOCK_TEST_PATIENCE": "1",
    }
    for name in [name for name in environment if name.startswith("COVERAGE")]:
        del environment[name]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_broken_guard_is_noticed(guard: Guard, tmp_path: Path) -> None:
    """The test fails, or hangs, without the line; that it passes with it is seen elsewhere."""
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    module = source / "penstock" / "batcher" / f"{guard.module}.py"
    text = module.read_text(encoding="utf-8")
    assert text.count(guard.line) == 1, f"the guard is not there, or not once: {guard.line!r}"
    module.write_text(text.replace(guard.line, guard.broken), encoding="utf-8")
    try:
        done = run_test(guard.test, source)
    except subprocess.TimeoutExpired:
        return
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"FAILED {guard.test}" in done.stdout, done.stdout
