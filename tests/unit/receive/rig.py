"""Requests of every signal, some records useless, and a landing that does as it is told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from penstock.telemetry.requests import REQUESTS
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.land.segments import Record

__all__ = ["PATIENCE", "HeldLanding", "message", "payload"]

PATIENCE = 60.0  # seconds that only a failing test waits
_TRACE_ID, _SPAN_ID = bytes(range(1, 17)), bytes(range(1, 9))
_TOO_LATE = 2**63


def message(signal: Signal, service: str, good: int = 1, bad: int = 0) -> Any:  # noqa: ANN401 - the signal's message
    """Return a request of *service* with *good* records and *bad* ones, which cannot be kept."""
    request = REQUESTS[signal]()
    if signal is Signal.SPANS:
        part = request.resource_spans.add()
        spans = part.scope_spans.add().spans
        for number in range(good + bad):
            trace_id = _TRACE_ID if number < good else b"short"
            spans.add(name=f"span {number}", trace_id=trace_id, span_id=_SPAN_ID)
    elif signal is Signal.POINTS:
        part = request.resource_metrics.add()
        points = part.scope_metrics.add().metrics.add(name="size").gauge.data_points
        for number in range(good + bad):
            points.add(as_int=number, time_unix_nano=1 if number < good else _TOO_LATE)
    else:
        part = request.resource_logs.add()
        logs = part.scope_logs.add().log_records
        for number in range(good + bad):
            log = logs.add(time_unix_nano=1 if number < good else _TOO_LATE)
            log.body.string_value = f"line {number}"
    name = part.resource.attributes.add(key="service.name")
    name.value.string_value = service
    return request


def payload(signal: Signal, service: str, good: int = 1, bad: int = 0) -> bytes:
    """Return that request as it is sent."""
    serialized: bytes = message(signal, service, good, bad).SerializeToString()
    return serialized


class HeldLanding:
    """Takes groups when *gate* is open, fails while there is an *error*, has room or not."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.error: Exception | None = None
        self.is_full = False
        self.groups: list[tuple[Signal, list[Record]]] = []

    def commit(self, signal: Signal, records: Sequence[Record]) -> None:
        """Wait at the gate, then keep the group or fail."""
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.groups.append((signal, list(records)))

    def has_room(self) -> bool:
        """Whether more may come."""
        return not self.is_full

    def payloads(self) -> list[bytes]:
        """Return what is kept, in the order of the commits."""
        return [record.payload for _, records in self.groups for record in records]
