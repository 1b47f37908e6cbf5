"""The `penstock` command: what can be asked for, and how the answer is told to the shell."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

import penstock
from penstock.cli import aggregate, bench, generate, metrics, query, store, top
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command given by *arguments* (default: the command line); return its exit code."""
    try:
        parser = _parser()
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Partitioned, typed batch queues and the telemetry pipeline built on them.",
        epilog="Exit codes: 0 done, 1 failed or a goal was missed, 2 wrong usage, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"penstock {penstock.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in (generate, aggregate, query, top, metrics, store, bench):
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
