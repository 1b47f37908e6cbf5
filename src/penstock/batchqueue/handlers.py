"""The callbacks a user gives to a queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["HandlerConsumer", "QueueErrorHandler"]

T = TypeVar("T")


class HandlerConsumer(ABC, Generic[T]):
    """Receives the batches of one type (or of a whole queue, as its consumer).

    A plain callable that takes a batch is accepted wherever a HandlerConsumer is.
    """

    @abstractmethod
    def consume(self, batch: list[T]) -> None:
        """Process *batch*, which is never empty and belongs to the handler from now on."""

    def on_idle(self) -> None:
        """Flush what was held back: called when nothing came, and once at shutdown.

        A queue none of whose handlers overrides this does not wake while it is idle.
        """


class Consumes(Protocol[T]):
    """Any object with ``consume(batch)``, and perhaps ``on_idle()``, will do as a handler."""

    def consume(self, batch: list[T], /) -> object:
        """Process *batch*."""
        ...


class QueueErrorHandler(Protocol[T]):
    """Told of a batch whose handler raised; the batch counts as consumed all the same."""

    def __call__(self, batch: list[T], error: BaseException, /) -> object:
        """Deal with *error*; what this raises itself is logged."""
        ...


def consume_of(handler: object, field: str) -> Callable[[list[Any]], object]:
    """Return the function that takes a batch, or say why *handler* has none."""
    if not isinstance(handler, type):  # a class is most likely a forgotten pair of brackets
        consume = getattr(handler, "consume", None)
        if callable(consume):
            return consume  # type: ignore[no-any-return]
        if callable(handler):
            return handler
    msg = (
        f"{field} must be a HandlerConsumer, an object with consume(batch), or a callable "
        f"that takes a batch, not {handler!r}"
    )
    raise ConfigError(msg)


def on_idle_of(handler: object) -> Callable[[], object] | None:
    """Return the handler's own ``on_idle``, or None if it has nothing to do when idle."""
    on_idle = getattr(handler, "on_idle", None)
    if not callable(on_idle):
        return None
    if getattr(type(handler), "on_idle", None) is HandlerConsumer.on_idle:
        return None
    return on_idle  # type: ignore[no-any-return]


def identity_of(handler: object) -> Hashable:
    """Return what makes two handlers the same one: the object, or a method and its object."""
    if isinstance(handler, MethodType):
        return id(handler.__self__), handler.__func__
    return id(handler)
