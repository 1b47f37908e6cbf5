"""How a request ends, before it is said in the words of a protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Outcome", "Verdict"]


class Verdict(StrEnum):
    """What becomes of a request. Clients repeat it after EXHAUSTED and UNAVAILABLE only."""

    ACCEPTED = "accepted"
    """It is on the disk; or it was before, or has nothing that could be kept."""
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"
    """An encoding, compression or content type that is not spoken here."""
    UNAUTHENTICATED = "unauthenticated"
    EXHAUSTED = "exhausted"
    """There is no room now."""
    UNAVAILABLE = "unavailable"
    """It may or may not be on the disk; sent again, it counts once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request. *rejected* records of an accepted one were left out, see *message*."""

    verdict: Verdict
    message: str = ""
    rejected: int = 0
