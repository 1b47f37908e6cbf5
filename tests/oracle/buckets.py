"""Time as the oracle cuts it: minutes, hours and days since 1970 UTC, and what is too old."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Entity: TypeAlias = tuple[str, ...]
# Metric name, granularity, entity, bucket.
Key: TypeAlias = tuple[str, str, Entity, int]
# Scope -> the entities that it has room for; a scope that is not listed has room for all.
Admitted: TypeAlias = Mapping[str, Collection[Entity]]

MINUTES = {"minute": 1, "hour": 60, "day": 1440}
NANOSECONDS = 60 * 1_000_000_000
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Horizon:
    """Which minutes count, seen at *now* (seconds since 1970), with retentions in days."""

    now: float
    minute: int = 7
    hour: int = 30
    day: int = 365

    def holds(self, granularity: str, minute: int) -> bool:
        """Whether a row of *minute* counts in *granularity*: not expired, nor a day ahead."""
        days = {"minute": self.minute, "hour": self.hour, "day": self.day}[granularity]
        return self.now - days * DAY <= minute * 60 <= self.now + DAY


def counting_buckets(minute: int, horizon: Horizon | None) -> list[tuple[str, int]]:
    """Return the buckets that a row of *minute* counts in, one of each granularity at most."""
    return [
        (granularity, minute // length)
        for granularity, length in MINUTES.items()
        if horizon is None or horizon.holds(granularity, minute)
    ]


def admit(scope: str, entity: Entity, admitted: Admitted | None) -> Entity:
    """Return *entity*, or the one that stands for all that its scope has no room for."""
    if admitted is None or scope not in admitted or entity in admitted[scope]:
        return entity
    return ("(other)",) * len(entity)
