"""A sealed segment becomes a Parquet file of the same name, once, whatever is killed when."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.land.digests import SUFFIX as DIGESTS_SUFFIX
from penstock.land.digests import keep_digests, kept_digests
from penstock.land.segments import read_segment
from penstock.telemetry import otlp, plain
from penstock.telemetry.requests import Decoded
from penstock.telemetry.schema import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from penstock.land.durable import Disk
    from penstock.land.folder import LandingFolder
    from penstock.land.log import Segment
    from penstock.land.segments import Record
    from penstock.telemetry.schema import Signal

__all__ = ["Converted", "convert"]

log = logging.getLogger("penstock.land")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What became of a segment."""

    signal: Signal
    file: str | None = None  # its name below the landing folder; None: there was nothing to land
    records: int = 0  # spans, points or log records in the file
    size: int = 0
    repeated: int = 0  # requests that had landed from another segment
    rejected: Mapping[str, int] = field(default_factory=dict)  # records by reason
    set_aside: int = 0  # requests that could not be decoded


def convert(
    segment: Segment, folder: LandingFolder, disk: Disk, known: Container[bytes] = ()
) -> Converted:
    """Land the segment's requests, but for those whose digest is *known*, and remove it.

    In this order, so that it can be done again from any point on: remains; the digests, which
    say from then on what the file has, whoever writes it; the file with its name, both on the
    disk; what is set aside; then the segment goes. A segment whose file has landed before is not
    landed again, also if the file has been consumed since; should even that be gone, the
    aggregation knows its name.
    """
    contents = read_segment(segment.path, segment.end)
    if contents.remains:
        _keep_remains(segment, contents.remains, folder, disk)
    fresh = _chosen(segment, contents.records, known, disk)
    decoded, undecodable = _decode(segment.signal, list(fresh.values()))
    file = f"{segment.signal}/{segment.name}.parquet" if decoded.table.num_rows else None
    size = 0
    if file is not None:
        size = _land(file, decoded.table, folder, disk)
    for number, (record, reason) in enumerate(undecodable):
        name = f"{segment.signal}/{segment.name}-{number}.otlp"
        folder.set_aside(name, record.payload, reason, disk)
    disk.remove(segment.path)
    return Converted(
        signal=segment.signal,
        file=file,
        records=decoded.table.num_rows,
        size=size,
        repeated=len(contents.records) - len(fresh),
        rejected=decoded.reasons,
        set_aside=len(undecodable),
    )


def _chosen(
    segment: Segment, records: Sequence[Record], known: Container[bytes], disk: Disk
) -> dict[bytes, Record]:
    """Return the requests that are this segment's to land, by digest: decided once."""
    path = segment.path.with_name(segment.name + DIGESTS_SUFFIX)
    if path.exists():
        decided = frozenset(kept_digests(path))
        return {record.digest: record for record in records if record.digest in decided}
    fresh = {record.digest: record for record in records if record.digest not in known}
    if fresh:
        keep_digests(path, fresh, disk)
    return fresh


def _land(file: str, table: pa.Table, folder: LandingFolder, disk: Disk) -> int:
    """Write the file unless it has landed before; return how many bytes were written."""
    path = folder.path(file)
    if folder.was_landed(file):
        # Whoever gave it its name may have been stopped before the name was on the disk.
        disk.sync_folder(path.parent)
        return 0
    data = _parquet(table)
    disk.place(path, [data])
    return len(data)


def _keep_remains(segment: Segment, remains: bytes, folder: LandingFolder, disk: Disk) -> None:
    """Keep what is not a whole record, for whoever asks what became of it."""
    log.warning(
        "land.torn_segment: %d bytes of %s are not a whole request: a write that was cut short, "
        "which nobody was told had landed, or damage by the disk. They are kept in the folder of "
        "rejected files",
        len(remains),
        segment.path,
    )
    reason = f"{len(remains)} bytes of segment {segment.name} are not a whole request"
    folder.set_aside(f"{segment.signal}/{segment.name}.torn", remains, reason, disk)


def _decode(signal: Signal, records: Sequence[Record]) -> tuple[Decoded, list[tuple[Record, str]]]:
    """Decode all, or one by one if that fails: no request costs another its place."""
    try:
        return otlp.decode(signal, [record.payload for record in records]), []
    except MemoryError:
        raise  # no request is to blame
    except Exception as error:  # noqa: BLE001 - whatever it is, only one request is to blame
        log.warning("land.decoding_one_by_one: %s of %d requests", error, len(records))
    tables = [SIGNALS[signal].empty_table()]
    reasons: dict[str, int] = {}
    undecodable = []
    for record in records:
        try:
            alone = plain.decode(signal, [record.payload])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - it is kept, with its reason
            undecodable.append((record, f"{type(error).__name__}: {error}"))
        else:
            tables.append(alone.table)
            for reason, count in alone.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
    return Decoded(pa.concat_tables(tables), sum(reasons.values()), reasons), undecodable


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
