"""The arithmetic of every function, against numbers that were worked out by hand."""

import math
from collections import Counter
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.metrics.functions import (
    FUNCTIONS,
    MAX_LABELS,
    METER_FUNCTIONS,
    RANKS,
    State,
    Value,
    percentile_slot,
    percentile_value,
)

HOUR, DAY = 60, 1440
PATIENT = settings(deadline=None)  # the machine may be busy with something else

whole = st.integers(-(2**40), 2**40)
# Whole numbers as floats: their sums are exact, so that grouping must not matter at all.
real = whole.map(float)
labels = st.sampled_from(["a", "b", "c", "zero", "-1", "7"])
readings = st.one_of(st.just((None, None)), st.tuples(real, st.integers(-(2**62), 2**62)))


@st.composite
def states(draw: st.DrawFn) -> State:
    """Draw a state with any of its parts set, corrections below zero included."""
    last, last_at = draw(readings)
    return State(
        count=draw(st.integers(0, 2**40)),
        total=draw(whole),
        base=draw(whole),
        real=draw(real),
        low=draw(st.none() | real),
        high=draw(st.none() | real),
        last=last,
        last_at=last_at,
        slots=draw(st.dictionaries(labels, whole.filter(bool))),
        sums=draw(st.dictionaries(labels, real)),
    )


def value_of(function: str, state: State, minutes: int = 1) -> Value:
    """Return the final value of a state."""
    return FUNCTIONS[function].value(state, minutes)


def percentiles(values: Sequence[int]) -> dict[str, float]:
    """Return the percentiles of *values* as the function computes them."""
    slots = Counter(map(percentile_slot, values))
    found = value_of("percentile2", State(count=len(values), slots=slots))
    assert isinstance(found, dict)
    return dict(found)


def exact_percentile(values: Sequence[int], rank: int) -> int:
    """Return the value at *rank*: the floor(n * rank / 100 + 0.5)-th smallest."""
    return sorted(values)[math.floor(len(values) * rank / 100 + 0.5) - 1]


@pytest.mark.parametrize(
    ("function", "state", "minutes", "expected"),
    [
        # 10 + 20 + 31 = 61, and 61 / 3 is 20 and a bit
        ("longAvg", State(count=3, total=61), 1, 20),
        # -7 / 2 is -3.5, cut towards zero as Java does
        ("longAvg", State(count=2, total=-7), 1, -3),
        ("longAvg", State(), 1, 0),
        # the mean of 1.5 and 2.25
        ("doubleAvg", State(count=2, real=3.75), 1, 1.875),
        ("doubleAvg", State(), 1, 0.0),
        ("sum", State(count=3, total=61), 1, 61),
        ("count", State(count=3, total=61), 1, 3),
        ("max", State(count=2, low=-9.0, high=-5.0), 1, -5),
        ("max", State(), 1, 0),
        ("min", State(count=2, low=-9.0, high=-5.0), 1, -9),
        ("min", State(), 1, 0),
        ("maxDouble", State(count=2, low=0.25, high=0.5), 1, 0.5),
        ("minDouble", State(count=2, low=0.25, high=0.5), 1, 0.25),
        ("maxDouble", State(), 1, 0.0),
        ("minDouble", State(), 1, 0.0),
        ("cpm", State(count=125), 1, 125),
        # 125 calls in an hour are 2 per minute, in a day less than one
        ("cpm", State(count=125), HOUR, 2),
        ("cpm", State(count=125), DAY, 0),
        # 2 of 3: 66.66 %
        ("percent", State(count=3, total=2), 1, 6666),
        ("percent", State(count=3, total=3), 1, 10000),
        ("percent", State(), 1, 0),
        # 1 to 3: 33.33 %; a rate may exceed 100 %
        ("rate", State(count=9, total=1, base=3), 1, 3333),
        ("rate", State(count=9, total=3, base=2), 1, 15000),
        ("rate", State(count=9, total=3, base=0), 1, 0),
        # 3 satisfied, 2 tolerating, 1 frustrated: (3 + 2 / 2) / 6 = 0.6666
        ("apdex", State(count=6, total=2 * 3 + 2), 1, 6666),
        ("apdex", State(count=6, total=2 * 6), 1, 10000),
        ("apdex", State(), 1, 0),
        ("histogram", State(slots={"1000": 1, "0": 2, "200": 3}), 1, {"0": 2, "200": 3, "1000": 1}),
        ("labelCount", State(slots={"GET": 2, "PUT": 5}), 1, {"PUT": 5, "GET": 2}),
        # 7 / 2 is 3; 1 / 4 would be 0, which is told as 1; nothing stays 0
        (
            "labelAvg",
            State(slots={"a": 2, "b": 4, "c": 9}, sums={"a": 7.0, "b": 1.0, "c": 0.0}),
            1,
            {"c": 0, "b": 1, "a": 3},
        ),
        ("gauge", State(count=2, real=3.0, last=2.5, last_at=7), 1, 2.5),
        ("gauge", State(), 1, 0.0),
        ("counter", State(count=2, real=3.5), 1, 3.5),
        (
            "distribution",
            State(slots={"inf": 1, "10": 2, "2.5": 3}),
            1,
            {"2.5": 3, "10": 2, "inf": 1},
        ),
    ],
)
def test_every_function_computes_what_was_worked_out_by_hand(
    function: str, state: State, minutes: int, expected: Value
) -> None:
    """A state becomes the value that the same numbers give on paper, of the same type."""
    found = value_of(function, state, minutes)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)  # in the order in which they are shown


def test_every_function_is_worked_out_above_or_below() -> None:
    """A function that is added gets its numbers."""
    mark = test_every_function_computes_what_was_worked_out_by_hand.pytestmark[0]  # type: ignore[attr-defined]
    worked_out = {case[0] for case in mark.args[1]}
    assert set(FUNCTIONS) == worked_out | {"percentile", "percentile2"}
    assert set(METER_FUNCTIONS) < set(FUNCTIONS)


def test_percentiles_of_one_to_a_hundred() -> None:
    """The 50th, 75th, ... smallest value, as the middle of the slot that it lies in."""
    found = percentiles(range(1, 101))
    # 50 is 2 ** 5.64, so it lies in slot 45, from 2 ** (45 / 8) = 49.4 to 53.8; and so on.
    slots = {"p50": 45, "p75": 49, "p90": 51, "p95": 52, "p99": 53}
    assert found == {name: 2 ** ((slot + 0.5) / 8) for name, slot in slots.items()}


def test_percentile_and_percentile2_are_the_same() -> None:
    """The older name computes the same."""
    state = State(count=3, slots={"zero": 1, "7": 2})
    assert value_of("percentile", state) == value_of("percentile2", state)


@PATIENT
@given(st.lists(st.integers(1, 2**62), min_size=1, max_size=300))
def test_percentiles_are_within_four_and_a_half_percent(values: list[int]) -> None:
    """Whatever the values, each percentile is near the value that is exactly at its rank."""
    found = percentiles(values)
    assert list(found) == [f"p{rank}" for rank in RANKS]
    for rank in RANKS:
        assert found[f"p{rank}"] == pytest.approx(exact_percentile(values, rank), rel=0.045)


@PATIENT
@given(st.integers(1, 2**63 - 1))
def test_a_slot_holds_the_values_between_its_bounds(value: int) -> None:
    """Slot s is above 2 ** (s / 8) and up to 2 ** ((s + 1) / 8), exactly, however large."""
    slot = int(percentile_slot(value))
    assert value**8 <= 2 ** (slot + 1)
    assert slot == -1 or value**8 > 2**slot


@pytest.mark.parametrize(("value", "slot"), [(0, "zero"), (-5, "zero"), (1, "-1"), (2, "7")])
def test_small_values_have_slots_of_their_own(value: int, slot: str) -> None:
    """Zero and less is one slot; 1 and 2 are the ends of theirs."""
    assert percentile_slot(value) == slot


def test_zeros_are_told_as_zeros() -> None:
    """Values of 0 are neither lost nor made larger, and nothing at all is 0 as well."""
    assert set(percentiles([0, 0, 0]).values()) == {0.0}
    assert set(percentiles([]).values()) == {0.0}
    assert percentile_value("zero") == 0.0
    # Four of ten are zero: the median is not, since the fifth smallest value is 8.
    found = percentiles([0] * 4 + [8] * 6)
    assert found["p50"] == pytest.approx(8, rel=0.045)
    assert percentiles([0] * 5 + [8] * 5)["p50"] == 0.0


@PATIENT
@given(states(), states(), states())
def test_states_combine_in_any_order_and_grouping(one: State, two: State, three: State) -> None:
    """Combining is associative and commutative, and an empty state changes nothing."""
    assert one.combine(two) == two.combine(one)
    assert one.combine(two).combine(three) == one.combine(two.combine(three))
    assert one.combine(State()) == one


def test_combining_adds_and_keeps_extremes_and_the_newest() -> None:
    """Every part of a state combines in its own way."""
    one = State(2, 30, 5, 0.5, 3.0, 9.0, 7.0, 100, {"a": 1, "b": 2}, {"a": 1.5})
    two = State(1, 12, 1, 0.25, 1.0, 4.0, 8.0, 90, {"b": 3, "c": 4}, {"a": 2.0, "c": 1.0})
    assert one.combine(two) == State(
        count=3,
        total=42,
        base=6,
        real=0.75,
        low=1.0,
        high=9.0,
        last=7.0,
        last_at=100,
        slots={"a": 1, "b": 5, "c": 4},
        sums={"a": 3.5, "c": 1.0},
    )


def test_a_correction_below_zero_lives_until_it_meets_its_sum() -> None:
    """What is taken away before it was there is not forgotten; a slot that is empty is gone."""
    correction = State(slots={"10": -2}).combine(State(slots={"10": 1}))
    assert correction.slots == {"10": -1}
    assert correction.combine(State(slots={"10": 5})).slots == {"10": 4}
    assert correction.combine(State(slots={"10": 1})).slots == {}


def test_a_reading_before_1970_counts() -> None:
    """Any reading is newer than none."""
    assert State(last=4.0, last_at=-5).combine(State()).last == 4.0


def test_of_two_readings_at_the_same_time_the_larger_stands() -> None:
    """Which of the two comes first must not matter."""
    one, two = State(last=4.0, last_at=7), State(last=5.0, last_at=7)
    assert one.combine(two).last == two.combine(one).last == 5.0


def many_labels() -> State:
    """Return a state with three labels too many, the rarest of them called like the remainder."""
    counts = {f"label {number:02}": 100 - number for number in range(MAX_LABELS + 2)}
    sums = {label: float(count * 10) for label, count in counts.items()}
    return State(slots={**counts, "(other)": 3}, sums={**sums, "(other)": 3.0})


def test_labels_beyond_the_limit_are_told_as_one() -> None:
    """The 50 most frequent labels keep their name; the others are counted, not lost."""
    state = many_labels()
    found = value_of("labelCount", state)
    assert isinstance(found, dict)
    assert len(found) == MAX_LABELS + 1
    assert found["label 00"] == 100
    assert found["(other)"] == (100 - 50) + (100 - 51) + 3
    assert sum(found.values()) == sum(state.slots.values())


def test_the_average_of_the_labels_beyond_the_limit_is_one_of_their_rows() -> None:
    """The remainder's average is that of all its rows together."""
    found = value_of("labelAvg", many_labels())
    assert isinstance(found, dict)
    assert found["label 00"] == 10
    assert found["(other)"] == (500 + 490 + 3) // (50 + 49 + 3)


def test_a_label_that_is_called_like_the_remainder_is_not_overwritten() -> None:
    """A frequent label of that name and the remainder are told together."""
    counts = {f"label {number:02}": 10 for number in range(MAX_LABELS)}
    found = value_of("labelCount", State(slots={"(other)": 50, **counts}))
    assert isinstance(found, dict)
    assert found["(other)"] == 50 + 10
    assert sum(found.values()) == 50 + 10 * MAX_LABELS
