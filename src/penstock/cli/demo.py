"""`penstock demo`: the whole pipeline on this machine, with traffic of a made-up shop."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.error import URLError
from urllib.request import urlopen

from penstock.cli._arguments import at_least
from penstock.cli._summary import Summary, summarise
from penstock.cli._supervisor import PartFailedError, Supervisor
from penstock.cli._table import table
from penstock.cli.up import parts_of, stop_on_signals
from penstock.clock import SYSTEM_CLOCK, wall_time
from penstock.errors import DependencyError, JobError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add_parser"]

_EXAMPLES = """\
Starts what `penstock up` starts, on ports that are free; sends spans of a made-up system with the
OpenTelemetry SDK; waits until they are aggregated; shows what became of them. Running it again
begins anew; --keep keeps the store of the run before, and adds to it.
Exit codes: 0 done, 1 failed, 130 interrupted.
"""
_START = 120.0  # seconds: starting Spark on a slow machine
_MERGE = 120.0  # seconds without any progress
_MINUTES = 5


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "demo",
        help="see the whole pipeline at work, with made-up traffic",
        description="Run the whole pipeline on this machine, with traffic of a made-up system.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("penstock-demo"),
        metavar="DIR",
        help="where it keeps its files (default: %(default)s)",
    )
    parser.add_argument(
        "--spans",
        type=at_least(1),
        default=20_000,
        metavar="N",
        help="spans to send (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="add to the store of the run before")
    parser.add_argument("--json", action="store_true", help="the summary as one JSON object")
    parser.set_defaults(run=_run)


@dataclass(frozen=True, slots=True)
class _Ports:
    grpc: int
    http: int
    metrics: int


def _run(options: argparse.Namespace) -> int:
    begun = SYSTEM_CLOCK.now()
    folder: Path = options.folder
    _prepare(folder, keep=options.keep)
    ports = _Ports(*_free_ports(3))
    demo = _Demo(folder, ports, _Line())
    stop_on_signals(demo.interrupt)
    with demo:
        counts, summary = demo.traffic(options.spans)
    seconds = SYSTEM_CLOCK.now() - begun
    if options.json:
        print(json.dumps({**counts, "seconds": round(seconds, 1), **summary.as_dict()}))
    else:
        print(_text(counts, summary, folder, seconds))
    return 0 if len(set(counts.values())) == 1 else 1


def _prepare(folder: Path, *, keep: bool) -> None:
    is_ours = (folder / "demo.log").exists() or not folder.exists() or not any(folder.iterdir())
    if not is_ours:
        raise JobError(f"{folder} is not a folder of the demo; name another with --folder")
    if folder.exists() and not keep:
        shutil.rmtree(folder)
    try:
        (folder / "landing").mkdir(parents=True, exist_ok=True)
        (folder / "demo.log").touch()
    except OSError as error:
        raise JobError(
            f"the folder {folder} cannot be made: {error.strerror}; name another with --folder"
        ) from error


class _Line:
    """One line that says how far it is; on a terminal it is written over."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self._step = ""

    def show(self, step: str, detail: str = "") -> None:
        if self._is_live:
            columns = shutil.get_terminal_size().columns
            text = f"{step} {detail}"[: columns - 1]
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif step != self._step:
            print(step, file=sys.stderr, flush=True)
        self._step = step

    def clear(self) -> None:
        if self._is_live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class _Demo:
    """The pipeline on a thread of its own, and what is done with it."""

    def __init__(self, folder: Path, ports: _Ports, line: _Line) -> None:
        self._folder = folder
        self._ports = ports
        self._line = line
        self._changed = threading.Condition()
        self._is_ready = False
        self._failure: BaseException | None = None
        self._interrupted = False
        self._log = (folder / "demo.log").open("a", encoding="utf-8")
        self._supervisor = Supervisor(
            parts_of(_up_options(folder, ports)), self._note_ready, output=self._write
        )
        self._thread = threading.Thread(target=self._supervise, name="penstock.demo")

    @property
    def store(self) -> str:
        return str(self._folder / "metrics.db")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.show("stopping")
        self._supervisor.stop()
        self._thread.join()
        self._log.close()
        self._line.clear()

    def interrupt(self) -> None:
        """Give up; called from a signal handler, a second time to be quick."""
        if self._interrupted:
            self._supervisor.stop()
        self._interrupted = True
        raise KeyboardInterrupt

    def traffic(self, spans: int) -> tuple[dict[str, int], Summary]:
        """Send spans and wait for them; return how many came how far, and what became of them."""
        started = SYSTEM_CLOCK.now()
        self._wait_for(
            lambda: self._is_ready,
            lambda: self._line.show(
                "starting the receiver and Spark", f"· {SYSTEM_CLOCK.now() - started:.0f} s"
            ),
            _START,
        )
        before = self._counts()
        sent = self._send(spans)
        counts = self._merged(sent, before)
        return counts, summarise(self.store)

    def _send(self, spans: int) -> int:
        try:
            from penstock.generate.replay import send_spans
        except ModuleNotFoundError as error:
            raise DependencyError(
                f"the demo needs {error.name}: pip install 'penstock[demo]'"
            ) from error
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
        return send_spans(
            settings,
            f"http://127.0.0.1:{self._ports.grpc}",
            lambda done: self._line.show(
                "sending spans with the OpenTelemetry SDK", f"· {done:,} of {spans:,}"
            ),
        )

    def _merged(self, sent: int, before: dict[str, int]) -> dict[str, int]:
        counts = {"landed": 0, "aggregated": 0}

        def is_done() -> bool:
            now = self._counts()
            counts.update({name: now[name] - before[name] for name in counts})
            return counts["aggregated"] >= sent

        def show() -> None:
            progress = f"· {counts['landed']:,} landed, {counts['aggregated']:,} aggregated"
            self._line.show("aggregating with Spark", progress)

        self._wait_for(is_done, show, _MERGE)
        return {"sent": sent, **counts}

    def _counts(self) -> dict[str, int]:
        landed = _scraped(self._ports.http, 'penstock_landing_records_total{signal="spans"}')
        merged = _scraped(self._ports.metrics, 'penstock_job_rows_total{signal="spans"}')
        return {"landed": landed, "aggregated": merged}

    def _wait_for(
        self, is_done: Callable[[], bool], show: Callable[[], None], allowed: float
    ) -> None:
        deadline = SYSTEM_CLOCK.now() + allowed
        while not is_done():
            show()
            with self._changed:
                SYSTEM_CLOCK.wait(self._changed, 0.25)
            if self._failure is not None:
                raise self._failure
            if SYSTEM_CLOCK.now() > deadline:
                raise JobError(
                    f"nothing happens for {allowed:.0f} s; see {self._folder / 'demo.log'}"
                )

    # -- on other threads -------------------------------------------------------------------

    def _supervise(self) -> None:
        try:
            self._supervisor.run()
        except PartFailedError as error:
            last = (self._folder / "demo.log").read_text("utf-8").splitlines()[-3:]
            self._fail(JobError("\n".join([str(error), *last])))
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _note_ready(self) -> None:
        with self._changed:
            self._is_ready = True
            self._changed.notify_all()

    def _write(self, line: str) -> None:
        print(line, file=self._log, flush=True)


def _up_options(folder: Path, ports: _Ports) -> argparse.Namespace:
    return argparse.Namespace(
        landing=folder / "landing",
        store=str(folder / "metrics.db"),
        config=None,
        log_level="info",
        log_format="text",
        grpc_port=ports.grpc,
        http_port=ports.http,
        metrics_port=ports.metrics,
        segment_age=1.0,
        interval=1.0,
    )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _scraped(port: int, sample: str) -> int:
    with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(sample):
                return int(float(line.rpartition(" ")[2]))
    return 0


def _text(counts: dict[str, int], summary: Summary, folder: Path, seconds: float) -> str:
    is_equal = len(set(counts.values())) == 1
    signs = " = ".join(f"{count:,} {name}" for name, count in counts.items())
    first = f"spans: {signs}" if is_equal else f"spans differ: {counts}"
    store = folder / "metrics.db"
    further = (
        "Look further:\n"
        f"  penstock query --store {store} endpoint_percentile --limit 10\n"
        f"  penstock top database_statement --store {store}\n"
        f"  penstock up --landing {folder / 'landing'} --store {store}"
    )
    return "\n\n".join(
        [
            f"Services over the last {summary.minutes} minutes\n" + table(*summary.services()),
            "Slowest statements\n" + table(*summary.statements()),
            f"{first}   ({seconds:.0f} s in all)",
            further,
        ]
    )
