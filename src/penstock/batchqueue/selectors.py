"""Which partition an item goes to."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, SelectorError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["PartitionSelector", "stable_hash", "type_hash"]


def type_hash(kind: type) -> int:
    """Return a number for *kind* that is the same in every process and every run."""
    return zlib.crc32(f"{kind.__module__}.{kind.__qualname__}".encode())


def stable_hash(key: Hashable) -> int:
    """Return a number for *key*; for str, bytes and int the same in every process."""
    if isinstance(key, str):
        return zlib.crc32(key.encode())
    if isinstance(key, bytes):
        return zlib.crc32(key)
    return hash(key)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PartitionSelector:
    """A named way to choose a partition: ``select(item, partitions) -> index``.

    Any callable of that shape can be given to the configuration instead. Per-type FIFO
    is promised for :meth:`type_hash` only.
    """

    name: str
    select: Callable[[Any, int], int]
    basis: object = None
    """What it goes by: two selectors of one name and basis are equal."""

    @classmethod
    def type_hash(cls) -> PartitionSelector:
        """All items of one exact type to one partition; the default with handlers."""
        return _TYPE_HASH

    @classmethod
    def round_robin(cls) -> PartitionSelector:
        """Each item to the next partition; the default with a single consumer."""
        turn = itertools.count()
        return cls("round_robin", lambda _item, partitions: next(turn) % partitions)

    @classmethod
    def by_key(cls, key: Callable[[Any], Hashable]) -> PartitionSelector:
        """Items with equal ``key(item)`` to one partition, in order while their number stays."""
        if not callable(key):
            msg = f"PartitionSelector.by_key(key) must be callable, not {key!r}"
            raise ConfigError(msg)
        return cls("by_key", lambda item, partitions: stable_hash(key(item)) % partitions, key)

    @classmethod
    def of(cls, selector: PartitionSelector | Callable[[Any, int], int]) -> PartitionSelector:
        """Return *selector* as a PartitionSelector, whatever form it was given in."""
        if isinstance(selector, PartitionSelector):
            return selector
        if not callable(selector):
            msg = f"selector must be a PartitionSelector or callable(item, n), not {selector!r}"
            raise ConfigError(msg)
        return cls(getattr(selector, "__qualname__", "custom"), selector, selector)

    def index(self, item: object, partitions: int) -> int:
        """Return the partition for *item*, or raise SelectorError on a wrong answer."""
        chosen = self.select(item, partitions)
        if type(chosen) is not int or not 0 <= chosen < partitions:
            msg = (
                f"selector {self.name} chose partition {chosen!r} for an item of type "
                f"{type(item).__qualname__}; it must return an int from 0 to {partitions - 1}"
            )
            raise SelectorError(msg)
        return chosen

    def __eq__(self, other: object) -> bool:
        """Two selectors agree if they are built alike: configurations are compared by it."""
        if not isinstance(other, PartitionSelector):
            return NotImplemented
        return self.name == other.name and self.basis is other.basis

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"PartitionSelector.{self.name}"


_TYPE_HASH = PartitionSelector("type_hash", lambda item, n: type_hash(type(item)) % n)
