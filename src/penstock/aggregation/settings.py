"""What the aggregation can be told, with the defaults of the upstream project."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AggregationSettings"]

DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationSettings:
    """Thresholds in milliseconds, and how many entities a scope may have.

    ``apdex`` is by service; ``slow_databases`` and ``slow_caches`` by system in lower case. The
    entry ``default`` stands for all that have none of their own.
    """

    apdex: Mapping[str, int] = field(default_factory=lambda: {DEFAULT: 500})
    slow_databases: Mapping[str, int] = field(
        default_factory=lambda: {DEFAULT: 200, "mongodb": 100}
    )
    slow_caches: Mapping[str, int] = field(default_factory=lambda: {DEFAULT: 20, "redis": 10})
    max_entities: int = 100_000

    def __post_init__(self) -> None:
        for name in ("apdex", "slow_databases", "slow_caches"):
            _check_thresholds(name, getattr(self, name))
        if not isinstance(self.max_entities, int) or self.max_entities < 1:
            raise ConfigError(
                f"max_entities={self.max_entities!r} must be a whole number of at least 1"
            )


def threshold(thresholds: Mapping[str, int], name: str) -> int:
    """Return the threshold for *name*."""
    return thresholds.get(name, thresholds[DEFAULT])


def _check_thresholds(name: str, thresholds: Mapping[str, int]) -> None:
    if DEFAULT not in thresholds:
        raise ConfigError(f"{name} lacks the entry {DEFAULT!r}, which stands for all others")
    for key, value in thresholds.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(
                f"{name}[{key!r}]={value!r} must be a whole number of milliseconds, 0 or more"
            )
