"""OTLP requests as Arrow tables, without a Python loop over what they hold.

The wire format is parsed into Arrow columns by ``ptars``; the rest is vector operations on those.
:mod:`penstock.telemetry.plain` does the same in a plain loop, and is what this is tested against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from google.protobuf.message import DecodeError

from penstock.telemetry._envelope import Rejections
from penstock.telemetry._logs import decode_logs
from penstock.telemetry._points import decode_points
from penstock.telemetry._spans import decode_spans
from penstock.telemetry._values import AmbiguousError
from penstock.telemetry._wire import WireError
from penstock.telemetry.otlp_json import from_json
from penstock.telemetry.requests import Counts, Decoded, MalformedError, parse, validate
from penstock.telemetry.schema import SIGNALS, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Counts", "Decoded", "MalformedError", "decode", "from_json", "validate"]

# Payloads are decoded together up to this size. Larger groups are not faster, and a payload that
# consists of nothing but empty messages takes a hundred times its size in memory.
_GROUP_BYTES = 16 << 20

_DECODERS: Mapping[Signal, Callable[[Sequence[bytes], Rejections], pa.Table]] = {
    Signal.SPANS: decode_spans,
    Signal.POINTS: decode_points,
    Signal.LOGS: decode_logs,
}


def decode(signal: Signal, payloads: Sequence[bytes]) -> Decoded:
    """Return the records of serialized requests, with the schema of their signal.

    Raises MalformedError if a payload is not such a request; see :func:`validate`.
    """
    rejections = Rejections()
    tables = [
        _decode(signal, payloads[group], group.start, rejections) for group in _groups(payloads)
    ]
    table = pa.concat_tables(tables) if tables else SIGNALS[signal].empty_table()
    return Decoded(table, rejections.total(), dict(rejections))


def _decode(
    signal: Signal, payloads: Sequence[bytes], first: int, rejections: Rejections
) -> pa.Table:
    try:
        return _attempt(signal, payloads, rejections)
    except (AmbiguousError, DecodeError, WireError):
        # Either malformed, which the parser will say, or encoded in a way that is valid but odd,
        # which is gone once it is encoded again.
        return _attempt(signal, _normalized(signal, payloads, first), rejections)


def _attempt(signal: Signal, payloads: Sequence[bytes], rejections: Rejections) -> pa.Table:
    counted = Rejections()
    table = _DECODERS[signal](payloads, counted)
    rejections.update(counted)
    return table


def _normalized(signal: Signal, payloads: Sequence[bytes], first: int) -> list[bytes]:
    normalized = []
    for number, payload in enumerate(payloads, first):
        try:
            normalized.append(parse(signal, payload).SerializeToString())
        except MalformedError as error:
            raise MalformedError(f"payloads[{number}]: {error}") from error
    return normalized


def _groups(payloads: Sequence[bytes]) -> Iterator[slice]:
    """Yield the payloads in order, in groups of limited size; a large one may be alone."""
    start, size = 0, 0
    for end, payload in enumerate(payloads):
        if size and size + len(payload) > _GROUP_BYTES:
            yield slice(start, end)
            start, size = end, 0
        size += len(payload)
    if start < len(payloads):
        yield slice(start, len(payloads))
