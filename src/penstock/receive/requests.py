"""Requests on their way to the disk, one class for each signal: the queue dispatches on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from penstock.land.segments import Record

__all__ = ["KINDS", "LogsRequest", "PointsRequest", "Request", "SpansRequest"]


@dataclass(eq=False, slots=True)
class Request:
    """A request that was found well-formed; *done* becomes None when it is on the disk."""

    record: Record
    done: asyncio.Future[None]


class SpansRequest(Request):
    """Spans."""

    __slots__ = ()


class PointsRequest(Request):
    """Metric points."""

    __slots__ = ()


class LogsRequest(Request):
    """Log records."""

    __slots__ = ()


KINDS: Mapping[Signal, type[Request]] = {
    Signal.SPANS: SpansRequest,
    Signal.POINTS: PointsRequest,
    Signal.LOGS: LogsRequest,
}
