"""Write-ahead segments: requests as they came, one behind the other, each with its checksum.

A segment is a magic line and records; a record is the length of its payload (4 bytes), the digest
of the request (16), a CRC-32 of both and the payload (4), then the payload; numbers little-endian.
A writer that dies leaves at most one torn record, and nothing behind it.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.telemetry.schema import Signal

__all__ = [
    "DIGEST_BYTES",
    "MAGIC",
    "Contents",
    "Record",
    "digest_of",
    "pieces_of",
    "read_segment",
]

MAGIC = b"PENSTOCK WAL 1\n"
DIGEST_BYTES = 16
_HEAD = struct.Struct(f"<I{DIGEST_BYTES}sI")
_CHECKED = struct.Struct(f"<I{DIGEST_BYTES}s")


@dataclass(frozen=True, slots=True)
class Record:
    """One request."""

    digest: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """What a segment holds: whole records, and *torn* bytes behind them that are none."""

    records: tuple[Record, ...]
    torn: int


def digest_of(signal: Signal, payload: bytes) -> bytes:
    """Return what a request is recognised by when it is sent again."""
    return hashlib.blake2b(payload, digest_size=DIGEST_BYTES, key=signal.encode()).digest()


def pieces_of(record: Record) -> tuple[bytes, bytes]:
    """Return the bytes of a record: its head, its payload."""
    length, digest, payload = len(record.payload), record.digest, record.payload
    check = crc32(payload, crc32(_CHECKED.pack(length, digest)))
    return _HEAD.pack(length, digest, check), payload


def read_segment(path: Path, end: int | None = None) -> Contents:
    """Read the records of a segment, up to *end* or to the first that is not whole."""
    data = memoryview(path.read_bytes())[:end]
    if not data or bytes(data[: len(MAGIC)]) != MAGIC:
        return Contents((), len(data))
    records = []
    position = len(MAGIC)
    while (found := _record_at(data, position)) is not None:
        record, position = found
        records.append(record)
    return Contents(tuple(records), len(data) - position)


def _record_at(data: memoryview, position: int) -> tuple[Record, int] | None:
    """Return the record at *position* and where it ends, if a whole one is there."""
    start = position + _HEAD.size
    if start > len(data):
        return None
    length, digest, check = _HEAD.unpack_from(data, position)
    payload = data[start : start + length]
    if len(payload) < length:
        return None
    if crc32(payload, crc32(_CHECKED.pack(length, digest))) != check:
        return None
    return Record(digest, bytes(payload)), start + length
