"""The functions as arithmetic over raw samples: whole numbers stay whole, nothing is merged.

A sample is the tuple of what a metric read from one row that counts: its value (None for
``from(Source.*)``), then the arguments of its function, conditions as booleans.
"""

import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

RANKS = (50, 75, 90, 95, 99)
MAX_LABELS = 50
REMAINDER = "(other)"

Sample: TypeAlias = tuple[Any, ...]
Samples: TypeAlias = Sequence[Sample]


class Histogram(dict[str, int]):
    """Counts by the lower bound of a slot; a slot that is absent counts nothing."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """All raw values of a bucket, from which any rank can be told exactly.

    A duration below zero (clocks that disagree) counts as zero.
    """

    values: tuple[int, ...]

    @classmethod
    def of(cls, values: Sequence[int]) -> "Percentiles":
        """Sort the raw values."""
        return cls(tuple(sorted(max(0, value) for value in values)))

    def at(self, rank: int) -> int:
        """Return the value at place ``floor(total * rank / 100 + 0.5)``, at least the first."""
        place = (len(self.values) * rank * 2 + 100) // 200
        return self.values[max(1, place) - 1]


OracleValue: TypeAlias = int | float | Mapping[str, int | float] | Mapping[float, int] | Percentiles


@dataclass(frozen=True, slots=True)
class Setting:
    """What a final value depends on besides its samples."""

    minutes: int = 1
    apdex_default: int = 500
    apdex_thresholds: Mapping[str, int] = field(default_factory=dict)


def final_value(function: str, samples: Samples, setting: Setting) -> OracleValue:
    """Return the value of *function* over all *samples* of a bucket, of which there are some."""
    return _FUNCTIONS[function](samples, setting)


def quotient(dividend: int, divisor: int) -> int:
    """Divide whole numbers, rounding towards zero."""
    size = abs(dividend) // abs(divisor)
    return size if (dividend < 0) == (divisor < 0) else -size


def _values(samples: Samples) -> list[Any]:
    return [sample[0] for sample in samples]


def _long_average(samples: Samples, _setting: Setting) -> int:
    return quotient(sum(_values(samples)), len(samples))


def _double_average(samples: Samples, _setting: Setting) -> float:
    return math.fsum(_values(samples)) / len(samples)


def _calls_per_minute(samples: Samples, setting: Setting) -> int:
    return len(samples) // setting.minutes


def _percent(samples: Samples, _setting: Setting) -> int:
    matching = sum(1 for _, matches in samples if matches)
    return matching * 10_000 // len(samples)


def _rate(samples: Samples, _setting: Setting) -> int:
    numerator = sum(1 for _, above, _ in samples if above)
    denominator = sum(1 for _, _, below in samples if below)
    return numerator * 10_000 // denominator if denominator else 0


def _apdex(samples: Samples, setting: Setting) -> int:
    satisfied = tolerated = 0
    for value, name, status in samples:
        threshold = setting.apdex_thresholds.get(name, setting.apdex_default)
        if not status or value > 4 * threshold:
            continue
        if value > threshold:
            tolerated += 1
        else:
            satisfied += 1
    return (satisfied * 10_000 + tolerated * 10_000 // 2) // len(samples)


def _percentiles(samples: Samples, _setting: Setting) -> Percentiles:
    return Percentiles.of(_values(samples))


def _histogram(samples: Samples, _setting: Setting) -> Histogram:
    counts = Tally(min(max(0, value) // step, highest) * step for value, step, highest in samples)
    return Histogram({str(bound): counts[bound] for bound in sorted(counts)})


def _label_count(samples: Samples, _setting: Setting) -> dict[str, int]:
    return {label: len(values) for label, values in _by_label(samples).items()}


def _label_average(samples: Samples, _setting: Setting) -> dict[str, int]:
    return {label: _shown_average(values) for label, values in _by_label(samples).items()}


def _by_label(samples: Samples) -> dict[str, list[Any]]:
    """Return the values of the largest labels, and those of all other labels under one."""
    found: dict[str, list[Any]] = defaultdict(list)
    for value, label in samples:
        if label is not None:
            found[_label(label)].append(value)
    ranked = sorted(found, key=lambda label: (-len(found[label]), label))
    kept = {label: found[label] for label in ranked[:MAX_LABELS]}
    for label in ranked[MAX_LABELS:]:
        kept[REMAINDER] = kept.get(REMAINDER, []) + found[label]
    return kept


def _shown_average(values: list[int]) -> int:
    """Return the whole average, but 1 where something positive would be shown as nothing."""
    average = quotient(sum(values), len(values))
    return 1 if average == 0 and sum(values) > 0 else average


def _label(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_FUNCTIONS: dict[str, Callable[[Samples, Setting], OracleValue]] = {
    "longAvg": _long_average,
    "doubleAvg": _double_average,
    "sum": lambda samples, _: sum(_values(samples)),
    "count": lambda samples, _: len(samples),
    "max": lambda samples, _: max(_values(samples)),
    "min": lambda samples, _: min(_values(samples)),
    "maxDouble": lambda samples, _: float(max(_values(samples))),
    "minDouble": lambda samples, _: float(min(_values(samples))),
    "cpm": _calls_per_minute,
    "percent": _percent,
    "rate": _rate,
    "apdex": _apdex,
    "percentile": _percentiles,
    "percentile2": _percentiles,
    "histogram": _histogram,
    "labelCount": _label_count,
    "labelAvg": _label_average,
}
