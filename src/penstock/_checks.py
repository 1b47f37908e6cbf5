"""Checks on values that users give, with errors that name the field and the remedy."""

from __future__ import annotations

import math

from penstock.errors import ConfigError

__all__ = ["finite_number", "seconds", "whole_number"]


def whole_number(field: str, value: object, *, least: int) -> int:
    """Return *value* if it is an int of at least *least*; a bool is not."""
    if type(value) is not int or value < least:
        msg = f"{field} must be a whole number of at least {least}, not {value!r}"
        raise ConfigError(msg)
    return value


def finite_number(field: str, value: object) -> float:
    """Return *value* as a float if it is a finite number above 0."""
    number = _as_float(value)
    if not 0 < number < math.inf:
        msg = f"{field} must be a finite number above 0, not {value!r}"
        raise ConfigError(msg)
    return number


def seconds(field: str, value: object, *, above_zero: bool = False) -> float:
    """Return *value* as seconds, infinity allowed."""
    number = _as_float(value)
    if not number >= 0 or (above_zero and number == 0):
        bound = "above 0" if above_zero else "of at least 0"
        msg = f"{field} must be seconds {bound}, not {value!r}"
        raise ConfigError(msg)
    return number


def _as_float(value: object) -> float:
    """Return *value* as a float, or NaN if it is no number or beyond all floats."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
