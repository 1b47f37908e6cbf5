"""Means to stop a thread at a chosen point of a batcher, and to let it go on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from penstock.testing import FakeClock
from tests.unit.batcher.rig import PATIENCE, await_event

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Gate:
    """Stops the first who passes it, once armed, until it is opened."""

    def __init__(self, *, armed: bool = True) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        self._armed = armed
        self._lock = threading.Lock()

    def arm(self) -> None:
        """Stop the next who comes."""
        self._armed = True

    def pass_through(self, *_: object) -> None:
        """Wait here if the gate is armed; whoever does disarms it for the others."""
        with self._lock:
            stops, self._armed = self._armed, False
        if stops:
            self.reached.set()
            assert self._open.wait(2 * PATIENCE), "the gate was never opened"

    def await_arrival(self) -> None:
        """Wait until someone stands at the gate."""
        await_event(self.reached)

    def open(self) -> None:
        """Let whoever waits go on."""
        self._open.set()


class GatedClock(FakeClock):
    """A clock that stops who asks it for the time, once its gate is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate(armed=False)

    def now(self) -> float:
        """Stop at the gate, then tell the time."""
        self.gate.pass_through()
        return super().now()


def stop_before(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> Gate:
    """Have the next call of a method stop before it does anything."""
    return _stop(monkeypatch, owner, name, after=False)


def stop_after(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> Gate:
    """Have the next call of a method stop when it is done, before it returns."""
    return _stop(monkeypatch, owner, name, after=True)


def _stop(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, after: bool) -> Gate:
    gate = Gate()
    method: Callable[..., Any] = getattr(owner, name)

    def gated(*arguments: Any, **named: Any) -> Any:
        if not after:
            gate.pass_through()
        result = method(*arguments, **named)
        if after:
            gate.pass_through()
        return result

    monkeypatch.setattr(owner, name, gated)
    return gate
