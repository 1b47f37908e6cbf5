"""Connections at rest, so that every thread that comes along finds one of its own."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Pool"]

C = TypeVar("C")


class Pool(Generic[C]):
    """Lends each connection to one block at a time; there are as many as blocks at once.

    A connection is used by one thread after another, never by two at a time: the heartbeat
    renews the lease on its own connection while the writer is in the middle of a transaction.
    """

    def __init__(
        self,
        address: str,
        connect: Callable[[], C],
        disconnect: Callable[[C], None],
        is_usable: Callable[[C], bool],
    ) -> None:
        self._address = address
        self._connect = connect
        self._disconnect = disconnect
        self._is_usable = is_usable
        self._lock = threading.Lock()
        self._idle: list[C] = []
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[C]:
        """Lend a connection for the block; after an error it is not lent again."""
        connection = self._take()
        try:
            yield connection
        except BaseException:
            self._disconnect(connection)
            raise
        self._give_back(connection)

    def close(self) -> None:
        """Close what is at rest, and what comes back later; lend nothing any more."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            self._disconnect(connection)

    def _take(self) -> C:
        while (connection := self._pop()) is not None:
            if self._is_usable(connection):
                return connection
            self._disconnect(connection)
        return self._connect()

    def _pop(self) -> C | None:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self._address} was closed here: open it again")
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: C) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        self._disconnect(connection)
