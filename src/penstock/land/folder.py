"""The landing folder and the way of a file through it.

::

    spans/ points/ logs/      landed, to be aggregated; visible only when whole
    consumed/<signal>/        merged into the store; deleted after a while
    rejected/<signal>/        could not be read; beside each file its reason, as text

A file is known by its name below the folder ("spans/7f3a.parquet"), which is never used twice.
Names that start with a dot are files in the making; they are left alone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import JobError
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["LandedFile", "LandingFolder"]

CONSUMED = "consumed"
REJECTED = "rejected"
REASON_SUFFIX = ".reason.txt"


@dataclass(frozen=True, slots=True, order=True)
class LandedFile:
    """A file that waits for the aggregation."""

    name: str
    size: int

    @property
    def signal(self) -> Signal:
        """What it holds, by its folder."""
        return Signal(self.name.partition("/")[0])


class LandingFolder:
    """The landing folder as the aggregation sees it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Create the folders that are missing."""
        try:
            for signal in Signal:
                for parent in (self.root, self.root / CONSUMED, self.root / REJECTED):
                    (parent / signal).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JobError(
                f"the landing folder {self.root} cannot be used: {error.strerror}; "
                "name a folder that this user may write to"
            ) from error

    def path(self, name: str) -> Path:
        """Return where a landed file lies."""
        return self.root / name

    def pending(self) -> list[LandedFile]:
        """Return the files that wait, the oldest name first within each signal."""
        return sorted(file for signal in Signal for file in self._listed(self.root, signal))

    def consumed(self) -> list[LandedFile]:
        """Return the files that have been merged and are still kept."""
        return sorted(
            file for signal in Signal for file in self._listed(self.root / CONSUMED, signal)
        )

    def rejected(self) -> list[LandedFile]:
        """Return the files that were set aside."""
        return sorted(
            file for signal in Signal for file in self._listed(self.root / REJECTED, signal)
        )

    def retire(self, names: Iterable[str]) -> None:
        """Move merged files out of the way; one that is gone already is no matter."""
        for name in names:
            with suppress(FileNotFoundError):
                (self.root / name).rename(self.root / CONSUMED / name)

    def reject(self, name: str, reason: str) -> None:
        """Set a file aside, with its reason beside it."""
        target = self.root / REJECTED / name
        with suppress(FileNotFoundError):
            target.with_name(target.name + REASON_SUFFIX).write_text(reason + "\n", "utf-8")
            (self.root / name).rename(target)

    def prune(self, before: float) -> int:
        """Delete consumed files that were last changed before *before* (seconds since 1970)."""
        deleted = 0
        for file in self.consumed():
            path = self.root / CONSUMED / file.name
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
                    deleted += 1
        return deleted

    @staticmethod
    def _listed(parent: Path, signal: Signal) -> Iterator[LandedFile]:
        with suppress(FileNotFoundError), os.scandir(parent / signal) as entries:
            for entry in entries:
                if entry.name.endswith(".parquet") and not entry.name.startswith("."):
                    # A file may go between being listed and being looked at.
                    with suppress(FileNotFoundError):
                        yield LandedFile(f"{signal}/{entry.name}", entry.stat().st_size)
