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
from penstock.land.converters import ConverterThread
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
    from penstock.land.converters import Converter
    from penstock.land.segments import Record

__all__ = ["Landing", "LandingSettings", "LandingStats"]

log = logging.getLogger("penstock.land")

_LOCK = "lock"
_LOCK_EVERY = 0.05  # seconds
_LOOK_EVERY = 1.0  # seconds between looks at the disk, when it has no room or cannot be written
_RETRY = (0.5, 5.0)  # seconds: first, longest
_PROBE = "probe", 256 << 10  # a file that tells whether the disk can be written again; its bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingSettings:
    """Where things land, and in pieces of which size. Times are seconds."""

    folder: Path
    segments: Path | None = None  # default: .wal in the landing folder
    segment_bytes: int = 16 << 20
    segment_age: float = 2.0
    disk_bytes: int = 8 << 30  # of segments and of files that wait for the aggregation
    remember: float = 600.0  # for how long a repeated request is recognised
    lock_patience: float = 0.0  # for how long to wait for a folder that is in use


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
    """Why the last write failed, or the last conversion, until one of its kind succeeds."""


class Landing:
    """Takes groups of requests; what `commit` has returned from is never lost.

    One process per folder of segments. `open` finds what an earlier process has left and
    converts it; `close` converts what there is, as far as its time allows.
    """

    # Guarded by _changed: _sealed, _is_closing, stats, troubles. Disk is written with it released.
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
        converter: Converter | None = None,
    ) -> None:
        self.settings = settings
        self.folder = LandingFolder(settings.folder)
        self.segments = settings.segments or settings.folder / ".wal"
        self._clock = clock
        self._disk = disk
        self._now = now
        self._converter = converter or ConverterThread(disk)
        self._changed = threading.Condition()
        self._sealed: deque[Segment] = deque()
        self._in_hand = 0
        self._is_closing = False
        self._give_up_at = float("inf")
        self._stats = LandingStats()
        self._uncounted = 0  # bytes committed since the last look at the disk
        self._lock: int | None = None
        self._write_trouble: str | None = None
        self._conversion_trouble: str | None = None
        self._look_at = 0.0  # not earlier than this, the converter's thread looks at the disk
        self._foreign: dict[Path, frozenset[bytes]] = {}  # what an old segment leaves to others
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
        try:
            self._prepare()
            found = self._recover()
        except OSError as error:
            self._unlock()
            raise LandingError(
                f"the folder {error.filename or self.segments} cannot be used: {error.strerror}; "
                "name one that this user may read and write"
            ) from error
        self._look()
        assert self._lock is not None
        self._converter.start(self._lock)
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
        self._converter.close()
        self._unlock()
        with self._changed:
            return not self._sealed

    def _prepare(self) -> None:
        self.folder.prepare()
        for signal in Signal:
            (self.segments / signal).mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.segments / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self._lock_patiently(self._lock)
        # Folders that are new must last like the files in them.
        for path in dict.fromkeys((self.segments, self.segments.parent, self.folder.root)):
            self._disk.sync_folder(path)

    def _lock_patiently(self, lock: int) -> None:
        """Lock the folder; one whose receiver was killed is let go when its converter has ended."""
        deadline = self._clock.now() + self.settings.lock_patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if self._clock.now() >= deadline:
                    self._unlock()
                    raise LandingError(
                        f"another receiver uses {self.segments}; stop it, or name another folder"
                    ) from error
                with self._changed:
                    self._clock.wait(self._changed, _LOCK_EVERY)
            else:
                return

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _recover(self) -> list[tuple[float, bytes]]:
        """Find the segments and digests that an earlier process has left.

        A request may be in two segments: written, but not known to be, and sent again. It is
        the segment's whose digests have it, or else the first one's that has no digests yet.
        """
        for path in self.segments.glob(f"*{_PROBE[0]}*"):
            self._disk.remove(path)
        owners: dict[bytes, Path] = {}
        for signal in Signal:
            folder = self.segments / signal
            prune_digests(folder, self._now() - self.settings.remember, self._disk)
            for path in sorted(folder.glob(f"*{DIGESTS_SUFFIX}")):
                owner = path.with_name(path.name.removesuffix(DIGESTS_SUFFIX) + SUFFIX)
                for digest in kept_digests(path):
                    owners.setdefault(digest, owner)
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                self._sealed.append(Segment(signal, path))
                if path.with_suffix(DIGESTS_SUFFIX).exists():
                    continue
                digests = {record.digest for record in read_segment(path).records}
                self._foreign[path] = frozenset(
                    digest for digest in digests if owners.setdefault(digest, path) != path
                )
        if self._sealed:
            log.info("land.recovered: %d segments of an earlier process", len(self._sealed))
        return sorted((_time_of(owner), digest) for digest, owner in owners.items())

    # -- the way in -----------------------------------------------------------------------

    def commit(self, signal: Signal, records: Sequence[Record]) -> None:
        """Put *records* on the disk, or raise OSError. One thread at a time for each signal."""
        started = self._clock.now()
        try:
            self._logs[signal].append(records)
        except OSError as error:
            with self._changed:
                self._stats.commit_errors += 1
                self._write_trouble = f"requests cannot be written: {_reason(error)}"
                self._changed.notify_all()
            raise
        size = sum(len(record.payload) for record in records)
        with self._changed:
            stats = self._stats
            stats.groups[signal] += 1
            stats.requests[signal] += len(records)
            stats.committed_bytes[signal] += size
            stats.commit_seconds += self._clock.now() - started
            self._write_trouble = None
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
            stats.trouble = self._write_trouble or self._conversion_trouble
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
        was_closing = self._is_closing
        not_before = self._clock.now() + (min(delay, _RETRY[0]) if was_closing else delay)
        while True:
            is_closing = self._is_closing
            # All that is open is sealed before the end is seen, not the other way round.
            self._seal(0.0 if is_closing else self.settings.segment_age)
            with self._changed:
                now = self._clock.now()
                if is_closing:
                    if not self._sealed or now >= self._give_up_at:
                        return None
                    if not was_closing:
                        not_before = now  # there may be no other chance
                if self._sealed and now >= not_before:
                    self._in_hand = 1
                    return self._sealed.popleft()
                if is_closing == self._is_closing:
                    self._clock.wait(self._changed, self._pause(now, not_before))
            self._look_around()

    def _seal(self, age: float) -> None:
        for each in self._logs.values():
            each.seal(age)

    def _pause(self, now: float, not_before: float) -> float | None:
        ages = (each.due(self.settings.segment_age) for each in self._logs.values())
        waits = [age for age in ages if age is not None]
        if self._sealed:
            waits.append(not_before - now)
        if self._is_closing:
            waits.append(self._give_up_at - now)
        if self._is_in_need():
            waits.append(self._look_at - now)
        return max(0.0, min(waits)) if waits else None

    def _is_converted(self, segment: Segment) -> bool:
        foreign = self._foreign.get(segment.path, frozenset())
        try:
            converted = self._converter.convert(segment, self.folder, foreign)
        except Exception as error:  # noqa: BLE001 - the segment is kept, whatever it is
            self._note_failure(segment, error)
            return False
        self._foreign.pop(segment.path, None)
        self._note(converted)
        with suppress(OSError):  # they are in nobody's way
            prune_digests(segment.path.parent, self._now() - self.settings.remember, self._disk)
        self._look()
        return True

    def _note_failure(self, segment: Segment, error: Exception) -> None:
        text = f"segment {segment.name} cannot be converted: {_reason(error)}"
        with self._changed:
            is_new = self._conversion_trouble != text
            self._stats.conversion_errors += 1
            self._conversion_trouble = text
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
            self._conversion_trouble = None
            stats.files[signal] += converted.file is not None
            stats.records[signal] += converted.records
            stats.repeated[signal] += converted.repeated
            stats.set_aside[signal] += converted.set_aside
            for reason, count in converted.rejected.items():
                stats.rejected[signal, reason] += count

    # -- the state of the disk ----------------------------------------------------------------

    def _is_in_need(self) -> bool:
        return self._write_trouble is not None or not self.has_room()

    def _look_around(self) -> None:
        """See, once in a while, whether what keeps requests out is over."""
        now = self._clock.now()
        if now < self._look_at or not self._is_in_need():
            return
        self._look_at = now + _LOOK_EVERY
        self._look()
        if self._write_trouble is not None:
            self._probe()

    def _look(self) -> None:
        """Measure what lies on the disk; what cannot be measured now is as it was."""
        with self._changed:
            counted = self._uncounted
        with suppress(OSError):
            waiting = sum(file.size for file in self.folder.pending())
            for signal in Signal:
                for path in (self.segments / signal).iterdir():
                    with suppress(FileNotFoundError):
                        waiting += path.stat().st_size
            with self._changed:
                self._stats.used_bytes = waiting
                self._uncounted -= counted

    def _probe(self) -> None:
        """Try to write: whoever waits until this is ready would never try it with requests."""
        name, size = _PROBE
        with suppress(OSError):
            self._disk.place(self.segments / name, [bytes(size)])
            self._disk.remove(self.segments / name)
            with self._changed:
                self._write_trouble = None


def _time_of(segment: Path) -> float:
    """Return when a segment was begun, which its name says."""
    millis = segment.name.partition("-")[0]
    return int(millis) / 1000 if millis.isdigit() else 0.0


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else f"{error!r}"
