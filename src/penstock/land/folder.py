"""The landing folder and the way of a file through it.

::

    spans/ points/ logs/      landed, to be aggregated; visible only when whole
    consumed/<signal>/        merged into the store; deleted after a while
    rejected/<signal>/        could not be read; beside each file its reason, as text

A file is known by its name below the folder ("spans/7f3a.parquet"), which is never used twice.
Names that start with a dot are files in the making; they are left alone, and so are names that
are not text (UTF-8).
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import JobError
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstock.land.durable import Disk

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

    def has(self, name: str) -> bool:
        """Whether a landed file is still here."""
        return self.path(name).exists()

    def was_landed(self, name: str) -> bool:
        """Whether a file of that name is here, or was and is still kept."""
        places = (self.root, self.root / CONSUMED, self.root / REJECTED)
        return any((place / name).exists() for place in places)

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

    def retire(self, names: Iterable[str], at: float) -> None:
        """Move merged files out of the way; one that is gone already is no matter.

        They are kept from *at* (seconds since 1970) on, however long they have lain here. Raises
        JobError if one cannot be moved.
        """
        for name in names:
            source, target = self.root / name, self.root / CONSUMED / name
            try:
                with suppress(PermissionError):  # another user's file: kept from its own time on
                    os.utime(source, (at, at))
                # Whoever makes room may have removed the folder with all that was in it.
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise JobError(
                    f"{source} is merged but cannot be moved to {target.parent}: "
                    f"{error.strerror}; let this user write to both folders and start again: no "
                    "file counts twice"
                ) from error

    def reject(self, name: str, reason: str) -> None:
        """Set a file aside, with its reason beside it.

        The reason comes first, so no file lies there without one. Nothing that was set aside
        before is written over: one that is gone from here may have been set aside already.
        """
        source, target = self.root / name, self.root / REJECTED / name
        if os.path.lexists(source):
            target = _unused(target)
        elif _reason_of(target).exists():
            return
        _reason_of(target).write_text(reason + "\n", "utf-8")
        with suppress(FileNotFoundError):
            source.rename(target)

    def set_aside(self, name: str, data: bytes, reason: str, disk: Disk) -> None:
        """Keep something that never became a file here, as it is, with its reason beside it.

        Both are on the disk then.
        """
        target = self.root / REJECTED / name
        target.parent.mkdir(parents=True, exist_ok=True)
        disk.place(_reason_of(target), [reason.encode("utf-8", "replace"), b"\n"])
        disk.place(target, [data])

    def prune(self, before: float) -> int:
        """Delete files that were merged before *before* (seconds since 1970)."""
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
                if _is_landed(entry.name):
                    # A file may go between being listed and being looked at.
                    with suppress(FileNotFoundError):
                        yield LandedFile(f"{signal}/{entry.name}", entry.stat().st_size)


def _is_landed(name: str) -> bool:
    # os gives bytes that are not UTF-8 as surrogates, which neither Arrow nor a ledger can hold.
    is_text = not any("\ud800" <= sign <= "\udfff" for sign in name)
    return name.endswith(".parquet") and not name.startswith(".") and is_text


def _reason_of(path: Path) -> Path:
    return path.with_name(path.name + REASON_SUFFIX)


def _unused(path: Path) -> Path:
    """Return *path*, or one beside it if there is something of that name."""
    numbered = (path.with_name(f"{path.stem}.{n}{path.suffix}") for n in itertools.count(2))
    return next(p for p in itertools.chain([path], numbered) if not os.path.lexists(p))
