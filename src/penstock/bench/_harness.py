"""What all benches share: goals, alternating rounds, threads that start together, progress."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from penstock.scheduling import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Crew", "Goal", "Outcome", "Progress", "alternate", "commit", "machine", "medians"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a bench is to show, and what it showed."""

    name: str
    goal: str
    value: float
    met: bool

    @classmethod
    def at_least(cls, name: str, value: float, bound: float) -> Goal:
        """*value* must not be below *bound*."""
        return cls(name, f">= {bound:g}", value, value >= bound)

    @classmethod
    def at_most(cls, name: str, value: float, bound: float) -> Goal:
        """*value* must not be above *bound*."""
        return cls(name, f"<= {bound:g}", value, value <= bound)

    @classmethod
    def above(cls, name: str, value: float, bound: float) -> Goal:
        """*value* must be above *bound*."""
        return cls(name, f"> {bound:g}", value, value > bound)

    @classmethod
    def below(cls, name: str, value: float, bound: float) -> Goal:
        """*value* must be below *bound*."""
        return cls(name, f"< {bound:g}", value, value < bound)


@dataclass(slots=True)
class Outcome:
    """What a bench found: figures with their unit in the name, ratios, goals."""

    figures: dict[str, Any] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)

    def join(self, other: Outcome) -> None:
        """Add what another part of the same bench found."""
        self.figures.update(other.figures)
        self.ratios.update(other.ratios)
        self.goals.extend(other.goals)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, rounded to what a measurement on a shared machine can tell."""
        plain: dict[str, Any] = _rounded(asdict(self))
        return plain


def _rounded(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    if isinstance(value, float):
        return round(value) if abs(value) >= 10_000 else float(f"{value:.4g}")  # noqa: PLR2004
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(entry) for entry in value]
    return value


class Progress:
    """One line on a terminal that says how far it is; silent where nobody looks."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._total = 0
        self._done = 0

    def expect(self, steps: int) -> None:
        """Announce *steps* more steps."""
        self._total += steps

    def step(self, label: str) -> None:
        """Say that the step called *label* begins."""
        width = 24
        filled = width * self._done // max(self._total, self._done, 1)
        self._done += 1
        bar = "#" * filled + "." * (width - filled)
        columns = shutil.get_terminal_size().columns
        self._write(f"[{bar}] {self._done}/{self._total} {label}"[: columns - 1])

    def clear(self) -> None:
        """Leave the line empty for what comes next."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()


class Crew:
    """Threads that start together; daemons, so that Ctrl-C does not wait for them."""

    def __init__(self, jobs: Iterable[Callable[[], object]]) -> None:
        self._errors: list[BaseException] = []
        jobs = list(jobs)
        self._start = threading.Barrier(len(jobs) + 1)
        self._threads = [
            threading.Thread(target=self._run, args=(job,), daemon=True) for job in jobs
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, job: Callable[[], object]) -> None:
        self._start.wait()
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised by join(), on the bench's thread
            self._errors.append(error)

    def release(self) -> None:
        """Let all of them begin."""
        self._start.wait()

    def join(self) -> None:
        """Wait until all are done; raise what one of them raised."""
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def alternate(
    contenders: Mapping[str, Callable[[], float]], rounds: int, progress: Progress
) -> dict[str, list[float]]:
    """Measure each of *contenders* once per round, each round beginning with another one.

    Whatever else the machine does in the meantime then disturbs all of them alike.
    """
    names = list(contenders)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            progress.step(f"round {turn + 1}/{rounds}: {name}")
            found[name].append(contenders[name]())
    return found


def medians(found: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median of each list."""
    return {name: statistics.median(values) for name, values in found.items()}


def machine() -> dict[str, Any]:
    """Describe where the figures come from, and how busy it was."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else ()
    return {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "load_average": [round(value, 2) for value in load],
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the commit that is measured, marked if files differ; None outside a checkout."""
    here = Path(__file__)
    # Installed into somebody else's checkout, their commit would say nothing.
    if not _git(here.parent, "ls-files", here.name):
        return None
    found = _git(here.parent, "rev-parse", "--short=12", "HEAD")
    changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no", "--", "..")
    return f"{found}-dirty" if changed else found or None


def _git(folder: Path, *arguments: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    try:
        done = subprocess.run(
            [git, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
