"""Disks for tests: one writes its calls down and fails on demand, one can be unplugged."""

from __future__ import annotations

import errno
import itertools
import os
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.land.durable import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Image", "ImagingDisk", "ScriptedDisk"]

_NAME = re.compile(r"\d{13}-[0-9a-f]{12}-\d{6}")


class ScriptedDisk(Disk):
    """Writes its calls down as "sync .wal/spans/*.wal"; those that match a pattern fail.

    What was written counts as synced at once: nothing here survives the machine anyway.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []
        self._paths: dict[int, Path] = {}
        self._errors: dict[str, Callable[[], BaseException]] = {}

    def fail(self, pattern: str, code: int = errno.ENOSPC) -> None:
        """Let calls that *pattern* is found in fail from now on, with the error of *code*."""
        self._errors[pattern] = lambda: OSError(code, os.strerror(code))

    def interrupt(self, pattern: str, kind: type[BaseException]) -> None:
        """Let calls that *pattern* is found in raise *kind* from now on."""
        self._errors[pattern] = kind

    def mend(self) -> None:
        """Let all calls succeed again."""
        self._errors.clear()

    def note(self, call: str, *paths: Path) -> None:
        """Write a call down, then fail if it is one that fails."""
        names = (_NAME.sub("*", str(path.relative_to(self.root))) for path in paths)
        self.calls.append(" ".join((call, *names)))
        for pattern, error in list(self._errors.items()):
            if re.search(pattern, self.calls[-1]):
                raise error()

    def create(self, path: Path) -> int:
        """Create a file."""
        self.note("create", path)
        descriptor = super().create(path)
        self._paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, pieces: Sequence[bytes]) -> int:
        """Write; a write that fails has got half of it done."""
        try:
            self.note("write", self._paths[descriptor])
        except BaseException:
            data = b"".join(pieces)
            os.write(descriptor, data[: len(data) // 2])
            raise
        return super().write(descriptor, pieces)

    def sync(self, descriptor: int) -> None:
        """Only say so."""
        self.note("sync", self._paths[descriptor])

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file."""
        self.note("truncate", self._paths[descriptor])
        super().truncate(descriptor, size)

    def close(self, descriptor: int) -> None:
        """Close a file; that is noted only when it fails, as it changes nothing."""
        path = self._paths.pop(descriptor)
        super().close(descriptor)
        try:
            self.note("close", path)
        finally:
            self.calls.pop()

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its name."""
        self.note("rename", source, target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is not there is not worth a note."""
        if path.exists():
            self.note("remove", path)
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        """Only say so."""
        self.note("sync_folder", path)


@dataclass(frozen=True)
class Image:
    """What a process would find that starts after this one died, and what it had promised."""

    moment: str
    files: Mapping[str, bytes]
    promised: frozenset[int]

    def put_into(self, folder: Path) -> None:
        """Write the files below *folder*."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class ImagingDisk(ScriptedDisk):
    """Takes two images before every call, and in the middle of every write.

    One is what is left if the process is killed there; the other what is left if the machine
    loses power: of files only what was synced, under names that were synced.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.killed: list[Image] = []
        self.unplugged: list[Image] = []
        self.promised: set[int] = set()
        self._turn = threading.RLock()  # all that changes the folder comes through here
        self._numbers = itertools.count()
        self._ids: dict[int, int] = {}  # inodes are used again, these are not
        self._synced: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}

    def note(self, call: str, *paths: Path) -> None:
        """Take the images before anything happens."""
        if call != "close":
            self.take_images(f"before {call} {' '.join(path.name for path in paths)}")
        super().note(call, *paths)

    def take_images(self, moment: str) -> None:
        """Keep what would be found now."""
        with self._turn:
            promised = frozenset(self.promised)
            files = {
                str(path.relative_to(self.root)): path.read_bytes()
                for path in sorted(self.root.rglob("*"))
                if path.is_file()
            }
            self.killed.append(Image(moment, files, promised))
            files = {
                f"{folder}/{name}": self._synced.get(number, b"")
                for folder, names in self._names.items()
                for name, number in names.items()
            }
            self.unplugged.append(Image(moment, files, promised))

    def adopt(self) -> None:
        """Take what lies in the folder as what has lasted."""
        for path in (found for found in self.root.rglob("*") if found.is_file()):
            number = self._ids[path.stat().st_ino] = next(self._numbers)
            self._synced[number] = path.read_bytes()
            folder = str(path.parent.relative_to(self.root))
            self._names.setdefault(folder, {})[path.name] = number

    def promise(self, ids: Sequence[int]) -> None:
        """Take note that somebody was told that these are safe."""
        with self._turn:
            self.promised.update(ids)

    def create(self, path: Path) -> int:
        """Create a file, of which nothing is synced."""
        with self._turn:
            descriptor = super().create(path)
            self._ids[os.fstat(descriptor).st_ino] = next(self._numbers)
            return descriptor

    def write(self, descriptor: int, pieces: Sequence[bytes]) -> int:
        """Write in two halves, with images between them."""
        with self._turn:
            self.note("write", self._paths[descriptor])
            data = b"".join(pieces)
            half = len(data) // 2
            os.write(descriptor, data[:half])
            self.take_images(f"within write {self._paths[descriptor].name}")
            os.write(descriptor, data[half:])
            return len(data)

    def sync(self, descriptor: int) -> None:
        """Take the content over to what lasts."""
        with self._turn:
            super().sync(descriptor)
            number = self._ids[os.fstat(descriptor).st_ino]
            self._synced[number] = self._paths[descriptor].read_bytes()

    def rename(self, source: Path, target: Path) -> None:
        """Rename, undisturbed."""
        with self._turn:
            super().rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove, undisturbed."""
        with self._turn:
            super().remove(path)

    def sync_folder(self, path: Path) -> None:
        """Take the names over to what lasts."""
        with self._turn:
            super().sync_folder(path)
            found = (entry for entry in path.iterdir() if entry.is_file())
            self._names[str(path.relative_to(self.root))] = {
                entry.name: number
                for entry in found
                if (number := self._ids.get(entry.stat().st_ino)) is not None
            }
