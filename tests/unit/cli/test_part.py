"""What a part of `penstock up` says to its parent, and how it ends with it."""

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

import pytest

from penstock.cli._part import LIFELINE, READY, announce_ready, follow_parent, is_part


def test_a_part_announces_itself_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent reads one byte, and then the end; the part is like any process afterwards."""
    ours, its = os.pipe()
    monkeypatch.setenv(READY, str(its))
    assert is_part()
    announce_ready()
    assert not is_part()
    announce_ready()
    assert os.read(ours, 10) == b"1"
    assert os.read(ours, 10) == b""
    os.close(ours)


def test_an_announcement_to_a_parent_that_is_gone_is_harmless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The part learns of it by its lifeline."""
    ours, its = os.pipe()
    os.close(ours)
    monkeypatch.setenv(READY, str(its))
    announce_ready()
    assert not is_part()


def test_a_process_that_is_no_part_follows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that a user started does not start a thread for it."""
    monkeypatch.delenv(LIFELINE, raising=False)
    before = threading.active_count()
    follow_parent()
    announce_ready()
    assert threading.active_count() == before


def test_a_part_is_told_to_end_when_its_parent_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the pipe comes as SIGTERM, which the command handles as it always does."""
    told = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        told.set()

    lifeline, held = os.pipe()
    monkeypatch.setenv(LIFELINE, str(lifeline))
    before = signal.signal(signal.SIGTERM, note)
    try:
        follow_parent()
        assert LIFELINE not in os.environ  # it is not for children of the part
        assert not told.is_set()
        os.close(held)
        assert told.wait(10)
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(lifeline)


def test_children_of_a_part_do_not_hold_its_pipes() -> None:
    """A process that outlives the part does not keep the parent waiting for the pipe's end."""
    ours, its = os.pipe()
    program = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'])\n"
    )
    stdin, keep = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=stdin, pass_fds=(its,), env={READY: str(its)}
    ) as process:
        os.close(its)
        assert process.wait(60) == 0
        assert os.read(ours, 1) == b""
    os.close(keep)  # ends the grandchild
    os.close(stdin)
    os.close(ours)
