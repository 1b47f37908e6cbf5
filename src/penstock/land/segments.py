"""Write-ahead segments: requests as they came, one behind the other, each with its checksum.

A segment is a magic line and records; a record is the length of its payload (4 bytes), the digest
of the request (16), a CRC-32 of both and the payload (4), then the payload; numbers little-endian.
A writer that dies leaves at most one group torn, and nothing behind it. A disk may damage a record
that lies in the middle; those behind it are found all the same, unless it hit the length.
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
    """What a segment holds: whole records, and the *remains* that are none."""

    records: tuple[Record, ...]
    remains: bytes = b""


def digest_of(signal: Signal, payload: bytes) -> bytes:
    """Return what a request is recognised by when it is sent again."""
    return hashlib.blake2b(payload, digest_size=DIGEST_BYTES, key=signal.encode()).digest()


def pieces_of(record: Record) -> tuple[bytes, bytes]:
    """Return the bytes of a record: its head, its payload."""
    length, digest, payload = len(record.payload), record.digest, record.payload
    check = crc32(payload, crc32(_CHECKED.pack(length, digest)))
    return _HEAD.pack(length, digest, check), payload


def read_segment(path: Path, end: int | None = None) -> Contents:
    """Read the whole records of a segment, up to *end*."""
    data = memoryview(path.read_bytes())[:end]
    if bytes(data[: len(MAGIC)]) != MAGIC:
        return Contents((), bytes(data))
    records, remains = [], bytearray()
    position = len(MAGIC)
    while position < len(data):
        record, stop = _record_at(data, position)
        if record is None:
            remains += data[position:stop]
        else:
            records.append(record)
        position = stop
    return Contents(tuple(records), bytes(remains))


def _record_at(data: memoryview, position: int) -> tuple[Record | None, int]:
    """Return the record at *position*, if it is whole, and where the next one would be."""
    start = position + _HEAD.size
    if start > len(data):
        return None, len(data)
    length, digest, check = _HEAD.unpack_from(data, position)
    stop = start + length
    if stop > len(data):
        return None, len(data)
    payload = data[start:stop]
    if crc32(payload, crc32(_CHECKED.pack(length, digest))) != check:
        return None, stop
    return Record(digest, bytes(payload)), stop
