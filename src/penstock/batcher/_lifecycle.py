"""The life of a batcher: a table of states and events, under one lock."""

from __future__ import annotations

import enum
import threading

__all__ = ["TABLE", "Event", "Lifecycle", "State"]


class State(enum.Enum):
    """Where a batcher is in its life. Being faulted is apart from it."""

    CREATED = "created"
    """Never opened, or closed."""
    OPENING = "opening"
    OPENED = "opened"
    RESETTING = "resetting"
    """After a fault: what was not sent is being abandoned."""
    DRAINING = "draining"
    """Refuses items and sends what it has; a close follows."""
    CLOSING = "closing"
    """Sends nothing more; ends when no batch is pending and no callback runs."""


class Event(enum.Enum):
    """What can happen to a batcher."""

    OPEN = "open"
    OPEN_DONE = "open done"
    OPEN_FAILED = "open failed"
    FAULT = "fault"
    RESET = "reset"
    RESET_DONE = "reset done"
    DRAIN = "drain"
    DRAINED = "drained"
    CLOSE = "close"
    CLOSE_DONE = "close done"


_S, _E = State, Event
SOUND, FAULTED = False, True

TABLE: dict[tuple[State, bool, Event], tuple[State, bool]] = {
    (_S.CREATED, SOUND, _E.OPEN): (_S.OPENING, SOUND),
    (_S.CREATED, FAULTED, _E.RESET): (_S.OPENING, SOUND),
    (_S.OPENING, SOUND, _E.OPEN_DONE): (_S.OPENED, SOUND),
    (_S.OPENING, SOUND, _E.OPEN_FAILED): (_S.CREATED, SOUND),
    (_S.OPENED, SOUND, _E.FAULT): (_S.OPENED, FAULTED),
    (_S.OPENED, SOUND, _E.DRAIN): (_S.DRAINING, SOUND),
    (_S.OPENED, SOUND, _E.CLOSE): (_S.CLOSING, SOUND),
    (_S.OPENED, FAULTED, _E.CLOSE): (_S.CLOSING, FAULTED),
    (_S.OPENED, FAULTED, _E.RESET): (_S.RESETTING, FAULTED),
    (_S.RESETTING, FAULTED, _E.RESET_DONE): (_S.OPENED, SOUND),
    (_S.RESETTING, FAULTED, _E.CLOSE): (_S.CLOSING, FAULTED),
    (_S.DRAINING, SOUND, _E.FAULT): (_S.DRAINING, FAULTED),
    (_S.DRAINING, SOUND, _E.DRAINED): (_S.CLOSING, SOUND),
    (_S.DRAINING, FAULTED, _E.DRAINED): (_S.CLOSING, FAULTED),
    (_S.CLOSING, SOUND, _E.FAULT): (_S.CLOSING, FAULTED),
    (_S.CLOSING, SOUND, _E.CLOSE_DONE): (_S.CREATED, SOUND),
    (_S.CLOSING, FAULTED, _E.CLOSE_DONE): (_S.CREATED, FAULTED),
}
"""(state, faulted, event) → (state, faulted). What is not in here is refused."""


class Lifecycle:
    """A batcher's state, and who is inside its user's code. All of it guarded by `lock`."""

    #   L1  The state changes by the table only (test_every_state_answers_every_event).
    #   L2  `calls` has a thread as long as it is in user code on the batcher's behalf:
    #       process_batch, on_item_complete, on_batch_faulted. A close waits for all threads
    #       in it, and never for its own (test_close_inside_a_callback_does_not_wait).

    def __init__(self) -> None:
        self.state = State.CREATED
        self.is_faulted = False
        self.epoch = 0  # how many resets there were
        self.renew()

    def renew(self) -> None:
        """Replace the lock and forget the callers: no other thread lives on in a child."""
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.calls: dict[int, int] = {}
        self._derive()

    def settle_after_fork(self) -> None:
        """Leave the states that only another thread could have ended."""
        if self.state is State.RESETTING:
            self.state = State.OPENED
        elif self.state is not State.OPENED:
            self.state = State.CREATED
        self.renew()

    def move(self, event: Event) -> bool:
        """Let *event* happen; False if the table does not allow it now."""
        target = TABLE.get((self.state, self.is_faulted, event))
        if target is None:
            return False
        self.state, self.is_faulted = target
        self.epoch += event is Event.RESET
        self._derive()
        return True

    def _derive(self) -> None:
        # Asked for every item and for every batch, so they are kept instead of computed.
        sound = not self.is_faulted
        self.is_accepting = sound and self.state is State.OPENED
        self.is_sending = sound and self.state in (State.OPENED, State.DRAINING)

    def enter(self) -> None:
        """Note that the calling thread goes into user code."""
        me = threading.get_ident()
        self.calls[me] = self.calls.get(me, 0) + 1

    def leave(self) -> None:
        """Note that the calling thread came out again."""
        me = threading.get_ident()
        depth = self.calls.pop(me, 0)  # 0: a fork inside user code; the child knows no callers
        if depth > 1:
            self.calls[me] = depth - 1

    def is_inside(self) -> bool:
        """Return whether the calling thread is in user code on the batcher's behalf."""
        return threading.get_ident() in self.calls

    def describe(self) -> str:
        """Return the state in words."""
        return f"{self.state.value}, faulted" if self.is_faulted else self.state.value
