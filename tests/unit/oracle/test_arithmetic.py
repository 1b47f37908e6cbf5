"""Each function of the oracle, on samples that a person can add up."""

import pytest

from tests.oracle.arithmetic import (
    OracleValue,
    Percentiles,
    Sample,
    Setting,
    final_value,
    quotient,
)

HOUR = Setting(minutes=60)


def value(function: str, *samples: Sample, setting: Setting | None = None) -> OracleValue:
    """Return the final value of some samples, of one minute unless told."""
    return final_value(function, samples, setting or Setting())


@pytest.mark.parametrize(
    ("dividend", "divisor", "expected"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (0, 5, 0), (-6, 3, -2)],
)
def test_whole_division_rounds_towards_zero(dividend: int, divisor: int, expected: int) -> None:
    """As in Java and SQL; Python's own rounds down."""
    assert quotient(dividend, divisor) == expected


def test_averages() -> None:
    """The whole average, `longAvg`, rounds towards zero and is exact where no float is."""
    assert value("longAvg", (1,), (2,), (4,)) == 2
    assert value("longAvg", (-1,), (-2,)) == -1
    assert value("longAvg", (2**60 + 1,), (2**60 + 1,)) == 2**60 + 1
    assert value("doubleAvg", (0.5,), (0.25,)) == 0.375


def test_sums_counts_and_extremes() -> None:
    """The largest of negative values is negative."""
    assert value("sum", (1,), (-2,), (2**62,)) == 2**62 - 1
    assert value("count", (None,), (None,)) == 2
    assert (value("max", (-5,), (-3,)), value("min", (-5,), (3,))) == (-3, -5)
    assert (value("maxDouble", (-0.5,), (-1.5,)), value("minDouble", (0.5,), (1.5,))) == (-0.5, 0.5)


def test_calls_per_minute_depend_on_the_bucket() -> None:
    """119 calls in an hour are 1 in a minute, and 119 in a minute are 119."""
    calls = [(None,)] * 119
    assert value("cpm", *calls) == 119
    assert value("cpm", *calls, setting=HOUR) == 1
    assert value("cpm", *calls, setting=Setting(minutes=1440)) == 0


def test_percent_is_in_hundredths_of_a_percent() -> None:
    """Two of three are 6666."""
    assert value("percent", (None, True), (None, True), (None, False)) == 6666
    assert value("percent", (None, False)) == 0


def test_rate_divides_two_counts() -> None:
    """One against three is 3333, five against two 25000, anything against none 0."""
    assert value("rate", (None, True, True), (None, False, True), (None, False, True)) == 3333
    many = [(None, True, False)] * 3 + [(None, True, True)] * 2
    assert value("rate", *many) == 25_000
    assert value("rate", (None, True, False)) == 0


def test_apdex_counts_the_tolerated_half() -> None:
    """Up to T satisfied, up to 4T tolerated, beyond that or failed frustrated."""
    calls = [(500, "a", True), (501, "a", True), (2000, "a", True), (2001, "a", True)]
    assert value("apdex", *calls) == (1 + 2 * 0.5) / 4 * 10_000
    assert value("apdex", (1, "a", False)) == 0
    assert value("apdex", (1, "a", True), (501, "a", True), (9999, "a", True)) == 5000
    assert value("apdex", (1, "a", True), (1, "a", True), (9999, "a", True)) == 6666


def test_apdex_thresholds_are_per_name() -> None:
    """A name without a threshold, and null, have the default."""
    setting = Setting(apdex_default=10, apdex_thresholds={"slow": 1000})
    assert value("apdex", (1000, "slow", True), setting=setting) == 10_000
    assert value("apdex", (11, "fast", True), setting=setting) == 5000
    assert value("apdex", (11, None, True), setting=setting) == 5000


def test_percentiles_are_exact_ranks() -> None:
    """The place is floor(total * rank / 100 + 0.5), at least the first."""
    hundred = Percentiles.of(range(100, 0, -1))
    assert [hundred.at(rank) for rank in (50, 75, 90, 95, 99)] == [50, 75, 90, 95, 99]
    three = Percentiles.of([30, 10, 20])
    # 1.5 + 0.5 -> 2; 2.25 + 0.5 -> 2; 2.7 + 0.5 -> 3
    assert [three.at(rank) for rank in (50, 75, 90, 95, 99)] == [20, 20, 30, 30, 30]
    assert Percentiles.of([7]).at(50) == 7
    assert Percentiles.of([-4]).at(99) == 0
    # A hundred thousand and one: the place is not what a rounded float would make of it.
    assert Percentiles.of(range(100_001)).at(99) == 99_000


def test_at_least_the_first_value_has_a_rank() -> None:
    """A place of 0 is the first."""
    assert Percentiles.of([7, 8]).at(1) == 7


@pytest.mark.parametrize("function", ["percentile", "percentile2"])
def test_both_percentile_functions_are_the_same(function: str) -> None:
    """The precision is accepted and has no effect."""
    assert value(function, (3, 10), (1, 10)) == Percentiles((1, 3))


def test_histogram_counts_by_lower_bound() -> None:
    """The last slot takes all that is larger."""
    samples = [(latency, 100, 3) for latency in (0, 99, 100, 299, 300, 399, 400, 5000)]
    assert value("histogram", *samples) == {"0": 2, "100": 1, "200": 1, "300": 4}


def test_labels_are_counted() -> None:
    """A row without a label counts for none."""
    assert value("labelCount", (None, "a"), (None, "b"), (None, "a"), (None, None)) == {
        "a": 2,
        "b": 1,
    }
    assert value("labelCount", (None, None)) == {}
    assert value("labelCount", (None, True), (None, 404)) == {"true": 1, "404": 1}


def test_labels_beyond_the_fiftieth_are_one() -> None:
    """The largest stay, of equal ones the first by name; the others are counted together."""
    labels = [f"l{number:02}" for number in range(52)]
    counted = value("labelCount", *[(None, label) for label in (*labels, "l51", "l51")])
    assert isinstance(counted, dict)
    assert counted == {"l51": 3, **dict.fromkeys(labels[:49], 1), "(other)": 2}


def test_labels_are_averaged() -> None:
    """Whole averages by label; what would be shown as 0 though it is more is 1."""
    samples = [(3, "a"), (4, "a"), (0, "b"), (1, "c"), (0, "c"), (0, "c"), (9, None)]
    assert value("labelAvg", *samples) == {"a": 3, "b": 0, "c": 1}
    assert value("labelAvg", (-3, "a"), (0, "a")) == {"a": -1}


def test_averages_of_labels_beyond_the_fiftieth_are_one() -> None:
    """Those with most rows stay, whatever their averages; the rows of all others are averaged."""
    samples = [(1000, f"l{number:02}") for number in range(50)]
    averaged = value("labelAvg", *samples, (500, "l50"), (0, "l50"), (40, "l51"))
    assert isinstance(averaged, dict)
    assert averaged == {
        "l50": 250,
        **dict.fromkeys([f"l{number:02}" for number in range(49)], 1000),
        "(other)": 520,
    }


def test_a_label_may_have_the_name_of_the_remainder() -> None:
    """What is beyond the fiftieth is added to it, so nothing is lost."""
    labels = [f"l{number:02}" for number in range(50)]
    counted = value("labelCount", *[(None, label) for label in (*labels, "(other)")])
    assert counted == {**dict.fromkeys(labels[:49], 1), "(other)": 2}
