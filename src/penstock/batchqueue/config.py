"""What a queue is to be like; checked when it is written down, not when it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeAlias, TypeVar

from penstock._checks import seconds, whole_number
from penstock.batchqueue.balancing import DrainBalancer
from penstock.batchqueue.handlers import (
    Consumes,
    HandlerConsumer,
    QueueErrorHandler,
    consume_of,
)
from penstock.batchqueue.policies import BufferStrategy, PartitionPolicy
from penstock.batchqueue.selectors import PartitionSelector
from penstock.errors import ConfigError
from penstock.scheduling import ThreadPolicy

__all__ = ["BatchQueueConfig"]

T = TypeVar("T")
Handler: TypeAlias = HandlerConsumer[T] | Consumes[T] | Callable[[list[T]], object]
Selector: TypeAlias = PartitionSelector | Callable[[Any, int], int]


# Without slots: with them, BatchQueueConfig[Span](...) raises on Python 3.11 (a frozen,
# slotted dataclass refuses the attribute that typing wants to set on it in the wrong way).
@dataclass(frozen=True, kw_only=True)
class BatchQueueConfig(Generic[T]):
    """The settings of one queue. Times are seconds. Make variants with ``dataclasses.replace``.

    Exactly one of ``threads`` and ``shared_scheduler`` is given.
    """

    threads: ThreadPolicy | None = None
    """Drain threads of the queue's own."""
    shared_scheduler: tuple[str, ThreadPolicy] | None = None
    """The name of a scheduler shared with other queues; its threads, if this is the first use."""
    partitions: PartitionPolicy = PartitionPolicy.fixed(1)
    selector: Selector | None = None
    """Default: by type with handlers, round robin with a consumer."""
    buffer_size: int = 10_000
    """Slots per partition. May be exceeded by one item per producing thread."""
    strategy: BufferStrategy = BufferStrategy.BLOCKING
    consumer: Handler[T] | None = None
    """Gets every batch whole, of whatever types; without it, handlers are added by type."""
    error_handler: QueueErrorHandler[T] | None = None
    """Told of batches whose handler raised; without it they are logged."""
    min_idle: float = 0.001
    max_idle: float = 0.05
    """``on_idle`` comes min_idle after the last item, then at doubling gaps up to max_idle."""
    balancer: DrainBalancer | None = None
    rebalance_interval: float = 0.0
    """Both or neither. Without effect on a shared scheduler or a single thread."""
    handover_timeout: float = 1.0
    """How long a rebalance waits for busy threads before it is rolled back."""
    shutdown_timeout: float = 5.0
    """How long ``shutdown()`` may take when it is not told."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_scheduling(self)
        _check_numbers(self)
        if self.selector is not None:
            object.__setattr__(self, "selector", PartitionSelector.of(self.selector))
        if self.consumer is not None:
            consume_of(self.consumer, "consumer")

    def differences(self, other: BatchQueueConfig[Any]) -> tuple[str, ...]:
        """Return the names of the fields in which *other* asks for something else."""
        names = (f.name for f in fields(self))
        return tuple(n for n in names if getattr(self, n) != getattr(other, n))


_OPTIONAL: dict[str, type] = {
    "threads": ThreadPolicy,
    "balancer": DrainBalancer,
}
_REQUIRED: dict[str, type] = {"partitions": PartitionPolicy, "strategy": BufferStrategy}


def _check_types(config: BatchQueueConfig[Any]) -> None:
    for name, kind in {**_OPTIONAL, **_REQUIRED}.items():
        value = getattr(config, name)
        if isinstance(value, kind) or (value is None and name in _OPTIONAL):
            continue
        msg = f"{name} must be a {kind.__name__}, not {value!r}"
        raise ConfigError(msg)
    if config.error_handler is not None and not callable(config.error_handler):
        msg = f"error_handler must be callable(batch, error), not {config.error_handler!r}"
        raise ConfigError(msg)


def _check_scheduling(config: BatchQueueConfig[Any]) -> None:
    if (config.threads is None) == (config.shared_scheduler is None):
        which = "neither" if config.threads is None else "both"
        msg = (
            "exactly one of threads and shared_scheduler must be given, and "
            f"{which} was: use threads=ThreadPolicy.… for threads of the queue's own"
        )
        raise ConfigError(msg)
    match config.shared_scheduler:
        case None:
            pass
        case (str(name), ThreadPolicy()) if name:
            pass
        case wrong:
            msg = f"shared_scheduler must be (name, ThreadPolicy), not {wrong!r}"
            raise ConfigError(msg)
    if (config.balancer is None) != (config.rebalance_interval == 0):
        msg = "balancer and rebalance_interval go together: give both, or neither"
        raise ConfigError(msg)


def _check_numbers(config: BatchQueueConfig[Any]) -> None:
    whole_number("buffer_size", config.buffer_size, least=1)
    for name in ("min_idle", "max_idle"):
        seconds(name, getattr(config, name), above_zero=True)
    for name in ("rebalance_interval", "handover_timeout", "shutdown_timeout"):
        seconds(name, getattr(config, name))
    if config.max_idle < config.min_idle:
        msg = f"max_idle ({config.max_idle}) must not be below min_idle ({config.min_idle})"
        raise ConfigError(msg)
