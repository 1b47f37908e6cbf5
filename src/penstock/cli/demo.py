"""`penstock demo`: the whole pipeline on this machine, with traffic of a made-up shop."""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING

from penstock.cli._arguments import at_least
from penstock.cli._summary import summarise
from penstock.cli._table import table
from penstock.cli._trial import Line, Trial, sender
from penstock.cli.up import stop_on_signals
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import JobError

if TYPE_CHECKING:
    from penstock.cli._summary import Summary
    from penstock.cli._trial import Arrived

__all__ = ["add_parser"]

_EXAMPLES = """\
Starts what `penstock up` starts, on ports that are free; sends spans of a made-up system with the
OpenTelemetry SDK; waits until they are aggregated; shows what became of them. Most of the time it
takes is Spark's start. Running it again begins anew; --keep adds to the store of the run before.
Exit codes: 0 done, 1 failed or spans are missing, 2 wrong usage, 130 interrupted.
"""
_LOG = "demo.log"


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


def _run(options: argparse.Namespace) -> int:
    begun = SYSTEM_CLOCK.now()
    sender()  # what is missing is told at once
    folder: Path = options.folder
    with _prepared(folder, keep=options.keep) as log:
        trial = Trial(folder, log, Line())
        stop_on_signals(trial.interrupt)
        with trial:
            arrived = trial.traffic(options.spans)
            summary = summarise(str(folder / "metrics.db"))
    seconds = SYSTEM_CLOCK.now() - begun
    if options.json:
        print(json.dumps({**asdict(arrived), "seconds": round(seconds, 1), **summary.as_dict()}))
    else:
        print(_text(arrived, summary, folder, seconds))
    return 0 if _is_complete(arrived, options.spans, keep=options.keep) else 1


def _is_complete(arrived: Arrived, spans: int, *, keep: bool) -> bool:
    """Whether all came; with *keep*, what a killed run before has received may come too."""
    is_all = arrived.sent == spans and arrived.landed == arrived.aggregated
    return is_all and (arrived.landed == spans or (keep and arrived.landed > spans))


def _prepared(folder: Path, *, keep: bool) -> IO[str]:
    """Make the folder ready and return its log, which no other demo can have meanwhile."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _LOG).exists() and any(folder.iterdir()):
            raise JobError(f"{folder} is not a folder of the demo; name another with --folder")
        log = (folder / _LOG).open("a", encoding="utf-8")
    except OSError as error:
        raise JobError(
            f"the folder {folder} cannot be used: {error.strerror}; name another with --folder"
        ) from error
    try:
        _take(folder, log, keep=keep)
    except BaseException:
        log.close()
        raise
    return log


def _take(folder: Path, log: IO[str], *, keep: bool) -> None:
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise JobError(
            f"another demo runs in {folder}; wait for it, or name another folder with --folder"
        ) from error
    try:
        if not keep:
            log.truncate(0)
            _empty(folder)
        (folder / "landing").mkdir(exist_ok=True)
    except OSError as error:
        raise JobError(
            f"{error.filename} cannot be written: {error.strerror}; name another folder with "
            "--folder"
        ) from error


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOG:
            path.unlink()


def _text(arrived: Arrived, summary: Summary, folder: Path, seconds: float) -> str:
    counts = asdict(arrived)
    is_equal = len(set(counts.values())) == 1
    sign = " = " if is_equal else ", "
    first = "spans: " if is_equal else "spans differ: "
    first += sign.join(f"{count:,} {name}" for name, count in counts.items())
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
