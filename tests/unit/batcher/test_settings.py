"""Settings cannot exist invalid."""

import dataclasses
import math
from typing import Any

import pytest

from penstock.batcher import BatchSettings
from penstock.errors import ConfigError
from penstock.scheduling import ThreadPolicy


def test_the_defaults_are_usable() -> None:
    """Settings need no argument, and variants are made with replace."""
    settings = BatchSettings()
    assert dataclasses.replace(settings, max_batch_size=5).max_batch_size == 5
    assert settings.close_timeout == 30.0


@pytest.mark.srs("42_004")
@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "3"])
def test_the_number_of_pending_batches_must_be_at_least_one(value: Any) -> None:
    """A batcher that may have no batch pending could never send one."""
    with pytest.raises(ConfigError, match="max_pending_batches must be a whole number"):
        BatchSettings(max_pending_batches=value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_batch_size", 0),
        ("min_batch_size", 0),
        ("capacity", 0),
        ("min_wait_time", -0.1),
        ("min_wait_time", math.nan),
        ("min_wait_time", True),
        ("enqueue_timeout", -1),
        ("close_timeout", "5"),
        ("oversize", "split"),
        ("on_async_error", "stop"),
        ("sizer", 3),
        ("shared_scheduler", "name"),
        ("shared_scheduler", ("name", 3)),
    ],
)
def test_a_value_that_cannot_work_is_refused(field: str, value: Any) -> None:
    """The message names the field and the value."""
    with pytest.raises(ConfigError, match=field) as caught:
        BatchSettings(**{field: value})
    assert repr(value) in str(caught.value)


def test_a_smallest_batch_above_the_largest_is_refused() -> None:
    """No batch could ever reach it, so everything would wait for its age."""
    with pytest.raises(ConfigError, match=r"min_batch_size \(11\) must not be above"):
        BatchSettings(min_batch_size=11, max_batch_size=10)


def test_everything_can_be_said() -> None:
    """All fields together make valid settings."""
    BatchSettings(
        max_pending_batches=4,
        max_batch_size=1 << 20,
        min_batch_size=64 << 10,
        min_wait_time=0.2,
        capacity=1 << 22,
        enqueue_timeout=0,
        oversize="reject",
        on_async_error="fault",
        close_timeout=math.inf,
        sizer=len,
        shared_scheduler=("shared", ThreadPolicy.fixed(2)),
    )
