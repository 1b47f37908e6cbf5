"""How many threads a workload gets: intent in, a number out."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from penstock._checks import finite_number, whole_number

__all__ = ["ThreadPolicy", "available_cores"]


def available_cores() -> int:
    """Return how many cores this process may use (its affinity, where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # pragma: no cover - Linux always has an affinity


@dataclass(frozen=True, slots=True, repr=False)
class ThreadPolicy:
    """A thread count stated as intent and resolved on the machine it runs on.

    Build one with :meth:`fixed`, :meth:`cpu_cores`, :meth:`cpu_cores_with_base` or
    :meth:`io_bound`. It always resolves to at least 1.

    >>> ThreadPolicy.cpu_cores_with_base(1, 0.25).resolve(cores=8)
    3
    >>> ThreadPolicy.cpu_cores_with_base(1, 0.25).resolve(cores=2)
    2
    """

    base: int
    per_core: float
    label: str

    @classmethod
    def fixed(cls, count: int) -> ThreadPolicy:
        """Exactly *count* threads."""
        return cls(
            whole_number("ThreadPolicy.fixed(count)", count, least=1), 0.0, f"fixed({count})"
        )

    @classmethod
    def io_bound(cls, count: int) -> ThreadPolicy:
        """Exactly *count* threads that mostly wait; says so to whoever reads the configuration."""
        return cls(
            whole_number("ThreadPolicy.io_bound(count)", count, least=1), 0.0, f"io_bound({count})"
        )

    @classmethod
    def cpu_cores(cls, multiplier: float) -> ThreadPolicy:
        """*multiplier* threads per core, rounded half up."""
        share = finite_number("ThreadPolicy.cpu_cores(multiplier)", multiplier)
        return cls(0, share, f"cpu_cores({share})")

    @classmethod
    def cpu_cores_with_base(cls, base: int, multiplier: float) -> ThreadPolicy:
        """*base* threads and *multiplier* per core on top, the product rounded half up."""
        threads = whole_number("ThreadPolicy.cpu_cores_with_base(base)", base, least=0)
        share = finite_number("ThreadPolicy.cpu_cores_with_base(multiplier)", multiplier)
        return cls(threads, share, f"cpu_cores_with_base({threads}, {share})")

    def resolve(self, cores: int | None = None) -> int:
        """Return the thread count on a machine with *cores* cores (default: this one)."""
        if cores is None:
            cores = available_cores()
        # Half up: round() would send 0.5 to 0 and give a two-core machine one thread less.
        return max(1, self.base + math.floor(self.per_core * cores + 0.5))

    def __repr__(self) -> str:
        return f"ThreadPolicy.{self.label}"
