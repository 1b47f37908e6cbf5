"""A configuration cannot exist unless it can work."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest

from penstock import (
    BatchQueueConfig,
    BufferStrategy,
    DrainBalancer,
    PartitionPolicy,
    PartitionSelector,
    ThreadPolicy,
)
from penstock.errors import ConfigError
from penstock.testing import RecordingHandler

ONE = ThreadPolicy.fixed(1)
BALANCER = DrainBalancer.throughput_weighted()


def make(**settings: object) -> BatchQueueConfig[str]:
    """Return a configuration with one thread and *settings*."""
    return BatchQueueConfig(**{"threads": ONE, **settings})  # type: ignore[arg-type]


def test_the_defaults() -> None:
    """What nobody asked for is what the seeds say."""
    config = make()
    assert config.partitions == PartitionPolicy.fixed(1)
    assert (config.buffer_size, config.strategy) == (10_000, BufferStrategy.BLOCKING)
    assert (config.min_idle, config.max_idle) == (0.001, 0.05)
    assert (config.balancer, config.rebalance_interval) == (None, 0.0)
    assert (config.selector, config.consumer, config.error_handler) == (None, None, None)
    assert (config.handover_timeout, config.shutdown_timeout) == (1.0, 5.0)


def test_a_configuration_is_frozen_and_written_by_keyword() -> None:
    """Nothing can be changed, or mixed up by position."""
    with pytest.raises(FrozenInstanceError):
        make().buffer_size = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        BatchQueueConfig(ONE)  # type: ignore[call-arg]


def test_a_variant_is_checked_too() -> None:
    """dataclasses.replace makes a new configuration, or none."""
    assert replace(make(), buffer_size=5).buffer_size == 5
    with pytest.raises(ConfigError, match="buffer_size"):
        replace(make(), buffer_size=0)


def test_a_queue_has_threads_or_shares_them() -> None:
    """Exactly one of the two must be given; the message says which was not."""
    BatchQueueConfig(threads=ONE)
    BatchQueueConfig(shared_scheduler=("io", ONE))
    with pytest.raises(ConfigError, match=r"exactly one of threads .* neither was"):
        BatchQueueConfig()
    with pytest.raises(ConfigError, match=r"exactly one of threads .* both was"):
        BatchQueueConfig(threads=ONE, shared_scheduler=("io", ONE))


@pytest.mark.parametrize(
    "wrong", ["io", ("io",), ("io", 1), (1, ONE), ("io", None), ("io", ONE, 1), 7]
)
def test_a_shared_scheduler_is_a_name_and_a_policy(wrong: object) -> None:
    """Nothing else will do; the policy cannot be left out."""
    with pytest.raises(ConfigError, match=r"shared_scheduler must be \(name, ThreadPolicy\), not "):
        BatchQueueConfig(shared_scheduler=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("threads", 4, "ThreadPolicy"),
        ("partitions", 4, "PartitionPolicy"),
        ("partitions", None, "PartitionPolicy"),
        ("strategy", "blocking", "BufferStrategy"),
        ("strategy", None, "BufferStrategy"),
        ("balancer", "throughput", "DrainBalancer"),
    ],
)
def test_policies_are_given_as_policies(field: str, value: object, kind: str) -> None:
    """A bare number or name is refused, and the message names the type that is wanted."""
    with pytest.raises(ConfigError, match=rf"^{field} must be a {kind}, not {value!r}$"):
        make(**{field: value})


@pytest.mark.parametrize("size", [0, -1, 1.0, True, "10", None, math.inf])
def test_the_buffer_size_is_a_whole_number_of_at_least_one(size: object) -> None:
    """No float and no bool."""
    with pytest.raises(ConfigError, match=r"^buffer_size must be a whole number of at least 1, "):
        make(buffer_size=size)


@pytest.mark.parametrize("field", ["min_idle", "max_idle"])
@pytest.mark.parametrize("value", [0, -0.1, math.nan, True, "1", None])
def test_idle_times_are_seconds_above_zero(field: str, value: object) -> None:
    """Zero would mean busy waiting."""
    with pytest.raises(ConfigError, match=f"^{field} must be seconds above 0, not "):
        make(**{field: value})


@pytest.mark.parametrize("field", ["handover_timeout", "shutdown_timeout"])
@pytest.mark.parametrize("value", [-0.1, -math.inf, math.nan, True, "1", None])
def test_timeouts_are_seconds_of_at_least_zero(field: str, value: object) -> None:
    """Zero only looks; a negative time makes no sense."""
    with pytest.raises(ConfigError, match=f"^{field} must be seconds of at least 0, not "):
        make(**{field: value})


@pytest.mark.parametrize("value", [0, 0.0, 3, math.inf])
def test_a_timeout_may_be_zero_whole_or_endless(value: float) -> None:
    """Ints are seconds as well, and infinity means as long as it takes."""
    assert make(shutdown_timeout=value).shutdown_timeout == value


def test_the_longest_idle_time_is_not_below_the_shortest() -> None:
    """Equal is allowed: a constant gap."""
    assert make(min_idle=0.1, max_idle=0.1).max_idle == 0.1
    with pytest.raises(ConfigError, match=r"max_idle \(0.05\) must not be below min_idle \(1\)"):
        make(min_idle=1)


@pytest.mark.parametrize("interval", [-1.0, math.nan, True, "10"])
def test_a_rebalance_interval_is_seconds(interval: object) -> None:
    """With a balancer, the interval must make sense."""
    with pytest.raises(ConfigError, match="rebalance_interval must be seconds of at least 0"):
        make(balancer=BALANCER, rebalance_interval=interval)


@pytest.mark.parametrize(
    "settings",
    [
        {"balancer": BALANCER},
        {"balancer": BALANCER, "rebalance_interval": 0},
        {"rebalance_interval": 10.0},
    ],
)
def test_a_balancer_and_its_interval_go_together(settings: dict[str, object]) -> None:
    """One without the other would silently do nothing."""
    with pytest.raises(ConfigError, match="balancer and rebalance_interval go together"):
        make(**settings)


def test_a_balancer_with_an_interval_is_accepted() -> None:
    """Also by a queue whose one thread will not use it."""
    assert make(balancer=BALANCER, rebalance_interval=10).balancer is BALANCER


def test_any_callable_becomes_a_selector() -> None:
    """What is stored is a PartitionSelector, so two configurations can be compared."""

    def first(_item: object, _partitions: int) -> int:
        return 0

    config = make(selector=first)
    assert isinstance(config.selector, PartitionSelector)
    assert config == make(selector=first)
    assert make(selector=PartitionSelector.round_robin()).selector is not None
    with pytest.raises(ConfigError, match="selector must be a PartitionSelector or callable"):
        make(selector=3)


@pytest.mark.parametrize("consumer", [RecordingHandler(), print, [].extend])
def test_a_consumer_is_an_object_or_a_callable(consumer: object) -> None:
    """It is kept as it was given."""
    assert make(consumer=consumer).consumer is consumer


@pytest.mark.parametrize("consumer", [3, "print", str])
def test_a_consumer_that_cannot_consume_is_refused(consumer: object) -> None:
    """The message names the field."""
    with pytest.raises(ConfigError, match=r"^consumer must be a HandlerConsumer"):
        make(consumer=consumer)


def test_an_error_handler_must_be_callable() -> None:
    """The message says with what it is called."""
    with pytest.raises(ConfigError, match=r"error_handler must be callable\(batch, error\), not 3"):
        make(error_handler=3)


def _other_selector(_item: object, _partitions: int) -> int:
    return 0


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda config: config, ()),
        (lambda config: replace(config, buffer_size=1), ("buffer_size",)),
        (lambda config: replace(config, selector=_other_selector), ("selector",)),
        (
            lambda config: replace(config, strategy=BufferStrategy.IF_POSSIBLE, max_idle=1.0),
            ("strategy", "max_idle"),
        ),
        (
            lambda config: replace(config, threads=None, shared_scheduler=("io", ONE)),
            ("threads", "shared_scheduler"),
        ),
    ],
)
def test_differences_name_the_fields(
    change: Callable[[BatchQueueConfig[str]], BatchQueueConfig[str]], names: tuple[str, ...]
) -> None:
    """Two configurations differ in what they ask for, in the order of the fields."""
    assert make().differences(change(make())) == names
