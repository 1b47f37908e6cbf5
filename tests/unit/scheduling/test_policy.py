"""A thread policy turns intent into a number, on whatever machine."""

import math
from collections.abc import Callable

import pytest

from penstock import ThreadPolicy
from penstock.errors import ConfigError
from penstock.scheduling import available_cores
from penstock.scheduling import policy as policy_module

FIXED = ThreadPolicy.fixed
IO_BOUND = ThreadPolicy.io_bound
CORES = ThreadPolicy.cpu_cores
WITH_BASE = ThreadPolicy.cpu_cores_with_base


@pytest.mark.parametrize(
    ("policy", "cores", "threads"),
    [
        (FIXED(1), 64, 1),
        (FIXED(4), 1, 4),
        (IO_BOUND(1), 64, 1),
        (IO_BOUND(4), 1, 4),
        (CORES(1.0), 8, 8),
        (CORES(0.5), 8, 4),
        (CORES(0.25), 8, 2),
        (CORES(2.0), 8, 16),
        (CORES(2), 3, 6),
        (WITH_BASE(1, 0.25), 8, 3),
        (WITH_BASE(1, 0.25), 2, 2),
        (WITH_BASE(0, 0.25), 8, 2),
        (WITH_BASE(2, 1), 4, 6),
    ],
)
def test_a_policy_resolves_to_its_number(policy: ThreadPolicy, cores: int, threads: int) -> None:
    """Each kind of policy gives the documented count for a given number of cores."""
    assert policy.resolve(cores=cores) == threads


@pytest.mark.parametrize(
    ("policy", "cores", "threads"),
    [
        (CORES(0.25), 2, 1),
        (CORES(0.25), 6, 2),
        (CORES(0.5), 3, 2),
        (CORES(0.5), 5, 3),
        (CORES(0.5), 9, 5),
        (CORES(0.3), 8, 2),
        (WITH_BASE(1, 0.25), 10, 4),
        (WITH_BASE(1, 0.25), 9, 3),
    ],
)
def test_a_share_of_the_cores_is_rounded_half_up(
    policy: ThreadPolicy, cores: int, threads: int
) -> None:
    """Halves go up, unlike with Python's round(), which sends 2.5 to 2."""
    assert policy.resolve(cores=cores) == threads


@pytest.mark.parametrize("policy", [CORES(0.01), WITH_BASE(0, 0.01), FIXED(1), IO_BOUND(1)])
@pytest.mark.parametrize("cores", [0, 1, 2, 8])
def test_a_policy_never_resolves_below_one(policy: ThreadPolicy, cores: int) -> None:
    """However small the share and the machine, there is a thread."""
    assert policy.resolve(cores=cores) >= 1


def test_without_a_number_the_cores_of_this_process_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Resolving for "here" asks how many cores this process may use."""
    monkeypatch.setattr(policy_module, "available_cores", lambda: 6)
    assert CORES(0.5).resolve() == 3


def test_a_process_has_at_least_one_core() -> None:
    """The number of usable cores is positive, whatever the machine."""
    assert available_cores() >= 1


def test_policies_are_equal_if_they_mean_the_same() -> None:
    """Equality, by which shared schedulers compare policies, goes by kind and numbers."""
    assert FIXED(4) == FIXED(4)
    assert CORES(1) == CORES(1.0)
    assert hash(WITH_BASE(1, 0.25)) == hash(WITH_BASE(1, 0.25))
    assert len({FIXED(4), IO_BOUND(4), FIXED(5), CORES(4), WITH_BASE(0, 4), WITH_BASE(4, 4)}) == 6


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (FIXED(4), "ThreadPolicy.fixed(4)"),
        (IO_BOUND(4), "ThreadPolicy.io_bound(4)"),
        (CORES(1), "ThreadPolicy.cpu_cores(1.0)"),
        (WITH_BASE(1, 0.25), "ThreadPolicy.cpu_cores_with_base(1, 0.25)"),
    ],
)
def test_the_repr_of_a_policy_is_how_it_was_written(policy: ThreadPolicy, shown: str) -> None:
    """A policy shows the call that makes it."""
    assert repr(policy) == shown


@pytest.mark.parametrize("count", [0, -1, 1.0, 1.5, True, False, "1", None, math.nan, math.inf])
@pytest.mark.parametrize("make", [FIXED, IO_BOUND], ids=["fixed", "io_bound"])
def test_a_count_must_be_a_whole_number_of_at_least_one(
    make: Callable[[object], ThreadPolicy], count: object
) -> None:
    """Anything else, bools and whole floats included, is refused by name."""
    with pytest.raises(ConfigError, match=r"\(count\) must be a whole number of at least 1, not "):
        make(count)


@pytest.mark.parametrize("base", [-1, 1.0, True, "1", None])
def test_a_base_must_be_a_whole_number_of_at_least_zero(base: object) -> None:
    """The base may be 0, but not negative, and not a float or bool."""
    with pytest.raises(ConfigError, match=r"\(base\) must be a whole number of at least 0, not "):
        WITH_BASE(base, 0.25)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0, 0.0, -0.5, math.nan, math.inf, -math.inf])
def test_a_share_must_be_finite_and_above_zero(share: float) -> None:
    """No thread per core, or endlessly many, is not a policy."""
    message = r"\(multiplier\) must be a finite number above 0, not "
    with pytest.raises(ConfigError, match=message):
        CORES(share)
    with pytest.raises(ConfigError, match=message):
        WITH_BASE(1, share)


@pytest.mark.parametrize("share", [True, "0.5", None, [1]])
def test_a_share_must_be_a_number(share: object) -> None:
    """What is no number is refused, bools included."""
    message = r"\(multiplier\) must be a finite number above 0, not "
    with pytest.raises(ConfigError, match=message):
        CORES(share)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        WITH_BASE(1, share)  # type: ignore[arg-type]
