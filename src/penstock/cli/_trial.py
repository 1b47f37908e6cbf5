"""The pipeline of the demo: started on free ports, given traffic, watched until all has arrived."""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Self
from urllib.request import ProxyHandler, build_opener

from penstock.cli._supervisor import PartFailedError, Supervisor
from penstock.cli.up import parts_of
from penstock.clock import SYSTEM_CLOCK, wall_time
from penstock.errors import DependencyError, JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.generate import GeneratorSettings

__all__ = ["Arrived", "Line", "Trial", "sender"]

_START = 120.0  # seconds: starting Spark on a slow machine
_STANDSTILL = 120.0  # seconds without any progress
_LOOK_EVERY = 0.25  # seconds
_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Arrived:
    """How many spans came how far."""

    sent: int = 0
    landed: int = 0
    aggregated: int = 0


def sender() -> Callable[[GeneratorSettings, str, Callable[[int], object]], int]:
    """Return what sends spans, or say what is missing."""
    try:
        from penstock.generate.replay import send_spans
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"the demo needs {error.name}: pip install 'penstock[demo]'"
        ) from error
    return send_spans


class Line:
    """One line that says how far it is; on a terminal it is written over."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self._step = ""

    def show(self, step: str, detail: str = "") -> None:
        """Show a step and how far it is; where lines stay, only the step."""
        if self._is_live:
            columns = shutil.get_terminal_size().columns
            text = f"{step} {detail}"[: columns - 1]
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif step != self._step:
            print(step, file=sys.stderr, flush=True)
        self._step = step

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self._is_live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Trial:
    """The pipeline in *folder*, supervised by a thread of its own."""

    # Guarded by _changed: _ready, _failure; set by the supervisor's thread.

    def __init__(self, folder: Path, log: IO[str], line: Line) -> None:
        self._folder = folder
        self._log = log
        self._line = line
        self._grpc, self._http, self._metrics = _free_ports(3)
        self._changed = threading.Condition()
        self._ready: set[str] = set()
        self._failure: BaseException | None = None
        self._is_leaving = False
        self._left_over = _rows_waiting(folder / "landing")
        self._arrived = Arrived()
        parts = parts_of(self._options(), _untouched(os.environ))
        self._supervisor = Supervisor(parts, self._note_ready, output=self._write)
        self._thread = threading.Thread(target=self._supervise, name="penstock.demo")

    def _options(self) -> argparse.Namespace:
        return argparse.Namespace(
            landing=self._folder / "landing",
            store=str(self._folder / "metrics.db"),
            config=os.devnull,  # a demo shows the defaults, whatever penstock.toml says
            log_level="info",
            log_format="text",
            grpc_port=self._grpc,
            http_port=self._http,
            metrics_port=self._metrics,
            segment_age=1.0,
            interval=1.0,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_leaving = True
        self._line.show("stopping")
        self._supervisor.stop()
        self._thread.join()
        self._line.clear()

    def interrupt(self) -> None:
        """Give up; called from a signal handler, once more to be quick."""
        if self._is_leaving:
            self._supervisor.stop()
        else:
            self._is_leaving = True
            raise KeyboardInterrupt

    def traffic(self, spans: int) -> Arrived:
        """Send spans, wait until they are aggregated, and return how many came how far.

        The receiver takes them while Spark still starts: what it has acknowledged waits on disk.
        """
        started = SYSTEM_CLOCK.now()

        def show_start(what: str) -> None:
            waited = f"· {SYSTEM_CLOCK.now() - started:.0f} s"
            landed = f", {self._arrived.landed:,} spans landed" if self._arrived.landed else ""
            self._line.show(f"starting {what}", waited + landed)

        def show_progress() -> None:
            arrived = f"· {self._arrived.landed:,} landed, {self._arrived.aggregated:,} aggregated"
            self._line.show("aggregating with Spark", arrived)

        self._wait_for(
            lambda: "receive" in self._ready, lambda: show_start("the receiver and Spark"), _START
        )
        sent = self._send(spans)
        self._wait_for(lambda: "aggregate" in self._ready, lambda: show_start("Spark"), _START)
        self._wait_for(lambda: self._has_all(sent), show_progress, _STANDSTILL)
        return replace(self._arrived, sent=sent)

    def _send(self, spans: int) -> int:
        from penstock.generate import GeneratorSettings

        settings = GeneratorSettings(
            spans=spans,
            seed=int(wall_time()),
            services=6,
            instances=2,
            endpoints=8,
            minutes=_MINUTES,
            late=0.0,
        )

        def show(done: int) -> None:
            if not self._is_leaving:
                self._line.show(
                    "sending spans with the OpenTelemetry SDK", f"· {done:,} of {spans:,}"
                )

        return sender()(settings, f"http://127.0.0.1:{self._grpc}", show)

    def _has_all(self, sent: int) -> bool:
        arrived = self._arrived
        return arrived.landed >= sent and arrived.aggregated >= arrived.landed

    def _look(self) -> None:
        landed = _scraped(self._http, 'penstock_landing_records_total{signal="spans"}')
        merged = _scraped(self._metrics, 'penstock_job_rows_total{signal="spans"}')
        self._arrived = Arrived(0, landed, max(0, merged - self._left_over))

    def _wait_for(
        self, is_done: Callable[[], bool], show: Callable[[], None], allowed: float
    ) -> None:
        """Wait until *is_done*; JobError if nothing moves for so many seconds."""
        deadline = SYSTEM_CLOCK.now() + allowed
        while not is_done():
            show()
            with self._changed:
                if self._failure is None:
                    SYSTEM_CLOCK.wait(self._changed, _LOOK_EVERY)
                if self._failure is not None:
                    raise self._failure
            before = self._arrived
            self._look()
            if self._arrived != before:
                deadline = SYSTEM_CLOCK.now() + allowed
            if SYSTEM_CLOCK.now() > deadline:
                raise JobError(f"nothing moves for {allowed:.0f} s; see {self._log.name}")

    # -- on the supervisor's threads --------------------------------------------------------

    def _supervise(self) -> None:
        try:
            self._supervisor.run()
        except PartFailedError as error:
            self._fail(JobError(f"{error.part} cannot start: {error.reason}"))
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _note_ready(self, name: str) -> None:
        with self._changed:
            self._ready.add(name)
            self._changed.notify_all()

    def _write(self, line: str) -> None:
        print(line, file=self._log, flush=True)


def _untouched(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what is meant for penstock: a demo shows the defaults."""
    return {name: value for name, value in environment.items() if not name.startswith("PENSTOCK_")}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _rows_waiting(landing: Path) -> int:
    """Return how many spans an earlier demo has left to be aggregated."""
    import pyarrow.parquet as pq

    from penstock.land.folder import LandingFolder
    from penstock.telemetry.schema import Signal

    waiting = [file for file in LandingFolder(landing).pending() if file.signal is Signal.SPANS]
    return sum(pq.read_metadata(landing / file.name).num_rows for file in waiting)


def _scraped(port: int, sample: str) -> int:
    opener = build_opener(ProxyHandler({}))  # our own ports, whatever proxy there is for others
    url = f"http://127.0.0.1:{port}/metrics"
    with suppress(OSError), opener.open(url, timeout=5.0) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(sample):
                return int(float(line.rpartition(" ")[2]))
    return 0
