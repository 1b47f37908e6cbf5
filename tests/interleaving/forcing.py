"""Means to force an interleaving: gates inside lists and handlers, types of known placement."""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import BatchQueue, BatchQueueConfig, HandlerConsumer
from penstock.batchqueue.selectors import type_hash
from penstock.testing import FakeClock, StepExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 60.0
"""Seconds a test waits for a thread before it fails; never how long it usually takes."""


class Gate:
    """Stops whoever passes it, once armed, until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        self._armed = True

    def pass_through(self) -> None:
        """Wait here if the gate is armed; the first to come disarms it."""
        if self._armed:
            self._armed = False
            self.reached.set()
            assert self._open.wait(WAIT), "the gate was never opened"

    def await_arrival(self) -> None:
        """Wait until someone stands at the gate."""
        assert self.reached.wait(WAIT), "nobody came to the gate"

    def open(self) -> None:
        """Let whoever waits go on."""
        self._open.set()


class GatedList(list[Any]):
    """A partition's buffer whose next append stops before it happens."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    def append(self, item: object) -> None:
        """Stop at the gate, then append."""
        self.gate.pass_through()
        super().append(item)


class GatedHandler(HandlerConsumer[Any]):
    """Stops inside consume() once, and notices being entered twice at once."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        self.items: list[Any] = []
        self.idle_calls = 0
        self.most_at_once = 0
        self._inside = 0
        self._lock = threading.Lock()

    def consume(self, batch: list[Any]) -> None:
        """Keep the batch, stopping at the gate if there is one."""
        with self._entered():
            if self.gate is not None:
                self.gate.pass_through()
            self.items += batch

    def on_idle(self) -> None:
        """Count the call."""
        with self._entered():
            self.idle_calls += 1

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            self.most_at_once = max(self.most_at_once, self._inside)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1


class Stepped:
    """A queue whose drainers run only when the test steps them."""

    def __init__(self, config: BatchQueueConfig[Any], name: str = "q") -> None:
        self.clock = FakeClock()
        self.steps = StepExecutor(self.clock)
        self.queue: BatchQueue[Any] = BatchQueue(name, config, clock=self.clock, factory=self.steps)

    def step(self, drainer: int) -> bool:
        """Run one drainer once."""
        return self.steps.step(self.queue._drainers[drainer])

    def settle(self) -> None:
        """Run until nothing is ready, the clock standing still."""
        self.steps.run_until_idle()

    def owners(self) -> list[int]:
        """The drainer of each partition; -1 if it has none."""
        return self.queue._table.owners()

    def close(self) -> None:
        """Shut down."""
        self.queue.shutdown()


def types_for(*indexes: int, count: int) -> list[type]:
    """Make types that type_hash sends to the given partitions of *count*, one each."""
    return [type_that(partial(_is_placed, index, count)) for index in indexes]


def type_that(fits: Callable[[type], bool]) -> type:
    """Make a type for which *fits* holds."""
    return next(_named(fits))


def _is_placed(index: int, count: int, kind: type) -> bool:
    return type_hash(kind) % count == index


_numbers = itertools.count()


def _named(fits: Callable[[type], bool]) -> Iterator[type]:
    for number in _numbers:
        kind = type(
            f"Kind{number}", (), {"__module__": "made", "__repr__": lambda s: s.__class__.__name__}
        )
        if fits(kind):
            yield kind


@contextmanager
def running(target: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run *target* on a thread for the length of the block, and see it end."""
    thread = threading.Thread(target=target, name="under-test")
    thread.start()
    try:
        yield thread
    finally:
        thread.join(WAIT)
        assert not thread.is_alive(), "the thread under test did not end"
