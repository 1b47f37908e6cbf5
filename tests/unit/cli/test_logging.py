"""The log of commands that run for long, as text and as JSON."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from penstock.cli._logging import JsonFormatter, add_logging_options, set_up_logging

SetUp: TypeAlias = Callable[..., None]


@pytest.fixture
def set_up() -> Iterator[SetUp]:
    """Set the log up as a command with these options does; leave it as it was."""
    root, own = logging.getLogger(), logging.getLogger("penstock")
    handlers, levels = root.handlers[:], (root.level, own.level)

    def begin(*arguments: str) -> None:
        root.handlers[:] = []  # a process begins without any
        parser = argparse.ArgumentParser()
        add_logging_options(parser)
        set_up_logging(parser.parse_args(arguments))

    yield begin
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def as_json(record: logging.LogRecord) -> dict[str, Any]:
    """Return a record as the JSON log has it."""
    line = JsonFormatter().format(record)
    assert "\n" not in line
    result: dict[str, Any] = json.loads(line)
    return result


def test_text_is_one_readable_line(capsys: pytest.CaptureFixture[str], set_up: SetUp) -> None:
    """The event stands first; what is below the level is not written."""
    set_up()
    logging.getLogger("penstock.land").warning("land.torn: %d bytes", 5)
    logging.getLogger("penstock.land").info("land.quiet: no")
    assert capsys.readouterr().err == "penstock: land.torn: 5 bytes\n"


def test_the_level_is_for_penstock_alone(capsys: pytest.CaptureFixture[str], set_up: SetUp) -> None:
    """What libraries tell below a warning is nobody's concern."""
    set_up("--log-level", "debug")
    logging.getLogger("penstock.receive").debug("receive.detail: yes")
    logging.getLogger("aiohttp").info("no")
    assert capsys.readouterr().err == "penstock: receive.detail: yes\n"


def test_json_has_the_event_its_text_and_its_fields(
    capsys: pytest.CaptureFixture[str], set_up: SetUp
) -> None:
    """One object per line, with what came as `extra`."""
    set_up("--log-format", "json")
    logging.getLogger("penstock.land").warning(
        "land.torn: %d bytes: lost", 5, extra={"file": "a.parquet", "odd": {1}}
    )
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "penstock.land",
        "event": "land.torn",
        "message": "5 bytes: lost",
        "file": "a.parquet",
        "odd": "{1}",
    }


@pytest.mark.parametrize(
    "message", ["no event", "a word: and more", "two words.x: and more", "e.x"]
)
def test_a_message_without_an_event_stays_whole(message: str) -> None:
    """Libraries do not name their events."""
    line = as_json(logging.makeLogRecord({"msg": message}))
    assert (line["event"], line["message"]) == (None, message)


def test_the_traceback_of_an_error_is_a_field() -> None:
    """An object stays one line, however long the trace."""
    try:
        int("why")
    except ValueError:
        record = logging.makeLogRecord({"msg": "job.failed: x", "exc_info": sys.exc_info()})
    assert as_json(record)["error"].endswith("with base 10: 'why'")
