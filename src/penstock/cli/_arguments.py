"""Values of command-line options, checked where they are read."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["at_least", "from_zero", "pairs", "positive"]

T = TypeVar("T")


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def from_zero(text: str) -> float:
    """Read a number of at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def at_least(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from *least* on."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return number

    return read


def pairs(option: str, given: Iterable[str], read: Callable[[str], T]) -> dict[str, T]:
    """Read ``NAME=VALUE`` texts that were given for *option*."""
    result = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigError(f"{option} {text!r} must be written NAME=VALUE")
        try:
            result[name] = read(value)
        except ValueError as error:
            raise ConfigError(f"{option} {text!r}: {value!r} is not a whole number") from error
    return result
