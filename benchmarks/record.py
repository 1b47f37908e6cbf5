"""Run benches as `penstock bench` does and keep what they found in benchmarks/results/.

python benchmarks/record.py            all of them
python benchmarks/record.py queue idle these
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path

from penstock.bench._harness import Progress
from penstock.bench.registry import BENCHES, measure
from penstock.cli.bench import table

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run what was asked for; return 1 if a goal was missed."""
    options = _options()
    options.into.mkdir(parents=True, exist_ok=True)
    missed = False
    try:
        for name in options.benches or BENCHES:
            missed |= not record(name, options.into, quick=options.quick)
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept", file=sys.stderr)
        return 130
    return int(missed)


def record(name: str, into: Path, *, quick: bool) -> bool:
    """Run one bench and write its file; return whether it met its goals."""
    found = measure(name, Progress(), quick=quick)
    command = f"penstock bench {name} --json" + (" --quick" if quick else "")
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    kept = {"date": date, "command": command, **found}
    path = into / f"{name}.json"
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    print(table(found), end=f"\n\nkept in {path}\n\n", flush=True)
    return all(goal["met"] for goal in found["goals"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run benches and keep what they found.")
    parser.add_argument("benches", metavar="BENCH", nargs="*", help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="a try, not a measurement")
    parser.add_argument("--into", type=Path, default=RESULTS, help="where the files go")
    options = parser.parse_args()
    unknown = [name for name in options.benches if name not in BENCHES]
    if unknown:
        parser.error(f"there is no bench {unknown[0]!r}; there are {', '.join(BENCHES)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
