"""A partition policy turns threads and handlers into a number of partitions."""

import math
from collections.abc import Callable

import pytest

from penstock import BufferStrategy, PartitionPolicy
from penstock.errors import ConfigError

FIXED = PartitionPolicy.fixed
MULTIPLY = PartitionPolicy.thread_multiply
ADAPTIVE = PartitionPolicy.adaptive


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("handlers", [0.0, 500.0])
def test_fixed_is_what_it_says(threads: int, handlers: float) -> None:
    """Neither threads nor handlers change a fixed count."""
    assert FIXED(4).resolve(threads, handlers) == 4


def test_thread_multiply_goes_by_the_threads_only() -> None:
    """So many partitions for each thread, however many handlers there are."""
    assert MULTIPLY(2).resolve(threads=8) == 16
    assert MULTIPLY(2).resolve(threads=8, weighted_handlers=500) == 16
    assert MULTIPLY(1).resolve(threads=1) == 1


@pytest.mark.parametrize(
    ("threads", "handlers", "partitions"),
    [
        (8, 0, 8),
        (1, 0, 1),
        (0, 0, 1),
        (8, 1, 1),
        (8, 100, 100),
        (8, 199, 199),
        (8, 200, 200),
        (8, 201, 200),
        (8, 202, 201),
        (8, 500, 350),
        (4, 500, 300),
        (1, 25, 25),
        (1, 27, 26),
    ],
)
def test_adaptive_is_one_to_one_and_then_one_to_two(
    threads: int, handlers: int, partitions: int
) -> None:
    """One per handler up to 25 per thread, half of what comes on top, the threads with none."""
    assert ADAPTIVE().resolve(threads, handlers) == partitions


def test_the_multiplier_moves_the_threshold() -> None:
    """With 50 per thread, 8 threads give 400 handlers a partition each."""
    assert ADAPTIVE(50).resolve(8, 400) == 400
    assert ADAPTIVE(multiplier=50).resolve(8, 500) == 450


@pytest.mark.parametrize(
    ("weighted", "partitions"),
    [(0.05, 1), (1.0, 1), (1.05, 2), (99.01, 100), (200.5, 200), (201.5, 201)],
)
def test_a_fraction_of_a_handler_counts_as_a_whole_one(weighted: float, partitions: int) -> None:
    """The sum of the weights is rounded up."""
    assert ADAPTIVE().resolve(8, weighted) == partitions


@pytest.mark.parametrize("count", [20, 60, 140, 1_000])
def test_noise_in_the_sum_of_the_weights_costs_no_partition(count: int) -> None:
    """Twenty weights of 0.05 are one handler, however floats add up."""
    total = 0.0
    for _ in range(count):
        total += 0.05
    assert ADAPTIVE().resolve(8, total) == count // 20


def test_only_adaptive_grows() -> None:
    """The other two are settled when the queue is made."""
    assert [policy.grows for policy in (FIXED(1), MULTIPLY(1), ADAPTIVE())] == [False, False, True]


def test_partition_policies_are_values() -> None:
    """Equality and hash go by kind and number."""
    assert ADAPTIVE() == ADAPTIVE(25)
    assert len({FIXED(2), MULTIPLY(2), ADAPTIVE(2), FIXED(3)}) == 4


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (FIXED(4), "PartitionPolicy.fixed(4)"),
        (MULTIPLY(2), "PartitionPolicy.thread_multiply(2)"),
        (ADAPTIVE(), "PartitionPolicy.adaptive(multiplier=25)"),
    ],
)
def test_the_repr_of_a_partition_policy_is_how_it_was_written(
    policy: PartitionPolicy, shown: str
) -> None:
    """A policy shows the call that makes it."""
    assert repr(policy) == shown


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "2", None, math.nan, math.inf])
@pytest.mark.parametrize("make", [FIXED, MULTIPLY, ADAPTIVE])
def test_the_number_of_a_policy_must_be_whole_and_at_least_one(
    make: Callable[[object], PartitionPolicy], number: object
) -> None:
    """Anything else, bools included, is refused by name."""
    message = r"PartitionPolicy\.\w+.* must be a whole number of at least 1, not "
    with pytest.raises(ConfigError, match=message):
        make(number)


def test_there_are_three_strategies() -> None:
    """Wait, refuse, or evict."""
    assert [s.name for s in BufferStrategy] == ["BLOCKING", "IF_POSSIBLE", "DROP_OLDEST"]
