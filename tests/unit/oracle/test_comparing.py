"""What the comparer reports, and what it lets pass."""

import math

import pytest

from tests.oracle.arithmetic import Histogram, Percentiles
from tests.oracle.buckets import Key
from tests.oracle.comparing import differences
from tests.oracle.meters import Counter, Distribution, Gauge

KEY: Key = ("m", "minute", ("shop",), 7)


def compared(expected: object, actual: object) -> list[str]:
    """Return the differences of two values under the same key."""
    return differences({KEY: expected}, {KEY: actual})


def gauge(last: float = 1.0, count: int = 2, total: float = 3.0, low: float = 1.0) -> Gauge:
    """Return a gauge."""
    return Gauge.of(last, count, total, (low, 2.0))


def distribution(counts: dict[float, int], total: float = 2.0) -> Distribution:
    """Return a distribution."""
    made = Distribution(counts)
    made.count, made.sum = sum(counts.values()), total
    return made


def percentiles(value: float) -> dict[str, float]:
    """Return the same value for each rank."""
    return dict.fromkeys(("p50", "p75", "p90", "p95", "p99"), value)


def test_equal_mappings_have_no_differences() -> None:
    """Whole numbers, fractions, labels and lists."""
    values: dict[Key, object] = {
        KEY: 1,
        ("n", "hour", ("a", "b"), 1): 0.5,
        ("l", "day", (), 0): {"a": 1},
    }
    assert differences(values, dict(values)) == []


def test_missing_and_extra_keys_are_reported() -> None:
    """With the value that is missing, or that nobody expected."""
    other: Key = ("n", "day", ("web", "x"), 8)
    assert differences({KEY: 1}, {other: 2}) == [
        "m minute ('shop',) 7: missing, expected 1",
        "n day ('web', 'x') 8: not expected, got 2",
    ]


def test_whole_numbers_are_exact() -> None:
    """However large, and also if the other side has a float."""
    assert compared(2**60 + 1, 2**60 + 1) == []
    assert compared(2**60 + 1, 2**60) != []
    assert compared(2**60 + 1, float(2**60)) != []
    assert compared(0, 1) == ["m minute ('shop',) 7: expected 0, got 1"]
    assert compared(0, None) != []


def test_fractions_may_differ_by_a_billionth() -> None:
    """Sums depend on the order in which they were added up."""
    assert compared(1.0, 1.0 + 9e-10) == []
    assert compared(1.0, 1.0 + 2e-9) != []
    assert compared(1e12, 1e12 + 1e4) != []
    assert compared(0.0, 1e-13) == []
    assert compared(1.0, math.nan) != []


@pytest.mark.parametrize("factor", [0.956, 1.0, 1.044])
def test_percentiles_may_differ_by_the_promised_error(factor: float) -> None:
    """4.5 % of the exact value at the rank, to either side."""
    assert compared(Percentiles((1000,)), percentiles(1000 * factor)) == []


@pytest.mark.parametrize("factor", [0.0, 0.954, 1.046, math.nan])
def test_percentiles_beyond_the_promised_error_are_reported(factor: float) -> None:
    """With the rank and how many values there were."""
    (line,) = compared(Percentiles((1000,)), percentiles(1000 * factor))
    assert "p50 of 1 values: expected 1000 ± 4.5%, got" in line


def test_every_rank_is_compared() -> None:
    """The last one as well."""
    exact = Percentiles(tuple(range(1, 101)))
    right = {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
    assert compared(exact, right) == []
    for name in right:
        assert name in compared(exact, right | {name: 1.0})[0]


def test_a_percentile_of_zero_is_exactly_zero() -> None:
    """There is no slot for a little more than nothing."""
    assert compared(Percentiles((0,)), percentiles(0.0)) == []
    (line,) = compared(Percentiles((0,)), percentiles(0.001))
    assert "expected exactly 0" in line


def test_percentiles_have_all_ranks() -> None:
    """A rank that is missing, or something else altogether, is reported."""
    assert "expected percentiles p50" in compared(Percentiles((1,)), {"p50": 1.0})[0]
    assert compared(Percentiles((1,)), 1.0) != []


def test_labels_are_exact() -> None:
    """Also a label that is absent on one side, even if its average is 0."""
    assert compared({"a": 1, "b": 2}, {"b": 2, "a": 1}) == []
    assert compared({"a": 1}, {"a": 2}) == ["m minute ('shop',) 7: 'a': expected 1, got 2"]
    assert compared({"a": 0}, {}) != []
    assert compared({}, {"a": 0}) != []
    assert compared({"a": 1}, 1) != []


def test_an_empty_slot_is_as_good_as_none() -> None:
    """In histograms and distributions."""
    assert compared(Histogram({"0": 1}), {"0": 1, "10": 0}) == []
    assert compared(Histogram({"0": 1}), {"0": 1, "10": 1}) != []
    assert compared(distribution({1.0: 1, math.inf: 0}), distribution({1.0: 1})) == []
    assert compared(distribution({1.0: 1}), distribution({5.0: 1})) != []


def test_nothing_is_as_good_as_absent() -> None:
    """A counter that did not rise, a distribution without counts, no labels at all."""
    nothings: list[object] = [Counter(0), distribution({1.0: 0}), {}, Histogram()]
    for nothing in nothings:
        assert differences({KEY: nothing}, {}) == []
        assert differences({}, {KEY: nothing}) == []
    for something in (0, 0.0, Counter(1), gauge(0.0), distribution({1.0: 1}), {"a": 0}):
        assert differences({KEY: something}, {}) != []
        assert differences({}, {KEY: something}) != []


def test_gauges_are_compared_in_all_figures() -> None:
    """If the other side has them; a plain number is compared with the last value."""
    assert compared(gauge(), gauge()) == []
    assert compared(gauge(), 1.0) == []
    assert compared(gauge(), 2.0) != []
    for other in (gauge(last=2.0), gauge(count=3), gauge(total=4.0), gauge(low=0.0)):
        assert compared(gauge(), other) != []
    assert "count: expected 2, got 3" in compared(gauge(), gauge(count=3))[0]


def test_distributions_are_compared_in_count_and_sum() -> None:
    """Beside the counts by bound."""
    assert (
        "sum: expected 2.0, got 3.0"
        in compared(distribution({1.0: 1}), distribution({1.0: 1}, total=3.0))[0]
    )


def test_top_lists_are_compared_in_order() -> None:
    """The first place that differs is named; so is a list that is too short or too long."""
    first, second = (9, "a", "b", "SELECT"), (8, "a", "b", "SELECT")
    assert compared([first, second], [first, second]) == []
    assert "at 0: expected (9," in compared([first, second], [second, first])[0]
    assert "expected 2 entries, got 1" in compared([first, second], [first])[0]
    assert compared([first], [first, second]) != []
    assert compared([first], 1) != []


def test_only_the_first_lines_are_shown() -> None:
    """Then how many there are beside them."""
    expected = {("m", "minute", (str(n),), n): n for n in range(1, 31)}
    lines = differences(expected, {})
    assert len(lines) == 21
    assert lines[-1] == "... and 10 more"
    assert len(differences(expected, {}, shown=30)) == 30


def test_a_long_value_is_cut() -> None:
    """A line stays readable."""
    (line,) = differences({KEY: {f"label {n}": n for n in range(100)}}, {})
    assert len(line) < 400
    assert line.endswith("...")


def test_percentiles_are_shown_as_ranks() -> None:
    """Not as thousands of values."""
    (line,) = differences({KEY: Percentiles(tuple(range(1000)))}, {})
    assert "'p50': 499" in line
