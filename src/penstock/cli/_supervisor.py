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
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from penstock.cli._part import LIFELINE, READY
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.clock import Clock

__all__ = ["Part", "PartFailedError", "Supervisor"]

_PAUSES = (1.0, 30.0)  # seconds before a part is started again: first, longest
_HEALTHY = 60.0  # a part that ran for so many seconds begins with the first pause again
_GRACE = 30.0  # seconds to end in peace


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class PartFailedError(PenstockError, RuntimeError):
    """A part of the pipeline cannot start; its own message went before."""


@dataclass(frozen=True, slots=True)
class Part:
    """A command to keep running."""

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
    start_at: float | None = None  # when it is to be started again
    threads: list[threading.Thread] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str  # ready, ended, stop
    running: _Running | None = None
    process: subprocess.Popen[str] | None = None


class Supervisor:
    """Runs parts until it is told to stop. `stop` may be called from a signal handler."""

    # Parts are started and judged by the thread in `run` only; others tell it by _events.
    #   U1  a part runs at most once (test_a_part_is_never_started_twice_at_once).
    #   U2  no process outlives `run`, nor the supervisor itself: each part has a pipe that ends
    #       with it (test_parts_end_when_their_supervisor_is_killed).

    def __init__(
        self,
        parts: Sequence[Part],
        on_ready: Callable[[], object] = lambda: None,
        output: Callable[[str], object] = _print,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._parts = [_Running(part) for part in parts]
        self._on_ready = on_ready
        self._output = output
        self._clock = clock
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._stops = 0
        self._lifeline, self._held = os.pipe()

    def stop(self) -> None:
        """Ask for the end; a second time, for a quick one."""
        self._stops += 1
        self._events.put(_Event("stop"))

    def run(self) -> None:
        """Return when all have ended after `stop`; PartFailedError if one cannot start."""
        try:
            for running in self._parts:
                self._start(running)
            while not self._stops:
                self._handle(self._next_event())
        finally:
            self._end_all()
            os.close(self._lifeline)
            os.close(self._held)

    # -- starting -------------------------------------------------------------------------------

    def _start(self, running: _Running) -> None:
        assert running.process is None  # U1
        ready, announce = os.pipe()
        environment = {
            **os.environ,
            **running.part.environment,
            READY: str(announce),
            LIFELINE: str(self._lifeline),
        }
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and commands
            running.part.command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(announce, self._lifeline),
            start_new_session=True,  # Ctrl-C comes to us alone
        )
        os.close(announce)
        running.process = process
        running.start_at = None
        running.started_at = self._clock.now()
        assert process.stdout is not None
        running.threads = [
            threading.Thread(target=self._relay, args=(running, process.stdout), daemon=True),
            threading.Thread(target=self._await_ready, args=(running, process, ready), daemon=True),
            threading.Thread(target=self._await_end, args=(running, process), daemon=True),
        ]
        for thread in running.threads:
            thread.start()

    def _relay(self, running: _Running, stream: IO[str]) -> None:
        for line in stream:
            self._output(f"{running.part.name} | {line.rstrip()}")

    def _await_ready(self, running: _Running, process: subprocess.Popen[str], ready: int) -> None:
        try:
            if os.read(ready, 1):
                self._events.put(_Event("ready", running, process))
        finally:
            os.close(ready)

    def _await_end(self, running: _Running, process: subprocess.Popen[str]) -> None:
        process.wait()
        self._events.put(_Event("ended", running, process))

    # -- watching -------------------------------------------------------------------------------

    def _next_event(self) -> _Event | None:
        times = [r.start_at for r in self._parts if r.start_at is not None]
        if not times:
            return self._events.get()
        with suppress(queue.Empty):
            return self._events.get(timeout=max(0.0, min(times) - self._clock.now()))
        return None

    def _handle(self, event: _Event | None) -> None:
        if event is None:
            for running in self._parts:
                if running.start_at is not None and self._clock.now() >= running.start_at:
                    self._start(running)
        elif event.kind == "ready" and event.running is not None:
            is_first = not event.running.was_ready
            event.running.was_ready = True
            if is_first and all(running.was_ready for running in self._parts):
                self._on_ready()
        elif event.kind == "ended" and event.running is not None:
            self._note_end(event.running)

    def _note_end(self, running: _Running) -> None:
        process, running.process = running.process, None
        assert process is not None
        for thread in running.threads:
            thread.join(5.0)  # the last lines come before what we say about them
        name, how = running.part.name, _how(process.returncode)
        if not running.was_ready:
            raise PartFailedError(f"{name} cannot start: it {how}; see its message above")
        first, longest = _PAUSES
        ran = self._clock.now() - running.started_at
        running.pause = first if ran >= _HEALTHY else min(max(first, 2 * running.pause), longest)
        running.start_at = self._clock.now() + running.pause
        self._output(
            f"penstock: {name} {how} after {ran:.0f} s; starting it again in {running.pause:g} s"
        )

    # -- the end --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        for running in self._parts:
            if running.process is not None:
                with suppress(ProcessLookupError):
                    running.process.send_signal(signal.SIGTERM)
        deadline = self._clock.now() + _GRACE
        while any(r.process is not None for r in self._parts):
            left = deadline - self._clock.now()
            if self._stops > 1 or left <= 0:
                break
            with suppress(queue.Empty):
                event = self._events.get(timeout=min(left, 1.0))
                if event.kind == "ended" and event.running is not None:
                    event.running.process = None
        for running in self._parts:
            if running.process is not None:
                self._output(f"penstock: {running.part.name} is killed")
                with suppress(ProcessLookupError):
                    os.killpg(running.process.pid, signal.SIGKILL)
                running.process.wait()
            for thread in running.threads:
                thread.join(5.0)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
