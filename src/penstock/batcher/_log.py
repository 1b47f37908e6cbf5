"""The batcher's log, which must not do harm where it is written."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["log"]

_logger = logging.getLogger("penstock.batcher")


def log(
    level: int,
    message: str,
    *values: object,
    error: BaseException | None = None,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Write one record. Whatever handles it may raise what it likes."""
    with suppress(BaseException):
        _logger.log(level, message, *values, exc_info=error, extra=extra)
