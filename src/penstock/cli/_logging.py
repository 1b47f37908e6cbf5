"""Logs of commands that run for long: readable lines, or one JSON object for each."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_logging_options", "set_up_logging"]

_LEVELS = ("debug", "info", "warning", "error")
# What every record has; the rest came with the message, as fields.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def add_logging_options(parser: argparse.ArgumentParser) -> None:
    """Add what all commands that run for long have in common."""
    group = parser.add_argument_group("its log, on standard error")
    group.add_argument(
        "--log-level", choices=_LEVELS, default="warning", help="default: %(default)s"
    )
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: one object per line, with the event's name and fields (default: %(default)s)",
    )


def set_up_logging(options: argparse.Namespace) -> None:
    """Write the log as *options* say."""
    handler = logging.StreamHandler(sys.stderr)
    if options.log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("penstock: %(message)s"))
    level = options.log_level.upper()
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("penstock").setLevel(level)


class JsonFormatter(logging.Formatter):
    """A record as one JSON object. A message is ``event: text``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        event, colon, text = record.getMessage().partition(": ")
        has_event = bool(colon) and " " not in event and "." in event
        fields = {name: value for name, value in vars(record).items() if name not in _USUAL}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event if has_event else None,
            "message": text if has_event else record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
