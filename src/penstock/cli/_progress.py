"""What a running aggregation shows: a live line on a terminal, a line per batch elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli._part import announce_ready
from penstock.clock import SYSTEM_CLOCK, wall_time
from penstock.land.folder import LandingFolder
from penstock.spark.aggregation import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.spark.job import BatchReport

__all__ = ["AggregationProgress"]

_NS = 1_000_000_000


class AggregationProgress(Watcher):
    """Adds up the reports of batches and shows where the aggregation stands."""

    def __init__(self, landing: Path, *, is_quiet: bool = False) -> None:
        self._landing = LandingFolder(landing)
        self._started = SYSTEM_CLOCK.now()
        self._is_quiet = is_quiet
        self._is_live = sys.stderr.isatty() and not is_quiet
        self._last: BatchReport | None = None
        self._batches = self._rows = self._files = self._rejected = 0
        self._busy = 0.0
        self._left_out: Counter[str] = Counter()
        self._shown_at = 0.0
        self._is_starting = False
        self._is_given_up = False

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Take the block for the job's start, until it runs (the first tick) or the block ends."""
        self._is_starting = True
        try:
            yield
        finally:
            self._is_starting = False

    def give_up_start(self) -> bool:
        """Return whether the job is about to start; it is not from then on."""
        was_starting, self._is_starting = self._is_starting, False
        self._is_given_up |= was_starting
        return was_starting

    def batch(self, report: BatchReport) -> None:
        """Add a batch."""
        self._last = report
        self._batches += 1
        self._rows += report.rows
        self._files += report.files
        self._rejected += report.rejected
        self._busy += report.seconds
        self._left_out.update(report.left_out)
        if not self._is_live and not self._is_quiet:
            print(self._line(), file=sys.stderr, flush=True)

    def tick(self) -> None:
        """Show the live line, a few times a second; the first time, say that the job runs."""
        self._is_starting = False
        announce_ready()
        now = SYSTEM_CLOCK.now()
        if self._is_live and now - self._shown_at >= 0.5:  # noqa: PLR2004 # seconds
            self._shown_at = now
            print(f"\r\x1b[K{self._line()}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._is_live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _line(self) -> str:
        waiting = self._landing.pending()
        if self._last is None:
            seconds = SYSTEM_CLOCK.now() - self._started
            return f"starting Spark, {seconds:.0f} s · {_counted(len(waiting), 'file')} waiting"
        rate = self._last.rows / self._last.seconds if self._last.seconds else 0.0
        return (
            f"batch {self._last.batch} · {self._rows:,} rows · {rate:,.0f} rows/s · "
            f"{_counted(len(waiting), 'file')} waiting{self._lag()}"
        )

    def _lag(self) -> str:
        if self._last is None or self._last.newest_ns is None:
            return ""
        return f" · newest event {max(0.0, wall_time() - self._last.newest_ns / _NS):,.0f} s ago"

    def summary(self) -> dict[str, Any]:
        """Return the totals."""
        return {
            "batches": self._batches,
            "rows": self._rows,
            "files": self._files,
            "rejected": self._rejected,
            "left_out": dict(self._left_out),
            "seconds": round(self._busy, 3),
        }

    def text(self) -> str:
        """Return the totals for a reader."""
        if self._is_given_up:
            return "stopped before Spark had started; nothing was merged"
        if not self._batches:
            return f"nothing to merge: no new files in {self._landing.root}"
        rate = self._rows / self._busy if self._busy else 0.0
        merged = f"merged {self._rows:,} rows from {_counted(self._files, 'file')}"
        batches = _counted(self._batches, "batch", "batches")
        lines = [f"{merged} in {batches}, {self._busy:.1f} s ({rate:,.0f} rows/s)"]
        if self._rejected:
            lines.append(
                f"set aside {_counted(self._rejected, 'file')} that could not be read: see "
                f"{self._landing.root / 'rejected'}"
            )
        lines += [f"left out {rows:,} rows: {cause}" for cause, rows in self._left_out.items()]
        return "\n".join(lines)


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
