"""The items that benches send: many types, some of them far more frequent than others."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MIX", "make_types", "no_op", "shuffled", "weights_of"]

Mix = tuple[tuple[int, int], ...]

MIX: Mix = ((20, 24), (30, 8), (20, 4), (30, 1))
"""How many types, and how often each comes in one turn of the list: 100 types, 830 items."""

SEED = 42


def weights_of(mix: Mix) -> list[int]:
    """Return one weight per type."""
    return [weight for number, weight in mix for _ in range(number)]


def make_types(number: int, prefix: str = "Metric") -> list[type]:
    """Return *number* new classes whose names, by which a queue places them, are always the same.

    Numbered names would not do: the CRC of names that differ in one digit spreads them over
    the partitions far more evenly than it does names out of a program.
    """
    digits = random.Random(SEED)  # noqa: S311 - names, not secrets
    body = {"__slots__": (), "__module__": "penstock.bench"}
    names = [f"{prefix}{digits.getrandbits(32):08x}" for _ in range(number)]
    return [type(name, (), dict(body)) for name in names]


def shuffled(types: Sequence[type], weights: Sequence[int]) -> list[Any]:
    """Return one list with as many items of each type as its weight, in a fixed random order."""
    items = [
        item
        for kind, weight in zip(types, weights, strict=True)
        for item in [kind() for _ in range(weight)]
    ]
    random.Random(SEED).shuffle(items)  # noqa: S311 - an order, not a secret
    return items


def no_op(batch: list[Any]) -> None:
    """Do nothing with *batch*."""
