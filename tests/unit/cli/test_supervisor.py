"""The supervisor with small programs for parts: readiness, restarts, an end that is complete."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from penstock.cli._supervisor import Part, PartFailedError, Supervisor
from penstock.testing import FakeClock, eventually

PATIENCE = 60.0  # seconds; only a failing test waits this long
_GRACE = 10.0

# Announces itself, and ends at SIGTERM or with its parent, as the commands do.
FAITHFUL = """
    import os, signal, sys, threading
    from penstock.cli._part import announce_ready, follow_parent
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    follow_parent()
    print("pid", os.getpid(), flush=True)
    announce_ready()
    over.wait()
    print("goodbye", flush=True)
"""
# Does not care for SIGTERM, nor for its parent, and has a child like that.
STUBBORN = """
    import os, signal, subprocess, sys
    from penstock.cli._part import announce_ready
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    print("pid", os.getpid(), flush=True)
    print("pid", child.pid, flush=True)
    announce_ready()
    while True:
        signal.pause()
"""
READY_AND_GONE = """
    import os
    from penstock.cli._part import announce_ready
    print("pid", os.getpid(), flush=True)
    announce_ready()
    raise SystemExit(3)
"""
REFUSING = """
    import sys
    print("some detail", flush=True)
    sys.exit("penstock: the port is in use")
"""


def part(name: str, program: str) -> Part:
    """Return a part that runs *program*."""
    return Part(name, [sys.executable, "-c", textwrap.dedent(program)], os.environ)


@dataclass
class Observed:
    """A supervisor on a thread, and what is heard of it."""

    supervisor: Supervisor
    lines: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self) -> None:
        """Run it, and keep what it raises."""
        try:
            self.supervisor.run()
        except PartFailedError as error:
            self.failure = error

    @property
    def pids(self) -> list[int]:
        """All processes that told their ids."""
        return [int(line.split()[-1]) for line in self.lines if "| pid " in line]

    def await_line(self, text: str, count: int = 1) -> None:
        """Wait until so many lines with *text* were written."""
        eventually(lambda: sum(text in line for line in self.lines[:]) >= count, PATIENCE)


def observe(parts: Sequence[Part], clock: FakeClock | None = None) -> Observed:
    """Return a supervisor that is about to run."""
    lines: list[str] = []
    ready: list[str] = []
    more = {} if clock is None else {"clock": clock}
    return Observed(Supervisor(parts, ready.append, lines.append, **more), lines, ready)


@contextmanager
def running(parts: Sequence[Part], clock: FakeClock | None = None) -> Iterator[Observed]:
    """Run a supervisor; stop it at the end, and see that no process is left."""
    observed = observe(parts, clock)
    thread = threading.Thread(target=observed.run, daemon=True)
    thread.start()
    try:
        yield observed
    finally:
        observed.supervisor.stop()
        thread.join(PATIENCE)
        with suppress(AssertionError):  # a kill takes a moment
            eventually(lambda: living(observed.pids) == [], _GRACE)
        left = living(observed.pids)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert not thread.is_alive()
    assert left == []


def living(pids: Sequence[int]) -> list[int]:
    """Return those that still run; what only waits to be reaped does not."""
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


def test_parts_run_until_the_stop_and_end_in_peace() -> None:
    """Each is told by name when it is ready; lines bear its name; the last words are heard."""
    with running([part("a", FAITHFUL), part("b", FAITHFUL)]) as observed:
        eventually(lambda: sorted(observed.ready) == ["a", "b"], PATIENCE)
        eventually(lambda: len(living(observed.pids)) == 2, PATIENCE)
    assert sorted(line for line in observed.lines if "pid" not in line) == [
        "a | goodbye",
        "b | goodbye",
    ]
    assert observed.failure is None


def test_a_part_that_cannot_start_ends_everything() -> None:
    """The error names it and how it ended, and keeps what it said; the others end."""
    observed = observe([part("good", FAITHFUL), part("bad", REFUSING)])
    observed.run()
    assert isinstance(observed.failure, PartFailedError)
    assert str(observed.failure) == (
        "bad cannot start: it ended with exit code 1; see its message above"
    )
    assert (observed.failure.part, observed.failure.reason) == ("bad", "the port is in use")
    assert observed.lines.index("bad | penstock: the port is in use") > 0
    assert "bad" not in observed.ready
    eventually(lambda: living(observed.pids) == [], PATIENCE)  # a kill takes a moment


def test_a_part_that_said_nothing_is_told_so() -> None:
    """There is no message to look for; a signal is called by its name."""
    observed = observe([part("mute", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")])
    observed.run()
    assert str(observed.failure) == ("mute cannot start: it was ended by SIGKILL; it said nothing")


def test_a_command_that_does_not_exist_is_told() -> None:
    """A broken installation is no reason for a stack trace."""
    observed = observe([Part("lost", ["/nonexistent/python"], os.environ)])
    observed.run()
    assert str(observed.failure) == (
        "lost cannot start: /nonexistent/python: No such file or directory"
    )


def test_lines_of_json_stay_json() -> None:
    """A collector of logs reads one object per line."""
    observed = observe([part("a", """print('{"event": "a.b"}'); print("text")""")])
    observed.run()
    assert observed.lines == ['{"event": "a.b"}', "a | text"]


def test_output_that_is_not_utf_8_is_passed_on() -> None:
    """No line ends the relay."""
    observed = observe([part("a", r"import os; os.write(1, b'\xff\nafter\n')")])
    observed.run()
    assert observed.lines == ["a | �", "a | after"]


def test_a_part_that_dies_is_started_again_after_a_growing_pause() -> None:
    """1 s, 2 s, 4 s and so on, never more than 30 s; each time it is said."""
    clock = FakeClock()
    with running([part("weak", READY_AND_GONE)], clock) as observed:
        for number, pause in enumerate((1, 2, 4, 8, 16, 30, 30), start=1):
            observed.await_line("ended with exit code 3", number)
            assert observed.lines[-1] == (
                f"penstock: weak ended with exit code 3 after 0 s; starting it again in {pause} s"
            )
            clock.await_sleepers(1)
            assert len(observed.pids) == number
            clock.advance(pause - 0.5)
            clock.await_sleepers(1)
            assert len(observed.pids) == number
            clock.advance(0.5)
        observed.await_line("ended with exit code 3", 8)
        assert observed.ready == ["weak"]  # only once


def test_after_a_healthy_run_the_pause_is_short_again() -> None:
    """A failure once a day is not punished for that of the day before."""
    clock = FakeClock()
    with running([part("a", FAITHFUL)], clock) as observed:
        for number, (age, pause) in enumerate([(5, 1), (5, 2), (60, 1)], start=1):
            observed.await_line("pid", number)
            clock.advance(age)
            os.kill(observed.pids[-1], signal.SIGKILL)
            observed.await_line(f"was ended by SIGKILL after {age} s", number if age == 5 else 1)
            assert observed.lines[-1].endswith(f"starting it again in {pause} s")
            clock.await_sleepers(1)
            clock.advance(pause)
        observed.await_line("pid", 4)


def test_a_part_is_never_started_twice_at_once(tmp_path: Path) -> None:
    """A part that is killed again and again finds that its predecessor has gone (U1)."""
    claim = tmp_path / "claim"
    program = f"""
        import os, signal, sys
        from penstock.cli._part import announce_ready
        import psutil
        try:
            other = int(open({str(claim)!r}).read())
        except FileNotFoundError:
            other = 0
        if other and psutil.pid_exists(other):
            print("two at once", flush=True)
        open({str(claim)!r}, "w").write(str(os.getpid()))
        print("pid", os.getpid(), flush=True)
        announce_ready()
        signal.pause()
    """
    clock = FakeClock()
    with running([part("a", program)], clock) as observed:
        for number in range(1, 4):
            observed.await_line("a | pid", number)
            eventually(lambda: "a" in observed.ready, PATIENCE)
            last = [int(line.split()[-1]) for line in observed.lines[:] if "a | pid" in line][-1]
            os.kill(last, signal.SIGKILL)
            observed.await_line("penstock: a was ended by SIGKILL", number)
            clock.await_sleepers(1)
            clock.advance(60)
        observed.await_line("a | pid", 4)
    assert not any("two at once" in line for line in observed.lines)


def test_a_part_that_will_not_end_is_killed_with_its_children_at_the_second_stop() -> None:
    """The first stop asks, the second does not."""
    with running([part("hard", STUBBORN)], FakeClock()) as observed:
        eventually(lambda: observed.ready == ["hard"], PATIENCE)
        eventually(lambda: len(living(observed.pids)) == 2, PATIENCE)
        observed.supervisor.stop()
    assert observed.lines[-1] == "penstock: hard is killed"


def test_a_part_that_will_not_end_is_killed_when_its_time_is_up() -> None:
    """Thirty seconds are allowed, and no more."""
    clock = FakeClock()
    observed = observe([part("hard", STUBBORN)], clock)
    thread = threading.Thread(target=observed.run, daemon=True)
    thread.start()
    eventually(lambda: observed.ready == ["hard"], PATIENCE)
    observed.supervisor.stop()
    clock.await_sleepers(1)
    clock.advance(29.9)
    clock.await_sleepers(1)
    eventually(lambda: len(living(observed.pids)) == 2, PATIENCE)
    clock.advance(0.2)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    eventually(lambda: living(observed.pids) == [], PATIENCE)  # a kill takes a moment


def test_what_a_dead_part_leaves_behind_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children would use its ports and folders while it is started again."""
    monkeypatch.setattr("penstock.cli._supervisor._LAST_WORDS", 0.2)
    clock = FakeClock()
    with running([part("hard", STUBBORN)], clock) as observed:
        eventually(lambda: observed.ready == ["hard"], PATIENCE)
        observed.await_line("| pid ", 2)
        itself, child = observed.pids
        os.kill(itself, signal.SIGKILL)
        observed.await_line("penstock: hard was ended by SIGKILL")
        eventually(lambda: living([child]) == [], PATIENCE)


def test_a_stop_during_a_pause_does_not_wait_for_it() -> None:
    """What waits to be started again is not."""
    clock = FakeClock()
    with running([part("weak", READY_AND_GONE)], clock) as observed:
        observed.await_line("starting it again in 1 s")
        clock.await_sleepers(1)
    assert len(observed.pids) == 1


def test_parts_end_when_their_supervisor_is_killed() -> None:
    """SIGKILL leaves no time to say goodbye: the parts see that their pipe has ended (U2)."""
    program = f"""
        import os, sys
        from penstock.cli._supervisor import Part, Supervisor
        parts = [Part(name, [sys.executable, "-c", {textwrap.dedent(FAITHFUL)!r}], os.environ)
                 for name in "ab"]
        Supervisor(parts, output=lambda line: print(line, flush=True)).run()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(supervisor.stdout.readline().split()[-1]) for _ in range(2)]
        assert len(living(pids)) == 2
        supervisor.kill()
        eventually(lambda: living(pids) == [], PATIENCE)
