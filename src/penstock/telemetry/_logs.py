"""Log records of OTLP requests as columns of :data:`penstock.telemetry.LOGS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry._attributes import Attributes
from penstock.telemetry._columns import (
    INT64_MAX,
    fixed_or_null,
    numbers,
    present,
    small,
    times,
)
from penstock.telemetry._envelope import Envelope
from penstock.telemetry._values import Values
from penstock.telemetry.schema import LOGS, Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.telemetry._envelope import Rejections

__all__ = ["decode_logs"]

_HIGHEST_SEVERITY = 24  # FATAL4


def decode_logs(payloads: Sequence[bytes], rejections: Rejections) -> pa.Table:
    """Return the log records of serialized requests."""
    envelope = Envelope.of(Signal.LOGS, payloads)
    envelope = envelope.filtered(rejections.usable({"time": _is_late(envelope.records)}))
    logs = envelope.records
    time, observed = (
        numbers(times(logs.field(name))) for name in ("time_unix_nano", "observed_time_unix_nano")
    )
    columns = {
        "time_ns": pa.array(np.where(time == 0, observed, time)),
        "observed_ns": pa.array(observed, mask=observed == 0),
        "severity_number": small(logs.field("severity_number"), _HIGHEST_SEVERITY),
        "severity_text": present(logs.field("severity_text")),
        "body": _bodies(logs.field("body")),
        # Ids of another length say nothing, but a log record is worth keeping without them.
        "trace_id": fixed_or_null(logs.field("trace_id"), 16),
        "span_id": fixed_or_null(logs.field("span_id"), 8),
        "attributes": Attributes.of(logs.field("attributes")).maps(),
        **envelope.columns(),
    }
    return pa.table([columns[name] for name in LOGS.names], schema=LOGS)


def _is_late(logs: pa.StructArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    time = numbers(logs.field("time_unix_nano"))
    return (time > INT64_MAX) | (numbers(logs.field("observed_time_unix_nano")) > INT64_MAX)


def _bodies(bodies: pa.StructArray) -> pa.Array:
    """Return bodies as text; null where there is none at all."""
    return pc.if_else(bodies.is_valid(), Values.of(bodies).filled(), None)
