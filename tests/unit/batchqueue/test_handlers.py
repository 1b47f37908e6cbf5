"""What the queue makes of the callbacks it is given."""

from functools import partial

import pytest

from penstock import HandlerConsumer
from penstock.batchqueue.handlers import consume_of, identity_of, on_idle_of
from penstock.errors import ConfigError
from penstock.testing import RecordingHandler


class Silent(HandlerConsumer[str]):
    """Has nothing to do when idle."""

    def consume(self, batch: list[str]) -> None:
        """Take *batch*."""


class Duck:
    """Looks like a handler without being declared one."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def consume(self, batch: list[str]) -> None:
        """Take *batch*."""
        self.got += batch

    def on_idle(self) -> None:
        """Do nothing, but on purpose."""


def test_a_handler_must_say_how_it_consumes() -> None:
    """The base class cannot be used as it is."""
    with pytest.raises(TypeError, match="consume"):
        HandlerConsumer()  # type: ignore[abstract]


def test_a_handler_need_not_care_about_idleness() -> None:
    """The default on_idle does nothing."""
    Silent().on_idle()


@pytest.mark.parametrize("handler", [Silent(), Duck(), RecordingHandler[str]()])
def test_an_object_consumes_with_its_method(handler: Duck) -> None:
    """Whatever has a consume method will do, declared or not."""
    assert consume_of(handler, "handler") == handler.consume


@pytest.mark.parametrize("handler", [print, partial(print, end=""), Duck().consume])
def test_a_callable_consumes_by_being_called(handler: object) -> None:
    """Functions, partials and bound methods are handlers as they are."""
    assert consume_of(handler, "handler") is handler


@pytest.mark.parametrize("wrong", [None, 3, "print", [], str, object()])
def test_what_cannot_take_a_batch_is_refused(wrong: object) -> None:
    """The message names the field and the value; a class is not taken for a function."""
    with pytest.raises(ConfigError, match=r"field must be a HandlerConsumer, .* not "):
        consume_of(wrong, "field")


def test_an_object_whose_consume_is_no_method_is_refused() -> None:
    """An attribute of that name is not enough."""
    duck = Duck()
    duck.consume = "soup"  # type: ignore[assignment,method-assign]
    with pytest.raises(ConfigError):
        consume_of(duck, "handler")


@pytest.mark.parametrize("handler", [Silent(), print, lambda _batch: None])
def test_without_an_on_idle_of_its_own_a_handler_is_never_idle(handler: object) -> None:
    """Nobody has to be woken for a callable, or for a handler that overrides nothing."""
    assert on_idle_of(handler) is None


@pytest.mark.parametrize("handler", [Duck(), RecordingHandler[str]()])
def test_an_on_idle_of_its_own_is_found(handler: Duck) -> None:
    """Overridden or just there: it is called."""
    assert on_idle_of(handler) == handler.on_idle


def test_an_on_idle_that_cannot_be_called_is_none() -> None:
    """An attribute of that name is not enough."""
    duck = Duck()
    duck.on_idle = None  # type: ignore[assignment,method-assign]
    assert on_idle_of(duck) is None


def test_the_same_method_of_the_same_object_is_the_same_handler() -> None:
    """Bound methods are made anew at each access, and still stand for one handler."""
    duck, other = Duck(), Duck()
    assert identity_of(duck.consume) == identity_of(duck.consume)
    assert identity_of(duck.consume) != identity_of(other.consume)
    assert identity_of(duck) == identity_of(duck)
    assert identity_of(duck) != identity_of(other)
    assert identity_of(duck.consume) != identity_of(duck.on_idle)
