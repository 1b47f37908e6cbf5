"""Values of command-line options, checked where they are read."""

from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Repeated", "at_least", "from_zero", "masked", "pairs", "positive"]

T = TypeVar("T")

_PASSWORDS = (
    (re.compile(r"(://[^/:@]*):.*@"), r"\1:***@"),
    (re.compile(r"([?&]password=)[^&]*"), r"\1***"),
)


def masked(url: str) -> str:
    """Return *url* without the password that may be in it."""
    for pattern, replacement in _PASSWORDS:
        url = pattern.sub(replacement, url)
    return url


class Repeated(argparse.Action):
    """An option that may be given several times; given once, it stands over the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - as the base class has it
        option_string: str | None = None,
    ) -> None:
        """Add the value to those that were given."""
        del parser, option_string
        before = getattr(namespace, self.dest, self.default)
        given = [] if before is self.default else before
        setattr(namespace, self.dest, [*given, values])


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
