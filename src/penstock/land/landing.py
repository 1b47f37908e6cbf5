"""Where requests land: write-ahead logs, the thread that turns segments into files, a disk cap."""

from __future__ import annotations

import copy
import fcntl
import itertools
import logging
import os
import threading
import uuid
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.clock import SYSTEM_CLOCK, Clock, wall_time
from penstock.errors import LandingError
from penstock.land.conversion import convert
from penstock.land.digests import SUFFIX as DIGESTS_SUFFIX
from penstock.land.digests import kept_digests, prune_digests
from penstock.land.durable import DISK, Disk
from penstock.land.folder import LandingFolder
from penstock.land.log import SUFFIX, Segment, SegmentLog, Site
from penstock.land.segments import read_segment
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.land.conversion import Converted
    from penstock.land.segments import Record

__all__ = ["Landing", "LandingSettings", "LandingStats"]

log = logging.getLogger("penstock.land")

_LOCK = "lock"
_LOOK_EVERY = 1.0  # seconds between looks at the room that is left, when there is little
_RETRY = (0.5, 30.0)  # seconds: first, longest


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingSettings:
    """Where things land, and in pieces of which size. Times are seconds."""

    folder: Path
    segments: Path | None = None  # default: .wal in the landing folder
    segment_bytes: int = 16 << 20
    segment_age: float = 2.0
    disk_bytes: int = 8 << 30  # of segments and of files that wait for the aggregation
    remember: float = 600.0  # for how long a repeated request is recognised


@dataclass(slots=True)
class LandingStats:
    """What has happened since the start, and what is so now."""

    requests: Counter[Signal] = field(default_factory=Counter)
    groups: Counter[Signal] = field(default_factory=Counter)
    committed_bytes: Counter[Signal] = field(default_factory=Counter)
    commit_seconds: float = 0.0
    commit_errors: int = 0
    conversion_errors: int = 0
    files: Counter[Signal] = field(default_factory=Counter)
    records: Counter[Signal] = field(default_factory=Counter)
    rejected: Counter[tuple[Signal, str]] = field(default_factory=Counter)
    set_aside: Counter[Signal] = field(default_factory=Counter)
    repeated: Counter[Signal] = field(default_factory=Counter)
    segments_waiting: int = 0
    used_bytes: int = 0
    trouble: str | None = None
    """Why the last write or conversion failed, until one succeeds."""


class Landing:
    """Takes groups of requests; what `commit` has returned from is never lost.

    One process per folder of segments. `open` finds what an earlier process has left and
    converts it; `close` converts what there is, as far as its time allows.
    """

    # Guarded by _changed: _sealed, _is_closing, stats. Disk is written with it released.
    #   Z1  a segment is in exactly one place: open in its log, in _sealed, or in the converter's
    #       hand; all are on the disk (test_every_segment_is_converted_once).
    #   Z2  a segment that cannot be converted now is tried again, and others go on
    #       (test_a_failed_conversion_is_tried_again).

    def __init__(
        self,
        settings: LandingSettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk = DISK,
        now: Callable[[], float] = wall_time,
    ) -> None:
        self.settings = settings
        self.folder = LandingFolder(settings.folder)
        self.segments = settings.segments or settings.folder / ".wal"
        self._clock = clock
        self._disk = disk
        self._now = now
        self._changed = threading.Condition()
        self._sealed: deque[Segment] = deque()
        self._in_hand = 0
        self._is_closing = False
        self._give_up_at = float("inf")
        self._stats = LandingStats()
        self._uncounted = 0  # bytes committed since the last look at the disk
        self._lock: int | None = None
        self._old_digests: dict[Path, frozenset[bytes]] = {}  # by their segment
        self._thread: threading.Thread | None = None
        site = Site(self.segments, settings.segment_bytes, self._names().__next__, clock, disk)
        self._logs = {signal: SegmentLog(signal, site, self._take) for signal in Signal}

    def _names(self) -> Iterator[str]:
        # Never used twice: sorted by time, told apart by a random part and a number.
        part = uuid.uuid4().hex[:12]
        for number in itertools.count(1):
            yield f"{int(self._now() * 1000):013d}-{part}-{number:06d}"

    # -- opening and closing --------------------------------------------------------------

    def open(self) -> Sequence[tuple[float, bytes]]:
        """Take the folder; return the digests that are known from before, with their times."""
        self._prepare()
        found = self._recover()
        self._look()
        self._thread = threading.Thread(target=self._run, name="penstock.landing", daemon=True)
        self._thread.start()
        return found

    def close(self, timeout: float) -> bool:
        """Convert what there is, for *timeout* seconds; return whether all of it was.

        What is left is on the disk, and is converted by the next that opens the folder.
        """
        with self._changed:
            self._is_closing = True
            self._give_up_at = self._clock.now() + timeout
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        with self._changed:
            return not self._sealed

    def _prepare(self) -> None:
        try:
            self.folder.prepare()
            for signal in Signal:
                (self.segments / signal).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.segments / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError as error:
            raise LandingError(
                f"the folder {self.segments} cannot be used: {error.strerror}; name one that "
                "this user may write to"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            self._lock = None
            raise LandingError(
                f"another receiver uses {self.segments}; stop it, or name another folder"
            ) from error

    def _recover(self) -> list[tuple[float, bytes]]:
        """Find the segments and digests that an earlier process has left."""
        prune_digests_before = self._now() - self.settings.remember
        found: list[tuple[float, bytes]] = []
        for signal in Signal:
            folder = self.segments / signal
            prune_digests(folder, prune_digests_before, self._disk)
            for path in folder.glob(f"*{DIGESTS_SUFFIX}"):
                owner = path.with_name(path.name.removesuffix(DIGESTS_SUFFIX) + SUFFIX)
                self._remember(owner, kept_digests(path), found)
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                digests = [record.digest for record in read_segment(path).records]
                self._remember(path, digests, found)
                self._sealed.append(Segment(signal, path))
        if self._sealed:
            log.info("land.recovered: %d segments of an earlier process", len(self._sealed))
        return sorted(found)

    def _remember(
        self, owner: Path, digests: Sequence[bytes], found: list[tuple[float, bytes]]
    ) -> None:
        at = _time_of(owner)
        self._old_digests[owner] = self._old_digests.get(owner, frozenset()) | frozenset(digests)
        found.extend((at, digest) for digest in digests)

    # -- the way in -----------------------------------------------------------------------

    def commit(self, signal: Signal, records: Sequence[Record]) -> None:
        """Put *records* on the disk, or raise OSError. One thread at a time for each signal."""
        started = self._clock.now()
        try:
            self._logs[signal].append(records)
        except OSError as error:
            with self._changed:
                self._stats.commit_errors += 1
                self._trouble(f"requests cannot be written: {_reason(error)}")
            raise
        size = sum(len(record.payload) for record in records)
        with self._changed:
            stats = self._stats
            stats.groups[signal] += 1
            stats.requests[signal] += len(records)
            stats.committed_bytes[signal] += size
            stats.commit_seconds += self._clock.now() - started
            stats.trouble = None
            self._uncounted += size
            self._changed.notify_all()

    def has_room(self) -> bool:
        """Whether the disk cap leaves room for more."""
        return self._stats.used_bytes + self._uncounted < self.settings.disk_bytes

    def stats(self) -> LandingStats:
        """Return the figures as they are now."""
        with self._changed:
            stats = self._stats
            stats.segments_waiting = len(self._sealed) + self._in_hand
            return copy.deepcopy(stats)

    def _take(self, segment: Segment) -> None:
        with self._changed:
            self._sealed.append(segment)
            self._changed.notify_all()

    # -- the converter's thread -------------------------------------------------------------

    def _run(self) -> None:
        delay = 0.0
        while True:
            segment = self._next(delay)
            if segment is None:
                return
            if self._is_converted(segment):
                delay = 0.0
            else:
                first, longest = _RETRY
                delay = min(max(first, 2 * delay), longest)
                with self._changed:
                    self._in_hand = 0
                    self._sealed.append(segment)  # behind the others (Z2)

    def _next(self, delay: float) -> Segment | None:
        """Return the next segment to convert, not before *delay*; None at the end."""
        not_before = self._clock.now() + delay
        while True:
            self._seal_what_is_due()
            with self._changed:
                now = self._clock.now()
                if self._is_closing and (not self._sealed or now >= self._give_up_at):
                    return None
                if self._sealed and (now >= not_before):
                    self._in_hand = 1
                    return self._sealed.popleft()
                self._clock.wait(self._changed, self._pause(now, not_before))
            if not self.has_room():
                self._look()

    def _seal_what_is_due(self) -> None:
        age = 0.0 if self._is_closing else self.settings.segment_age
        for signal in Signal:
            self._logs[signal].seal(age)

    def _pause(self, now: float, not_before: float) -> float | None:
        waits = [
            due for each in self._logs.values() if (due := each.due(self.settings.segment_age))
        ]
        if self._sealed:
            waits.append(not_before - now)
        if self._is_closing:
            waits.append(self._give_up_at - now)
        if not self.has_room():
            waits.append(_LOOK_EVERY)
        return max(0.0, min(waits)) if waits else None

    def _is_converted(self, segment: Segment) -> bool:
        known = frozenset[bytes]()
        if segment.end is None:  # of an earlier process, whose last words may be in two segments
            others = (d for owner, d in self._old_digests.items() if owner != segment.path)
            known = known.union(*others)
        try:
            converted = convert(segment, self.folder, self._disk, known)
            prune_digests(segment.path.parent, self._now() - self.settings.remember, self._disk)
        except Exception as error:  # noqa: BLE001 - the segment is kept, whatever it is
            self._note_failure(segment, error)
            return False
        self._note(converted)
        self._look()
        return True

    def _note_failure(self, segment: Segment, error: Exception) -> None:
        text = f"segment {segment.name} cannot be converted: {_reason(error)}"
        is_new = self._stats.trouble != text
        with self._changed:
            self._stats.conversion_errors += 1
            self._trouble(text)
        if is_new:
            is_disk = isinstance(error, OSError)
            log.warning(
                "land.not_converted: %s; it is kept, and tried again",
                text,
                exc_info=None if is_disk else error,
            )

    def _note(self, converted: Converted) -> None:
        signal = converted.signal
        with self._changed:
            self._in_hand = 0
            stats = self._stats
            stats.trouble = None
            stats.files[signal] += converted.file is not None
            stats.records[signal] += converted.records
            stats.repeated[signal] += converted.repeated
            stats.set_aside[signal] += converted.set_aside
            for reason, count in converted.rejected.items():
                stats.rejected[signal, reason] += count

    def _trouble(self, text: str) -> None:
        self._stats.trouble = text

    def _look(self) -> None:
        """Measure what lies on the disk."""
        waiting = sum(file.size for file in self.folder.pending())
        for signal in Signal:
            for path in (self.segments / signal).iterdir():
                with suppress(FileNotFoundError):
                    waiting += path.stat().st_size
        with self._changed:
            self._stats.used_bytes = waiting
            self._uncounted = 0


def _time_of(segment: Path) -> float:
    """Return when a segment was begun, which its name says."""
    millis = segment.name.partition("-")[0]
    return int(millis) / 1000 if millis.isdigit() else 0.0


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else f"{error!r}"
