"""The table: every state, sound and faulted, and every call."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.batcher._lifecycle import TABLE, Event, Lifecycle, State
from penstock.errors import BatcherStateError, PenstockError
from tests.unit.batcher.rig import Rig

# What each state answers to each event: granted=where it leads. All else is refused; "!" after
# a state means faulted.
EXPECTED = """
CREATED     open=OPENING
CREATED!    reset=OPENING
OPENING     open_done=OPENED  open_failed=CREATED
OPENING!    -
OPENED      fault=OPENED!  drain=DRAINING  close=CLOSING
OPENED!     reset=RESETTING!  close=CLOSING!
RESETTING   -
RESETTING!  reset_done=OPENED  close=CLOSING!
DRAINING    fault=DRAINING!  drained=CLOSING
DRAINING!   drained=CLOSING!
CLOSING     fault=CLOSING!  close_done=CREATED
CLOSING!    close_done=CREATED!
"""


def parse() -> list[tuple[str, str, str]]:
    """Return (state, event, where it leads or "-") for every state and every event."""
    rows = [line.split() for line in EXPECTED.strip().splitlines()]
    granted = {(row[0], *cell.split("=")) for row in rows for cell in row[1:] if cell != "-"}
    leads = {(state, event): target for state, event, target in granted}
    events = [event.name.lower() for event in Event]
    return [(row[0], event, leads.get((row[0], event), "-")) for row in rows for event in events]


def state_of(text: str) -> tuple[State, bool]:
    """Return the state and whether it is faulted."""
    return State[text.rstrip("!")], text.endswith("!")


@pytest.mark.parametrize(("state", "event", "expected"), parse())
def test_every_state_answers_every_event(state: str, event: str, expected: str) -> None:
    """Granted as the table says, otherwise refused without effect."""
    life = Lifecycle()
    life.state, life.is_faulted = state_of(state)
    granted = life.move(Event[event.upper()])
    after = state if expected == "-" else expected
    assert granted is (expected != "-")
    assert (life.state, life.is_faulted) == state_of(after)


@pytest.mark.parametrize(("state", "is_faulted", "event"), list(TABLE))
def test_what_is_asked_often_follows_from_the_state(
    state: State, is_faulted: bool, event: Event
) -> None:
    """Accepting is being open and sound; sending includes draining."""
    life = Lifecycle()
    life.state, life.is_faulted = state, is_faulted
    life.move(event)
    sound = not life.is_faulted
    assert life.is_accepting is (sound and life.state is State.OPENED)
    assert life.is_sending is (sound and life.state in (State.OPENED, State.DRAINING))


# What each state answers to each call of the interface: R raises or refuses, G is granted,
# N does nothing and says that all is over, W says that the end is still to come.
CALLS = """
             open  enqueue submit flush reset close
CREATED      G     R       R      R     R     N
CREATED!     R     R       R      R     G     N
OPENING      R     R       R      R     R     W
OPENED       R     G       G      G     R     G
OPENED!      R     R       R      R     G     G
RESETTING!   R     R       R      R     R     G
DRAINING     R     R       R      G     R     W
DRAINING!    R     R       R      R     R     W
CLOSING      R     R       R      R     R     W
CLOSING!     R     R       R      R     R     W
"""


def calls() -> list[tuple[str, str, str]]:
    """Return (state, call, expected) for each cell of the table above."""
    header, *rows = [line.split() for line in CALLS.strip().splitlines()]
    return [
        (row[0], call, cell) for row in rows for call, cell in zip(header, row[1:], strict=True)
    ]


def rig_in(state: str) -> Rig:
    """Return a rig whose batcher has been brought into *state*."""
    rig = Rig(close_timeout=0.0)
    target, is_faulted = state_of(state)
    if target is not State.CREATED:
        rig.batcher.open()
    life = rig.batcher._core.life
    life.state, life.is_faulted = target, is_faulted
    life._derive()
    if target is State.RESETTING:  # somebody else is in the middle of it
        life.calls[0] = 1
    return rig


def attempt(call: Callable[[], Any]) -> str:
    """Return how *call* was answered."""
    try:
        answer = call()
    except BatcherStateError:
        return "R"
    except PenstockError:  # pragma: no cover - it would be a failure
        return "?"
    if answer is False or getattr(answer, "name", "") == "INVALID_STATE":
        return "R"
    return "G"


@pytest.mark.srs("42_018", "42_028", "42_040")
@pytest.mark.parametrize(("state", "call", "expected"), calls())
def test_every_state_answers_every_call(state: str, call: str, expected: str) -> None:
    """Whatever is called in whatever state is granted or refused, and never hangs."""
    rig = rig_in(state)
    batcher = rig.batcher
    if call == "close":
        before = batcher._core.life.state
        report = batcher.close()
        life = batcher._core.life
        granted = life.state is not before or life.state is State.CREATED
        answer = "W" if not granted else "N" if before is State.CREATED else "G"
        assert report.finished is (life.state is State.CREATED)
    else:
        answer = attempt(
            {
                "open": batcher.open,
                "enqueue": lambda: batcher.enqueue("a", 1, rig.completed),
                "submit": lambda: batcher.submit("a"),
                "flush": lambda: batcher.flush(0),
                "reset": batcher.reset,
            }[call]
        )
    assert answer == expected


def test_a_thread_may_be_inside_more_than_once() -> None:
    """A callback inside a callback: it is out when it has left as often as it entered."""
    life = Lifecycle()
    life.enter()
    life.enter()
    life.leave()
    assert life.is_inside()
    life.leave()
    assert not life.is_inside()
    life.leave()  # in a child process, which does not know its parent's callers
    assert not life.is_inside()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CREATED", "CREATED"),
        ("OPENING", "CREATED"),
        ("OPENED", "OPENED"),
        ("OPENED!", "OPENED!"),
        ("RESETTING!", "OPENED!"),
        ("DRAINING", "CREATED"),
        ("CLOSING!", "CREATED!"),
    ],
)
def test_a_child_process_leaves_the_states_that_others_would_end(before: str, after: str) -> None:
    """Only the forking thread lives on, so nobody would."""
    life = Lifecycle()
    life.state, life.is_faulted = state_of(before)
    life.enter()
    life.settle_after_fork()
    assert (life.state, life.is_faulted) == state_of(after)
    assert not life.is_inside()
