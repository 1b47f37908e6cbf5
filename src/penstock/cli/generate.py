"""`penstock generate`: land telemetry of a made-up system, for a demonstration or a measurement."""

from __future__ import annotations

import argparse
import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import ConfigError, DependencyError
from penstock.generate.settings import LIMITS, GeneratorSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.clock import Clock
    from penstock.generate import GeneratedSummary

__all__ = ["add_parser"]

WRONG_USAGE = 2

_COUNTS = {
    "spans": "spans in all",
    "minutes": "minutes that they cover, up to now",
    "services": "services, the gateway included",
    "instances": "instances of each service",
    "endpoints": "endpoints of each service",
    "seed": "equal seeds make equal systems and equal traffic",
    "points": "metric points per minute",
    "logs": "log records in all",
    "rows_per_file": "rows in a file",
}
_SHARES = {
    "late": "share of rows that arrive after newer ones",
    "error_rate": "share of spans that failed",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of all commands."""
    parser = commands.add_parser(
        "generate",
        help="land made-up telemetry",
        description="Write spans, metric points and logs of a made-up system as Parquet files to "
        "spans/, points/ and logs/ below the landing folder. Files of former runs stay.",
        epilog="Exit codes: 0 done, 1 the folder could not be written, 2 wrong usage, "
        "130 interrupted (complete files stay).",
    )
    parser.add_argument("--landing", metavar="DIR", required=True, help="the landing folder")
    defaults = GeneratorSettings(end=4e9)
    for name, meaning in _COUNTS.items():
        default = getattr(defaults, name)
        parser.add_argument(
            _flag(name),
            metavar="N",
            type=_whole(*LIMITS[name]),
            default=default,
            help=f"{meaning} (default {default:,})",
        )
    for name, meaning in _SHARES.items():
        default = getattr(defaults, name)
        parser.add_argument(
            _flag(name),
            metavar="X",
            type=_share,
            default=default,
            help=f"{meaning}, 0 to 1 (default {default:g})",
        )
    parser.add_argument("--quiet", action="store_true", help="say nothing unless it fails")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, clock: Clock = SYSTEM_CLOCK) -> int:
    """Land what *options* ask for; return the exit code."""
    try:
        settings = GeneratorSettings(
            **{name: getattr(options, name) for name in (*_COUNTS, *_SHARES)}
        )
    except ConfigError as error:  # what single flags cannot show: two that are too much together
        print(f"penstock generate: {error}", file=sys.stderr)
        return WRONG_USAGE
    bar = _Bar(sys.stderr, hidden=options.quiet)
    begun = clock.now()
    try:
        summary = _write_landing()(settings, options.landing, bar.show)
    finally:
        bar.clear()
    if not options.quiet:
        print(_line(summary, clock.now() - begun))
    return 0


def _write_landing() -> Callable[..., GeneratedSummary]:
    try:
        from penstock.generate import write_landing
    except ModuleNotFoundError as error:
        message = f"generating needs {error.name}: install penstock[spark]"
        raise DependencyError(message) from error
    return write_landing


def _line(summary: GeneratedSummary, taken: float) -> str:
    """Return the outcome as one line."""
    rate = summary.spans / taken if taken > 0 else 0.0
    start, end = (
        datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")
        for ns in (summary.start_ns, summary.end_ns)
    )
    return (
        f"{summary.spans:,} spans, {summary.points:,} points and {summary.logs:,} logs in "
        f"{len(summary.files):,} files, {summary.bytes:,} bytes, {rate:,.0f} spans/s, "
        f"{start} to {end} UTC"
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            msg = f"must be a whole number from {least:,} to {most:,}, not {text!r}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return parse


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        msg = f"must be a number from 0 to 1, not {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return value


class _Bar:
    """One line on a terminal that says how far it is; nothing elsewhere."""

    def __init__(self, stream: TextIO, *, hidden: bool) -> None:
        self._stream = stream
        self._shown = stream.isatty() and not hidden

    def show(self, done: int, total: int) -> None:
        """Say that *done* of *total* rows are written."""
        width = 24
        filled = width * done // max(total, 1)
        text = f"[{'#' * filled}{'.' * (width - filled)}] {done:,} of {total:,} rows"
        self._write(text[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        """Leave the line empty for what comes next."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
