"""The figures that a part of the pipeline has to tell, before they are in anybody's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Figure", "Samples"]

# By the values of the labels; any kind of text will do.
Samples: TypeAlias = "Mapping[Any, float]"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure, with a sample for each combination of its labels' values."""

    name: str  # without the prefix "penstock_", and without "_total"
    kind: Literal["counter", "gauge"]
    help: str
    samples: Samples
    labels: tuple[str, ...] = ()

    @classmethod
    def counter(cls, name: str, text: str, samples: Samples | float, *labels: str) -> Figure:
        """Return something that only grows."""
        return cls(name, "counter", text, _samples(samples), labels)

    @classmethod
    def gauge(cls, name: str, text: str, samples: Samples | float, *labels: str) -> Figure:
        """Return something that goes up and down."""
        return cls(name, "gauge", text, _samples(samples), labels)


def _samples(
    samples: Samples | float,
) -> Samples:
    return {(): float(samples)} if isinstance(samples, int | float) else samples
