"""Where two mappings of values differ, in lines that a person can act on."""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from tests.oracle.arithmetic import RANKS, Histogram, Percentiles
from tests.oracle.meters import Counter, Distribution, Gauge

K = TypeVar("K", bound=tuple[object, ...])

SHOWN = 20
RELATIVE = 1e-9  # of floating-point sums that were added up in another order
PERCENTILE = 0.045  # the promise of an exponential histogram of scale 3


def differences(
    expected: Mapping[K, object], actual: Mapping[K, object], *, shown: int = SHOWN
) -> list[str]:
    """Return a line for each key whose values differ: the first *shown*, then how many more.

    Works for values of metrics and meters and for top lists. A mapping without entries, and a
    counter or distribution that did not rise, are as good as absent.
    """
    lines = [
        f"{' '.join(map(str, key))}: {found}"
        for key in sorted(expected.keys() | actual.keys(), key=repr)
        if (found := _difference_at(key, expected, actual))
    ]
    more = len(lines) - shown
    return lines if more <= 0 else [*lines[:shown], f"... and {more} more"]


def _difference_at(key: K, expected: Mapping[K, object], actual: Mapping[K, object]) -> str | None:
    if key not in actual:
        return None if _is_nothing(expected[key]) else f"missing, expected {_text(expected[key])}"
    if key not in expected:
        return None if _is_nothing(actual[key]) else f"not expected, got {_text(actual[key])}"
    return _difference(expected[key], actual[key])


def _is_nothing(value: object) -> bool:
    if isinstance(value, Distribution):
        return not value.count and not any(value.values())
    if isinstance(value, Mapping):
        return not value
    return isinstance(value, Counter) and not value


def _difference(expected: object, actual: object) -> str | None:
    if isinstance(expected, Percentiles):
        return _of_percentiles(expected, actual)
    if isinstance(expected, Gauge):
        return _of_numbers(float(expected), actual) or _of_figures(expected, actual, Gauge)
    if isinstance(expected, Distribution):
        return _of_mappings(expected, actual) or _of_figures(expected, actual, Distribution)
    if isinstance(expected, Mapping):
        return _of_mappings(expected, actual)
    if isinstance(expected, list):
        return _of_lists(expected, actual)
    return _of_numbers(expected, actual)


def _of_percentiles(expected: Percentiles, actual: object) -> str | None:
    names = [f"p{rank}" for rank in RANKS]
    if not isinstance(actual, Mapping) or sorted(actual) != sorted(names):
        return f"expected percentiles {', '.join(names)}, got {_text(actual)}"
    for name, rank in zip(names, RANKS, strict=True):
        exact, got = expected.at(rank), actual[name]
        if not abs(got - exact) <= exact * PERCENTILE * (1 + RELATIVE):
            limits = f"{exact} ± {PERCENTILE:.1%}" if exact else "exactly 0"
            return f"{name} of {len(expected.values)} values: expected {limits}, got {got}"
    return None


def _of_figures(expected: object, actual: object, kind: type) -> str | None:
    """Compare what is known of a meter beside its value, if the other side knows it too."""
    if not isinstance(actual, kind):
        return None
    for figure in ("count", "sum", "low", "high"):
        if found := _of_numbers(getattr(expected, figure), getattr(actual, figure)):
            return f"{figure}: {found}"
    return None


def _of_mappings(expected: Mapping[Any, object], actual: object) -> str | None:
    if not isinstance(actual, Mapping):
        return f"expected {_text(expected)}, got {_text(actual)}"
    default = 0 if isinstance(expected, Histogram | Distribution) else None
    for label in sorted(expected.keys() | actual.keys(), key=repr):
        ours, theirs = expected.get(label, default), actual.get(label, default)
        if found := _of_numbers(ours, theirs):
            return f"{label!r}: {found}"
    return None


def _of_lists(expected: list[object], actual: object) -> str | None:
    if not isinstance(actual, list):
        return f"expected a list, got {_text(actual)}"
    for place, (ours, theirs) in enumerate(zip(expected, actual, strict=False)):
        if ours != theirs:
            return f"at {place}: expected {_text(ours)}, got {_text(theirs)}"
    if len(expected) != len(actual):
        return f"expected {len(expected)} entries, got {len(actual)}"
    return None


def _of_numbers(expected: object, actual: object) -> str | None:
    if isinstance(expected, float) and isinstance(actual, int | float):
        is_same = math.isclose(expected, actual, rel_tol=RELATIVE, abs_tol=1e-12)
    else:
        is_same = expected == actual
    return None if is_same else f"expected {_text(expected)}, got {_text(actual)}"


def _text(value: object) -> str:
    if isinstance(value, Percentiles):
        return str({f"p{rank}": value.at(rank) for rank in RANKS})
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
