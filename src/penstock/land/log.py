"""The write-ahead log of one signal: requests are appended in groups, and each group is synced."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.land.durable import DISK, Disk
from penstock.land.segments import MAGIC, pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.land.segments import Record
    from penstock.telemetry.schema import Signal

__all__ = ["SUFFIX", "Segment", "SegmentLog", "Site"]

log = logging.getLogger("penstock.land")

SUFFIX = ".wal"


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that gets no more records. *end* is None for one that an earlier process left."""

    signal: Signal
    path: Path
    end: int | None = None

    @property
    def name(self) -> str:
        """The name that its Parquet file gets too; never used twice."""
        return self.path.name.removesuffix(SUFFIX)


@dataclass(frozen=True, slots=True)
class Site:
    """Where and how segments are written."""

    folder: Path
    segment_bytes: int
    name: Callable[[], str]
    clock: Clock = SYSTEM_CLOCK
    disk: Disk = DISK


class _Open:
    """The segment that is being written: *synced* bytes of it are on the disk."""

    __slots__ = ("born", "descriptor", "path", "synced")

    def __init__(self, path: Path, descriptor: int, born: float) -> None:
        self.path = path
        self.descriptor = descriptor
        self.born = born
        self.synced = 0


class SegmentLog:
    """Appends to one segment at a time; a full or old one is sealed, for someone to convert."""

    # Guarded by _lock, which is held while the disk is written: appending and sealing exclude
    # each other, and nobody else takes it.
    #   W1  append returns only when every record is on the disk, and so is the segment's name
    #       (test_a_group_is_synced_before_it_is_answered).
    #   W2  nothing is written behind a group that failed: its segment is cut back and sealed, or
    #       removed if it holds nothing else (test_after_a_failed_group_the_segment_is_sealed).
    #   W3  a segment is sealed once, and gets nothing after that
    #       (test_a_segment_is_sealed_once).

    def __init__(self, signal: Signal, site: Site, on_sealed: Callable[[Segment], object]) -> None:
        self.signal = signal
        self._site = site
        self._disk = site.disk
        self._on_sealed = on_sealed
        self._lock = threading.Lock()
        self._open: _Open | None = None

    def append(self, records: Sequence[Record]) -> None:
        """Put *records* on the disk.

        Raises OSError if they could not be written; then none of them counts.
        """
        pieces = [piece for record in records for piece in pieces_of(record)]
        sealed: Segment | None = None
        try:
            with self._lock:
                current = self._open or self._create()
                try:
                    written = self._disk.write(current.descriptor, pieces)
                    self._disk.sync(current.descriptor)
                except BaseException:
                    sealed = self._give_up(current)
                    raise
                current.synced += written
                if current.synced >= self._site.segment_bytes:
                    sealed = self._seal(current)
        finally:
            if sealed is not None:
                self._on_sealed(sealed)

    def seal(self, age: float = 0.0) -> None:
        """Seal the segment if it is *age* seconds old."""
        with self._lock:
            current = self._open
            if current is None or self._site.clock.now() - current.born < age:
                return
            sealed = self._seal(current)
        self._on_sealed(sealed)

    def due(self, age: float) -> float | None:
        """Return seconds until the segment is *age* old; None without a segment."""
        current = self._open
        return None if current is None else max(0.0, current.born + age - self._site.clock.now())

    def _create(self) -> _Open:
        path = self._site.folder / self.signal / f"{self._site.name()}{SUFFIX}"
        descriptor = self._disk.create(path)
        current = _Open(path, descriptor, self._site.clock.now())
        try:
            current.synced = self._disk.write(descriptor, [MAGIC])
            self._disk.sync_folder(path.parent)
        except BaseException:
            self._disk.close(descriptor)
            self._disk.remove(path)
            raise
        self._open = current
        return current

    def _give_up(self, current: _Open) -> Segment | None:
        """Leave a segment whose last group failed; return it if it holds others."""
        self._cut(current)
        sealed = self._seal(current)
        if current.synced > len(MAGIC):
            return sealed
        try:
            # While the disk is full every group ends here: nothing may pile up.
            self._disk.remove(current.path)
        except OSError as error:
            log.warning("land.not_removed: %s: %s", current.path, error)
            return sealed
        return None

    def _cut(self, current: _Open) -> None:
        """Take back what a failed group has left.

        Should that fail too, the segment's *end* still keeps the remains out; and should the
        process die before it is converted, then requests found in two segments count once.
        """
        try:
            self._disk.truncate(current.descriptor, current.synced)
        except OSError as error:
            log.warning("land.not_cut: %s keeps part of a failed write: %s", current.path, error)

    def _seal(self, current: _Open) -> Segment:
        assert self._open is current  # W3
        self._open = None
        try:
            self._disk.close(current.descriptor)
        except OSError as error:  # what counts is synced
            log.warning("land.not_closed: %s: %s", current.path, error)
        return Segment(self.signal, current.path, current.synced)
