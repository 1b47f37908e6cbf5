"""`penstock up`: receiver, aggregation and store as one command."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import aggregate, receive
from penstock.cli._arguments import masked
from penstock.cli._logging import add_logging_options
from penstock.cli._settings import variable
from penstock.cli._supervisor import Part, Supervisor
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["add_parser", "parts_of", "stop_on_signals"]

_EXAMPLES = """\
examples:
  penstock up
  penstock up --landing /var/lib/penstock/landing --store postgresql://penstock@db/metrics
  penstock query --store penstock-data/metrics.db service_cpm

Each part is a process. One that fails is reported and started again; what keeps one from starting
at all ends the command. Ctrl-C or SIGTERM ends all of them, a second time at once. Nothing that was
acknowledged is lost.
Exit codes: 0 stopped, 1 a part cannot start, 2 wrong usage.
"""
_DATA = Path("penstock-data")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "up",
        help="run the whole pipeline: receive, aggregate, store",
        description="Receive OTLP, aggregate it with Spark and keep the metrics in a store. "
        "Options of `penstock receive` and `penstock aggregate` may be given too.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--landing",
        type=Path,
        default=_DATA / "landing",
        metavar="DIR",
        help="landing folder (default: %(default)s)",
    )
    parser.add_argument(
        "--store",
        default=str(_DATA / "metrics.db"),
        metavar="URL",
        help="a file (SQLite) or postgresql://user@host:port/database (default: %(default)s)",
    )
    add_logging_options(parser)
    parser.set_defaults(run=_run)
    for command in (receive, aggregate):
        known = {action.dest for action in parser._actions}  # noqa: SLF001 - no other list
        command.add_options(parser)
        for action in parser._actions:  # noqa: SLF001 - as above
            if action.dest not in known:
                _leave_to_the_part(action)


def _leave_to_the_part(action: argparse.Action) -> None:
    """Have the option appear only if it was given: otherwise the part itself decides."""
    if isinstance(action.default, list):
        action.default = None
    if action.help and "%(default)" in action.help:
        default = action.default
        text = f"{default:g}" if isinstance(default, float) else str(default)
        action.help = re.sub(r"%\(default\)\w", text, action.help)
    action.default = argparse.SUPPRESS


def parts_of(options: argparse.Namespace, environment: Mapping[str, str]) -> list[Part]:
    """Return the parts of the pipeline; what they are to do is added to their *environment*.

    There it does not show in the list of processes, as a password in a command would.
    """
    common = {name: getattr(options, name) for name in ("landing", "store")}
    common |= {"log_level": options.log_level, "log_format": options.log_format}
    parts = []
    for command, module in (("receive", receive), ("aggregate", aggregate)):
        parser = argparse.ArgumentParser()
        module.add_options(parser)
        own = {action.dest for action in parser._actions}  # noqa: SLF001 - no other list
        given = {name: value for name, value in vars(options).items() if name in own}
        said = {
            variable(command, name): _text(value) for name, value in {**common, **given}.items()
        }
        if options.config is not None:
            said["PENSTOCK_CONFIG"] = str(options.config)
        arguments = [sys.executable, "-m", "penstock.cli.main", command]
        parts.append(Part(command, arguments, {**environment, **said}))
    return parts


def _text(value: Any) -> str:  # noqa: ANN401 - whatever an option holds
    if isinstance(value, list):
        return json.dumps([str(element) for element in value])
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run(options: argparse.Namespace) -> int:
    _make_folders(options)
    parts = parts_of(options, os.environ)
    starting = {part.name for part in parts}

    def note_ready(name: str) -> None:
        starting.discard(name)
        if not starting:
            _tell(f"ready. See what arrives: penstock query --store {masked(options.store)}")

    supervisor = Supervisor(parts, note_ready)

    def stop() -> None:
        _tell("stopping; once more to end at once")
        supervisor.stop()

    stop_on_signals(stop)
    _tell("starting the receiver and Spark")
    supervisor.run()
    _tell("stopped")
    return 0


def _tell(text: str) -> None:
    # At one go, and past Python's buffers: a signal handler may be the one that tells.
    sys.stderr.flush()
    os.write(sys.stderr.fileno(), f"penstock: {text}\n".encode())


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call *stop* at Ctrl-C and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())


def _make_folders(options: argparse.Namespace) -> None:
    folders = [options.landing]
    scheme, separator, rest = options.store.partition("://")
    if not separator or scheme == "sqlite":
        folders.append(Path(rest[1:] if separator else options.store).parent)
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder {folder} cannot be made: {error.strerror}; name another with "
                "--landing or --store"
            ) from error
