"""Requests, segments and landings for the tests of this folder."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.clock import SYSTEM_CLOCK
from penstock.land.landing import Landing, LandingSettings
from penstock.land.log import SegmentLog, Site
from penstock.land.segments import MAGIC, Record, digest_of, pieces_of
from penstock.telemetry import Signal
from penstock.testing import FakeClock, eventually
from tests.support.disks import ScriptedDisk
from tests.support.receiver import span_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.clock import Clock
    from penstock.land.durable import Disk
    from penstock.land.log import Segment

__all__ = [
    "BROKEN",
    "Log",
    "broken_record",
    "eventually_converted",
    "landing_on",
    "record_of",
    "segments_of",
    "write_segment",
]

BROKEN = b"\xff\xff this is no request"


def record_of(*ids: int, padding: int = 0) -> Record:
    """Return a request with spans of these ids."""
    payload = span_request(ids, padding)
    return Record(digest_of(Signal.SPANS, payload), payload)


def broken_record() -> Record:
    """Return a request that nobody can decode."""
    return Record(digest_of(Signal.SPANS, BROKEN), BROKEN)


def segments_of(folder: Path) -> list[Path]:
    """Return the segments that lie in a landing folder."""
    return sorted((folder / ".wal").rglob("*.wal"))


def write_segment(folder: Path, name: str, *records: Record, rest: bytes = b"") -> Path:
    """Leave a segment of spans, as an earlier process would have."""
    path = folder / ".wal" / "spans" / f"{name}.wal"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(MAGIC + b"".join(p for record in records for p in pieces_of(record)) + rest)
    return path


class Log:
    """A log of spans whose disk and time are the test's."""

    def __init__(self, folder: Path, segment_bytes: int = 1 << 20) -> None:
        (folder / "spans").mkdir(parents=True)
        self.clock = FakeClock()
        self.disk = ScriptedDisk(folder)
        self.sealed: list[Segment] = []
        names = (f"{number:013d}-0123456789ab-000001" for number in range(1000))
        site = Site(folder, segment_bytes, names.__next__, self.clock, self.disk)
        self.log = SegmentLog(Signal.SPANS, site, self.sealed.append)


@contextmanager
def landing_on(
    folder: Path, disk: Disk | None = None, clock: Clock = SYSTEM_CLOCK, **settings: float
) -> Iterator[Landing]:
    """Lend a landing that is open; in the end it converts what there is."""
    given: dict[str, Any] = settings
    landing = Landing(
        LandingSettings(folder=folder, **{"segment_age": 1e6, "lock_patience": 0.0, **given}),
        disk=disk or ScriptedDisk(folder),
        clock=clock,
    )
    landing.open()
    try:
        yield landing
    finally:
        assert close(landing, clock)


def close(landing: Landing, clock: Clock) -> bool:
    """Close the landing within 30 seconds; if time is fake, it passes."""
    if not isinstance(clock, FakeClock):
        return landing.close(30.0)
    done: list[bool] = []
    closer = threading.Thread(target=lambda: done.append(landing.close(30.0)))
    closer.start()
    while closer.is_alive():
        closer.join(0.1)
        clock.advance(1.0)
    return done == [True]


def eventually_converted(landing: Landing) -> None:
    """Wait until no segment waits to be converted."""
    eventually(lambda: landing.stats().segments_waiting == 0)
