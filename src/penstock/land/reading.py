"""Landed files, read batch by batch; what is not one of ours is told from what is."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.telemetry.schema import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.telemetry.schema import Signal

__all__ = ["UnreadableFileError", "read_batches"]

BATCH_ROWS = 1 << 18
# Whatever is wrong then, it is not the file.
_TROUBLE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class UnreadableFileError(Exception):
    """The file is damaged, or is not what its folder says; the message is the reason."""


def read_batches(path: Path, signal: Signal, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the *columns* of a landed file; texts come dictionary-encoded.

    Raises UnreadableFileError for whatever the file itself is to blame for.
    """
    schema = SIGNALS[signal]
    texts = [name for name in columns if pa.types.is_string(schema.field(name).type)]
    try:
        # First of all, as only columns that are there can be asked for.
        metadata = pq.read_metadata(path)
        _check(metadata.schema.to_arrow_schema(), schema, columns)
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False):
                _check_nulls(batch, schema)
                yield batch.select(list(columns))
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno in _TROUBLE:
            raise
        raise UnreadableFileError(f"not a whole Parquet file: {_one_line(error)}") from error


def _check(found: pa.Schema, expected: pa.Schema, columns: Sequence[str]) -> None:
    for name in columns:
        position = found.get_field_index(name)
        if position < 0:
            raise UnreadableFileError(f"column {name!r} is missing")
        wanted, got = expected.field(name).type, found.field(position).type
        if _plain(got) != wanted:
            raise UnreadableFileError(f"column {name!r} is {_plain(got)}, not {wanted}")


def _check_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    for name in batch.schema.names:
        if not schema.field(name).nullable and batch.column(name).null_count:
            raise UnreadableFileError(f"column {name!r} has rows without a value")


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if pa.types.is_large_string(kind) else kind


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
