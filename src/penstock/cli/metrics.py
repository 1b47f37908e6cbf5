"""`penstock metrics`: check rules before they are used, and list the metrics they define."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from penstock.metrics import Metric, Rules

__all__ = ["add_parser"]

WITH_ERRORS = 1
_EPILOG = "Exit codes: 0 no errors, 1 the rules have errors, 2 wrong usage."


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of all commands."""
    parser = commands.add_parser(
        "metrics",
        help="check metric rules and list the metrics they define",
        description="Check metric rules (OAL) and list the metrics they define.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="report every error of rules files",
        description="Report every error of rules files: where, what, and what to do about it.",
        epilog=_EPILOG,
    )
    check.add_argument("files", metavar="FILE", nargs="+", help="rules that are used together")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)
    listing = actions.add_parser(
        "list",
        help="list the metrics of rules files, or the default ones",
        description="List the metrics of rules files, or those that come with penstock.",
        epilog=_EPILOG,
    )
    listing.add_argument("--rules", metavar="FILE", nargs="+", default=(), help="rules to list")
    listing.add_argument("--json", action="store_true", help="print a JSON array")
    listing.set_defaults(run=_list)


def _check(options: argparse.Namespace) -> int:
    from penstock.metrics import parse_files

    rules = parse_files(options.files)
    if options.json:
        errors = [asdict(diagnostic) for diagnostic in rules.diagnostics]
        _say(json.dumps({"metrics": len(rules.metrics), "errors": errors}))
    else:
        for diagnostic in rules.diagnostics:
            _say(f"{diagnostic}\n")
        _say(_summary(rules))
    return WITH_ERRORS if rules.diagnostics else 0


def _list(options: argparse.Namespace) -> int:
    from penstock.errors import RulesError
    from penstock.metrics import default_rules, load_rules

    try:
        metrics = load_rules(options.rules) if options.rules else default_rules()
    except RulesError as error:
        _say(f"penstock: {error}", to_errors=True)
        return WITH_ERRORS
    _say(
        json.dumps([_described(metric) for metric in metrics]) if options.json else _table(metrics)
    )
    return 0


def _summary(rules: Rules) -> str:
    if rules.diagnostics:
        files = {diagnostic.file for diagnostic in rules.diagnostics}
        return f"{_many(len(rules.diagnostics), 'error')} in {_many(len(files), 'file')}"
    sources = {metric.source for metric in rules.metrics}
    metrics = _many(len(rules.metrics), "metric")
    return f"{metrics} from {_many(len(sources), 'source')}, no errors"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _described(metric: Metric) -> dict[str, str]:
    return {
        "name": metric.name,
        "source": metric.source,
        "function": metric.call.function,
        "definition": metric.definition,
    }


def _table(metrics: Sequence[Metric]) -> str:
    rows = [("name", "source", "function")]
    rows += [(metric.name, metric.source, str(metric.call)) for metric in metrics]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{name:<{first}}  {source:<{second}}  {call}" for name, source, call in rows)


def _say(text: str, *, to_errors: bool = False) -> None:
    """Print *text*; a terminal that cannot show a character gets its number instead."""
    stream = sys.stderr if to_errors else sys.stdout
    encoding = stream.encoding or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(shown, file=stream, flush=True)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; nor may the interpreter complain when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
