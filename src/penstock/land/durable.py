"""The system calls that make files last, behind one object.

Everything that must be on disk before somebody is told goes through a :class:`Disk`, so tests can
write down the order of the calls, or let one fail.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["DISK", "Disk"]

_PIECES = 1024  # that one writev takes everywhere (IOV_MAX)


class Disk:
    """Files of the machine."""

    def create(self, path: Path) -> int:
        """Create *path*, which must not exist, and return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def write(self, descriptor: int, pieces: Sequence[bytes]) -> int:
        """Write all *pieces*, one behind the other; return how many bytes that were."""
        total = 0
        for start in range(0, len(pieces), _PIECES):
            total += self._write(descriptor, list(pieces[start : start + _PIECES]))
        return total

    @staticmethod
    def _write(descriptor: int, pieces: list[bytes]) -> int:
        total = sum(map(len, pieces))
        written = os.writev(descriptor, pieces)
        if written < total:  # rare: a disk that is nearly full, a signal
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        return total

    def sync(self, descriptor: int) -> None:
        """Return when what was written is on the disk."""
        os.fdatasync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file behind *size*, and go on writing there."""
        os.ftruncate(descriptor, size)
        os.lseek(descriptor, size, os.SEEK_SET)

    def close(self, descriptor: int) -> None:
        """Close the file."""
        os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its name, in one step; what had it before is gone."""
        source.rename(target)

    def remove(self, path: Path) -> None:
        """Delete a file; one that is gone already is no matter."""
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Return when the names in the folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def place(self, path: Path, pieces: Sequence[bytes]) -> None:
        """Write a whole file so that *path* is there entirely or not at all, also after a crash."""
        draft = path.with_name(f".{path.name}.tmp")
        self.remove(draft)
        try:
            descriptor = self.create(draft)
            try:
                self.write(descriptor, pieces)
                self.sync(descriptor)
            finally:
                self.close(descriptor)
            self.rename(draft, path)
        except BaseException:
            self.remove(draft)  # a full disk has better use for the room
            raise
        self.sync_folder(path.parent)


DISK = Disk()
