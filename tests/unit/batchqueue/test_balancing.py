"""Who should own which partition: the longest-processing-time rule and when to leave it."""

import pytest

from penstock import DrainBalancer
from penstock.batchqueue.balancing import UNOWNED, longest_first, thread_loads

BALANCER = DrainBalancer.throughput_weighted()


def test_the_worked_example() -> None:
    """Heaviest first, each to the least loaded thread; what stood still keeps its owner.

    40 to thread 0, 30 to 1, 20 to 2 (loads 40, 30, 20), 15 to 2 (35), 10 to 1 (40); the
    partition that was offered nothing stays with thread 2.
    """
    throughput = [40, 10, 0, 30, 20, 15]
    owners = [0, 0, 2, 0, 1, 0]
    assert longest_first(throughput, owners, threads=3) == [0, 1, 2, 1, 2, 2]
    assert BALANCER.assign(throughput, owners, threads=3) == [0, 1, 2, 1, 2, 2]


def test_ties_go_to_the_lowest_index() -> None:
    """Equal partitions are placed in their order, on equal threads from the first on."""
    assert longest_first([5, 5, 5, 5], owners=[1, 1, 1, 1], threads=2) == [0, 1, 0, 1]
    assert longest_first([1, 9, 9], owners=[0, 0, 0], threads=3) == [2, 0, 1]


def test_a_partition_that_nobody_owns_and_nothing_came_to_stays_so() -> None:
    """Zero throughput keeps the owner, also if that is none."""
    assert longest_first([0, 3], owners=[UNOWNED, 0], threads=2) == [UNOWNED, 0]


def test_the_load_of_a_thread_is_the_sum_of_its_partitions() -> None:
    """Threads without a partition have none; partitions without an owner count for nobody."""
    assert thread_loads([1, 2, 4, 8], owners=[2, 0, 2, UNOWNED], threads=3) == [2, 0, 5]


@pytest.mark.parametrize(
    ("heavy", "light", "moves"),
    [
        (100, 100, False),
        (114, 100, False),
        (115, 100, True),
        (116, 100, True),
        (22, 20, False),
        (23, 20, True),
    ],
)
def test_a_ratio_below_1_15_is_left_alone(heavy: int, light: int, moves: bool) -> None:  # noqa: FBT001 - a column
    """Exactly 1.15 is enough to act; anything below is not."""
    throughput = [heavy - 2, 1, 1, light]
    owners = [0, 0, 0, 1]
    assert (BALANCER.assign(throughput, owners, threads=2) is not None) == moves


def test_a_thread_with_nothing_to_do_is_always_worth_a_move() -> None:
    """With a minimum of 0 there is no ratio, and the load is spread."""
    assert BALANCER.assign([3, 2, 2], owners=[0, 0, 0], threads=2) == [0, 1, 1]


def test_without_throughput_nothing_moves() -> None:
    """An idle queue is not rearranged."""
    assert BALANCER.assign([0, 0], owners=[0, 0], threads=2) is None


@pytest.mark.parametrize("threads", [2, 3])
def test_a_single_hot_partition_is_left_alone(threads: int) -> None:
    """One partition cannot be split, so moving it about buys nothing."""
    assert BALANCER.assign([1000, 0, 0], owners=[1, 0, 1], threads=threads) is None


def test_a_partition_hotter_than_all_the_rest_is_left_alone() -> None:
    """Nothing is moved unless the heaviest thread gets lighter by it."""
    assert BALANCER.assign([1000, 10, 20], owners=[0, 1, 1], threads=2) is None
    assert BALANCER.assign([1000, 10, 20], owners=[0, 0, 1], threads=2) == [0, 1, 1]


def test_the_skip_ratio_can_be_chosen() -> None:
    """The seeds' first draft left things alone below 1.5."""
    patient = DrainBalancer.throughput_weighted(skip_below=1.5)
    throughput, owners = [100, 24, 24, 100], [0, 0, 0, 1]
    assert BALANCER.assign(throughput, owners, threads=2) is not None
    assert patient.assign(throughput, owners, threads=2) is None


def test_balancers_are_values() -> None:
    """Configurations with the same balancer are equal."""
    assert DrainBalancer.throughput_weighted() == DrainBalancer.throughput_weighted(1.15)
    assert DrainBalancer.throughput_weighted() != DrainBalancer.throughput_weighted(1.5)


def test_the_owners_given_are_not_changed() -> None:
    """A plan is a new list."""
    owners = [0, 0]
    longest_first([1, 1], owners, threads=2)
    assert owners == [0, 0]
