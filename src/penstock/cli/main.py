"""The `penstock` command: what can be asked for, and how the answer is told to the shell."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.cli import (
    _settings,
    aggregate,
    bench,
    config,
    demo,
    generate,
    metrics,
    query,
    receive,
    store,
    top,
    up,
)
from penstock.cli._part import is_part
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["main"]

FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
# Commands whose options the environment and a file can give.
_CONFIGURABLE = ("up", "receive", "aggregate", "query", "top", "store")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command given by *arguments* (default: the command line); return its exit code."""
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        parser = _parser(arguments)
        options = parser.parse_args(arguments)
        if options.command is None:
            parser.print_help()
            return 0
        code: int = options.run(options)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        # Queues still drain when the interpreter ends; a second Ctrl-C must not disturb that.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""  # what progress has left on the line
        print(f"{clear}penstock: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Partitioned, typed batch queues and the telemetry pipeline built on them.",
        epilog="Exit codes: 0 done, 1 failed or a goal was missed, 2 wrong usage, 130 interrupted.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"penstock {penstock.__version__}")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings in TOML (default: penstock.toml if there is one; see: penstock config show)",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (demo, up, receive, aggregate, query, top, metrics, store, generate, bench):
        command.add_parser(commands)
    configurable = {name: commands.choices[name] for name in _CONFIGURABLE}
    path, rest = _file_and_rest(arguments)
    config.add_parser(commands, lambda: (_given(path, configurable), configurable))
    name = rest[0] if rest else ""
    # Help is had whatever the file says.
    if name in configurable and not {"-h", "--help"} & set(rest):
        _settings.apply(configurable[name], name, _given(path, configurable))
    return parser


def _file_and_rest(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Return what --config names, and the arguments from the command on."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    early.add_argument("--config", type=Path)
    try:
        options, rest = early.parse_known_args(arguments)
    except argparse.ArgumentError:
        return None, []  # the real parser will say what is wrong
    return options.config, rest


def _given(
    path: Path | None, configurable: Mapping[str, argparse.ArgumentParser]
) -> _settings.Given:
    """Return what the environment and the file say; complain of what means nothing."""
    found = _settings.given(os.environ, path)
    names = {name: _settings.settings_of(parser, name) for name, parser in configurable.items()}
    complaints = _settings.check_names(found, names)
    if not is_part():  # the parent has said it
        for complaint in complaints:
            print(f"penstock: {complaint}", file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
