"""`penstock bench`: run a bench and print what it found, for people or for programs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from penstock.bench._harness import Progress
from penstock.bench.registry import BENCHES, measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["add_parser", "table"]

GOAL_MISSED = 1


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of all commands."""
    benches = "\n".join(f"  {name:<12}{bench.summary}" for name, bench in BENCHES.items())
    parser = commands.add_parser(
        "bench",
        help="measure penstock beside its peers",
        description=f"Measure penstock beside its peers, on this machine.\n\nbenches:\n{benches}",
        epilog="Exit codes: 0 all goals met, 1 a goal was missed, 2 wrong usage, 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", choices=BENCHES, help="which bench to run")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="do very little of it: a try, not a measurement"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the bench; return 1 if it missed a goal."""
    found = measure(options.name, Progress(), quick=options.quick)
    print(json.dumps(found) if options.json else table(found))
    return 0 if all(goal["met"] for goal in found["goals"]) else GOAL_MISSED


def table(found: Mapping[str, Any]) -> str:
    """Return what a bench *found* as lines for a reader."""
    return "\n".join(_lines(found))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    yield f"penstock bench {found['bench']}, commit {found['commit'] or 'unknown'}"
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['python']}, "
        f"load average {_number(machine['load_average'])}"
    )
    for title in ("figures", "ratios"):
        if found[title]:
            yield f"\n{title}"
            width = max(map(len, found[title]))
            yield from (f"  {name:<{width}}  {_number(v)}" for name, v in found[title].items())
    if found["goals"]:
        yield "\ngoals"
        width = max(len(goal["name"]) for goal in found["goals"])
        for goal in found["goals"]:
            verdict = "met" if goal["met"] else "MISSED"
            value = _number(goal["value"])
            yield f"  {verdict:<6}  {goal['name']:<{width}}  {value} (goal {goal['goal']})"


def _number(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_number, value))
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)
