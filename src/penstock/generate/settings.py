"""What telemetry to make up; checked when it is written down, not when it is used."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.clock import wall_time
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LIMITS", "SHARES", "GeneratorSettings"]

MINUTE = 60.0
NS = 1_000_000_000
# Each endpoint and each instance is planned once, in Python: more of them would take minutes.
MOST_ENDPOINTS = 20_000
MOST_INSTANCES = 100_000

# Whole numbers, by field: the least and the most that is allowed.
LIMITS = {
    "spans": (0, 10_000_000_000),
    "seed": (0, 2**63 - 1),
    "services": (2, 2_000),
    "instances": (1, 1_000),
    "endpoints": (1, 5_000),
    "minutes": (1, 60 * 24 * 31),
    "rows_per_file": (1, 10_000_000),
    "points": (0, 1_000_000),
    "logs": (0, 10_000_000_000),
}
SHARES = ("late", "error_rate")  # numbers from 0 to 1
_MOST_LATENESS = 7 * 24 * 60 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSettings:
    """The traffic of a made-up system. Times are seconds. Vary with ``dataclasses.replace``.

    Equal settings make equal rows, byte for byte; ``rows_per_file`` only says where they are cut.
    """

    spans: int = 100_000
    seed: int = 1
    services: int = 12
    """Services, the gateway included."""
    instances: int = 3
    """Instances of each service."""
    endpoints: int = 20
    """Endpoints of each service."""
    minutes: int = 10
    """How much time the telemetry covers; it ends at ``end``."""
    end: float | None = None
    """Seconds since 1970; None: now, rounded down to the minute. Never None once constructed."""
    late: float = 0.01
    """Share of rows that arrive after newer ones."""
    lateness: float = 2 * 60 * MINUTE
    """How late those are at most; at least a minute."""
    late_inside: bool = False
    """Whether late rows stay within ``minutes`` too, so that no further minutes get rows."""
    error_rate: float = 0.01
    """Share of spans that failed."""
    rows_per_file: int = 250_000
    points: int = 1_000
    """Metric points per minute."""
    logs: int = 1_000
    """Log records in all."""
    wall_clock: Callable[[], float] = field(default=wall_time, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            _check_whole(name, getattr(self, name), least, most)
        for name in SHARES:
            _check_range(name, getattr(self, name), 0.0, 1.0)
        _check_range("lateness", self.lateness, MINUTE, _MOST_LATENESS)
        _check_product(self, "endpoints", MOST_ENDPOINTS)
        _check_product(self, "instances", MOST_INSTANCES)
        end = self.wall_clock() // MINUTE * MINUTE if self.end is None else self.end
        earliest = self.minutes * MINUTE + self.lateness  # no row may lie before 1970
        _check_range("end", end, earliest, 4e9)
        object.__setattr__(self, "end", float(end))

    @classmethod
    def benchmark(cls, spans: int) -> GeneratorSettings:
        """Return settings for measurements: about 50,000 groups, from a million spans upwards.

        A group is one (source, entity, minute). Rows are in the order of time but for 1 %, which
        are late without adding groups.
        """
        return cls(
            spans=spans,
            seed=20_240_229,
            services=20,
            instances=2,
            endpoints=25,
            minutes=25,
            end=1_767_268_800.0,
            late=0.01,
            lateness=20 * MINUTE,
            late_inside=True,
            points=0,
            logs=0,
        )

    @property
    def end_ns(self) -> int:
        """The time before which all rows lie."""
        assert self.end is not None  # __post_init__ has replaced it
        return round(self.end * NS)

    @property
    def start_ns(self) -> int:
        """The time from which rows lie, but for late ones."""
        return self.end_ns - round(self.minutes * MINUTE * NS)


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        msg = f"{name} must be a whole number from {least:,} to {most:,}, not {value!r}"
        raise ConfigError(msg)


def _check_range(name: str, value: object, least: float, most: float) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and least <= value <= most):  # type: ignore[arg-type,operator] # a number
        msg = f"{name} must be a number from {least:,g} to {most:,g}, not {value!r}"
        raise ConfigError(msg)


def _check_product(settings: GeneratorSettings, name: str, most: int) -> None:
    each = getattr(settings, name)
    if settings.services * each > most:
        msg = (
            f"services ({settings.services}) times {name} ({each}) must be at most {most:,}: "
            "ask for fewer of either"
        )
        raise ConfigError(msg)
