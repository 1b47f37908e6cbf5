"""Values that cannot work are refused with the field's name and what would do."""

from __future__ import annotations

import math

import pytest

from penstock import BatchQueueConfig, BatchQueueManager, DrainBalancer, ThreadPolicy
from penstock._checks import finite_number, seconds, whole_number
from penstock.batchqueue.selectors import PartitionSelector
from penstock.errors import ConfigError

NO_NUMBERS = [None, "1", True, [1], math.nan, 10**400]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, -1, math.inf])
def test_a_finite_number_above_zero_is_asked_for(value: object) -> None:
    """Neither text nor bool nor what no float can hold will do."""
    with pytest.raises(ConfigError, match="field must be a finite number above 0, not"):
        finite_number("field", value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, -0.1])
def test_seconds_are_asked_for(value: object) -> None:
    """Infinity is a duration, NaN is none."""
    with pytest.raises(ConfigError, match="field must be seconds of at least 0, not"):
        seconds("field", value)
    assert seconds("field", math.inf) == math.inf


def test_seconds_may_have_to_be_above_zero() -> None:
    """Where 0 would make no sense the message says so."""
    with pytest.raises(ConfigError, match="field must be seconds above 0, not 0"):
        seconds("field", 0, above_zero=True)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1.0, 0])
def test_a_whole_number_is_asked_for(value: object) -> None:
    """A float is not a count, even if it is whole."""
    if value == 10**400:
        assert whole_number("field", value, least=1) == 10**400
        return
    with pytest.raises(ConfigError, match="field must be a whole number of at least 1, not"):
        whole_number("field", value, least=1)


def test_a_shared_scheduler_has_a_name() -> None:
    """Without one, queues that share nothing would share threads."""
    with pytest.raises(ConfigError, match=r"shared_scheduler must be \(name, ThreadPolicy\)"):
        BatchQueueConfig[int](shared_scheduler=("", ThreadPolicy.fixed(1)))


def test_a_ratio_to_skip_below_is_a_number() -> None:
    """A balancer that could never decide is not made."""
    with pytest.raises(ConfigError, match="skip_below"):
        DrainBalancer.throughput_weighted(math.nan)


def test_a_queue_is_made_from_a_configuration() -> None:
    """Anything else is named in the error."""
    with pytest.raises(ConfigError, match="must be a BatchQueueConfig, not None"):
        BatchQueueManager().create("q", None)  # type: ignore[arg-type]


def test_selectors_by_the_same_key_are_equal() -> None:
    """So that asking twice for one configuration does not look like two."""
    assert PartitionSelector.by_key(len) == PartitionSelector.by_key(len)
    assert PartitionSelector.by_key(len) != PartitionSelector.by_key(str)
