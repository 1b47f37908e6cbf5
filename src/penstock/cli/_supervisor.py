"""Keeps the parts of `penstock up` running, each a process of its own.

A part that ends before it was ever ready ends everything: what keeps it from starting would keep
it again. One that ends later is reported and started again, after a pause that grows.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import IO, TYPE_CHECKING, NamedTuple

from penstock.cli._part import LIFELINE, READY
from penstock.clock import SYSTEM_CLOCK, wait_until
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.clock import Clock

__all__ = ["Part", "PartFailedError", "Supervisor"]

_PAUSES = (1.0, 30.0)  # seconds before a part is started again: first, longest
_HEALTHY = 60.0  # a part that ran for so many seconds begins with the first pause again
_GRACE = 30.0  # seconds to end in peace
_LAST_WORDS = 5.0  # seconds for what a part has left in its pipe, and for its own children
_REMEMBERED = 20  # lines


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class PartFailedError(PenstockError, RuntimeError):
    """A part of the pipeline cannot start; `lines` are the last that it said."""

    def __init__(self, message: str, part: str, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.part = part
        self.lines = tuple(lines)

    @property
    def reason(self) -> str:
        """What the part said last, if it said why; else how it ended."""
        told = [number for number, line in enumerate(self.lines) if line.startswith("penstock: ")]
        if not told:
            return str(self)
        return "\n".join(self.lines[told[-1] :]).removeprefix("penstock: ")


@dataclass(frozen=True, slots=True)
class Part:
    """A command to keep running, and all of its environment."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(eq=False, slots=True)
class _Running:
    part: Part
    process: subprocess.Popen[str] | None = None
    was_ready: bool = False
    started_at: float = 0.0
    pause: float = 0.0
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    threads: list[threading.Thread] = field(default_factory=list)


class _Kind(Enum):
    READY = auto()
    ENDED = auto()
    DUE = auto()  # its pause is over
    STOP = auto()
    LATE = auto()  # the time to end in peace is over


class _Event(NamedTuple):
    kind: _Kind
    running: _Running | None = None


class Supervisor:
    """Runs parts until it is told to stop. `stop` may be called from a signal handler."""

    # Parts are started and judged by the thread in `run` only; all others tell it by _events,
    # a queue that a signal handler may put into. Guarded by _ending: _is_over.
    #   U1  a part runs at most once (test_a_part_is_never_started_twice_at_once).
    #   U2  no process outlives `run`, nor the supervisor itself: each part has a pipe that ends
    #       with it (test_parts_end_when_their_supervisor_is_killed).

    def __init__(
        self,
        parts: Sequence[Part],
        on_ready: Callable[[str], object] = lambda _: None,
        output: Callable[[str], object] = _print,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._parts = [_Running(part) for part in parts]
        self._on_ready = on_ready
        self._output = output
        self._clock = clock
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._stops = 0
        self._ending = threading.Condition()
        self._is_over = False
        self._timers: list[threading.Thread] = []
        self._lifeline, self._held = os.pipe()

    def stop(self) -> None:
        """Ask for the end; a second time, for a quick one."""
        self._stops += 1
        self._events.put(_Event(_Kind.STOP))

    def run(self) -> None:
        """Return when all have ended after `stop`; PartFailedError if one cannot start."""
        try:
            for running in self._parts:
                self._start(running)
            while not self._stops:
                self._handle(self._events.get())
        finally:
            self._end_all()
            os.close(self._lifeline)
            os.close(self._held)

    # -- starting -------------------------------------------------------------------------------

    def _start(self, running: _Running) -> None:
        assert running.process is None  # U1
        ready, announce = os.pipe()
        try:
            process = self._process(running.part, announce)
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(announce)
        running.process = process
        running.started_at = self._clock.now()
        assert process.stdout is not None
        announced = threading.Thread(target=self._await_ready, args=(running, ready), daemon=True)
        running.threads = [
            announced,
            threading.Thread(target=self._relay, args=(running, process.stdout), daemon=True),
            threading.Thread(
                target=self._await_end, args=(running, process, announced), daemon=True
            ),
        ]
        for thread in running.threads:
            thread.start()

    def _process(self, part: Part, announce: int) -> subprocess.Popen[str]:
        pipes = {READY: str(announce), LIFELINE: str(self._lifeline)}
        try:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and commands
                part.command,
                env={**part.environment, **pipes},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                pass_fds=(announce, self._lifeline),
                start_new_session=True,  # Ctrl-C comes to us alone
            )
        except OSError as error:
            raise PartFailedError(
                f"{part.name} cannot start: {part.command[0]}: {error.strerror}", part.name, ()
            ) from error

    def _relay(self, running: _Running, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                text = line.rstrip()
                running.lines.append(text)
                # Logs in JSON stay JSON: they name their logger.
                self._output(text if text.startswith("{") else f"{running.part.name} | {text}")

    def _await_ready(self, running: _Running, ready: int) -> None:
        try:
            if os.read(ready, 1):
                self._events.put(_Event(_Kind.READY, running))
        finally:
            os.close(ready)

    def _await_end(
        self, running: _Running, process: subprocess.Popen[str], announced: threading.Thread
    ) -> None:
        process.wait()
        announced.join(_LAST_WORDS)  # that it was ready is told before that it has ended
        self._events.put(_Event(_Kind.ENDED, running))

    # -- watching -------------------------------------------------------------------------------

    def _handle(self, event: _Event) -> None:
        running = event.running
        if running is None:
            return
        if event.kind is _Kind.READY and not running.was_ready:
            running.was_ready = True
            self._on_ready(running.part.name)
        elif event.kind is _Kind.ENDED:
            self._note_end(running)
        elif event.kind is _Kind.DUE:
            self._start(running)

    def _note_end(self, running: _Running) -> None:
        name, how = running.part.name, self._buried(running)
        if not running.was_ready:
            said = "see its message above" if running.lines else "it said nothing"
            raise PartFailedError(f"{name} cannot start: it {how}; {said}", name, running.lines)
        first, longest = _PAUSES
        ran = self._clock.now() - running.started_at
        running.pause = first if ran >= _HEALTHY else min(max(first, 2 * running.pause), longest)
        self._output(
            f"penstock: {name} {how} after {ran:.0f} s; starting it again in {running.pause:g} s"
        )
        self._after(running.pause, _Event(_Kind.DUE, running))

    def _buried(self, running: _Running) -> str:
        """Return how a process has ended; nothing of it is left then."""
        process, running.process = running.process, None
        assert process is not None
        _signal_group(process, signal.SIGTERM)  # what it has started and left behind
        for thread in running.threads:
            thread.join(_LAST_WORDS)  # its last lines come before what we say about them
        _signal_group(process, signal.SIGKILL)
        return _how(process.returncode)

    def _after(self, seconds: float, event: _Event) -> None:
        """Have *event* come when so much time has passed, unless all is over before."""

        def wait() -> None:
            with self._ending:
                is_over = wait_until(self._clock, self._ending, lambda: self._is_over, seconds)
            if not is_over:
                self._events.put(event)

        self._timers = [timer for timer in self._timers if timer.is_alive()]
        self._timers.append(threading.Thread(target=wait, daemon=True))
        self._timers[-1].start()

    # -- the end --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        for running in self._parts:
            if running.process is not None:
                with suppress(ProcessLookupError):
                    running.process.send_signal(signal.SIGTERM)
        self._after(_GRACE, _Event(_Kind.LATE))
        while self._stops <= 1 and any(running.process is not None for running in self._parts):
            event = self._events.get()
            if event.kind is _Kind.LATE:
                break
            if event.kind is _Kind.ENDED and event.running is not None:
                self._buried(event.running)
        self._kill_the_rest()
        with self._ending:
            self._is_over = True
            self._ending.notify_all()
        for timer in self._timers:
            timer.join()

    def _kill_the_rest(self) -> None:
        for running in self._parts:
            if running.process is not None:
                self._output(f"penstock: {running.part.name} is killed")
                _signal_group(running.process, signal.SIGKILL)
                running.process.wait()
                self._buried(running)


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
