"""Times on the command line: as they are given, and as they are shown."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

from penstock.clock import wall_time

__all__ = ["bucket_text", "time"]

_AGO = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHOWN = {1: "%Y-%m-%d %H:%M", 60: "%Y-%m-%d %H:00", 1440: "%Y-%m-%d"}


def time(text: str) -> float:
    """Read a time: ``30m`` (ago), ``2h``, ``7d``, or ISO 8601 (UTC if it does not say)."""
    ago = _AGO.fullmatch(text)
    if ago:
        return wall_time() - int(ago[1]) * _UNITS[ago[2]]
    try:
        given = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write 30m, 2h, 7d or 2026-01-31T12:00"
        ) from error
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()


def bucket_text(bucket: int, minutes: int) -> str:
    """Return the start of a bucket as it is shown, in UTC."""
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=bucket * minutes)
    return start.strftime(_SHOWN[minutes])
