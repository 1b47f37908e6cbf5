"""Landing made-up telemetry: Parquet files that a reader sees whole or not at all."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import JobError
from penstock.generate.logs import generate_logs
from penstock.generate.points import generate_points
from penstock.generate.spans import generate_spans
from penstock.telemetry import SIGNALS, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.generate.settings import GeneratorSettings

    Progress: TypeAlias = Callable[[int, int], None]

__all__ = ["GeneratedSummary", "write_landing"]

_ROW_GROUP = 131_072
_GENERATORS: Mapping[Signal, Callable[[GeneratorSettings], Iterator[pa.Table]]] = {
    Signal.SPANS: generate_spans,
    Signal.POINTS: generate_points,
    Signal.LOGS: generate_logs,
}
# For readers that skip row groups by time; of texts, the extremes only take time to find.
_MEASURED = ["start_ns", "end_ns", "time_ns", "kind"]
# Every value of these differs, or nearly: a dictionary would only be built to be thrown away.
_PLAIN = {"trace_id", "span_id", "parent_span_id", "start_ns", "end_ns", "time_ns", "observed_ns"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSummary:
    """What was landed. The files are in the order in which they appeared."""

    spans: int
    points: int
    logs: int
    files: tuple[Path, ...]
    bytes: int
    start_ns: int
    """The time from which rows lie, but for late ones."""
    end_ns: int
    """The time before which all rows lie."""


def write_landing(
    settings: GeneratorSettings, folder: str | Path, progress: Progress | None = None
) -> GeneratedSummary:
    """Write the telemetry of *settings* below *folder*, in one folder for each signal.

    Files of former runs stay. *progress* is told, now and then, the rows written and those in all.
    """
    landing = _Landing(Path(folder), settings, progress)
    for signal in Signal:
        landing.write(signal)
    return GeneratedSummary(
        spans=landing.rows[Signal.SPANS],
        points=landing.rows[Signal.POINTS],
        logs=landing.rows[Signal.LOGS],
        files=tuple(landing.files),
        bytes=landing.bytes,
        start_ns=settings.start_ns,
        end_ns=settings.end_ns,
    )


class _Landing:
    """One run: what it has written so far, and under which names."""

    def __init__(
        self, folder: Path, settings: GeneratorSettings, progress: Progress | None
    ) -> None:
        self.rows = dict.fromkeys(Signal, 0)
        self.files: list[Path] = []
        self.bytes = 0
        self._folder = folder
        self._settings = settings
        self._progress = progress
        # Equal seeds may land in one folder twice, also at the same time on two machines.
        self._run = f"s{settings.seed}-{secrets.token_hex(6)}"
        self._total = settings.spans + settings.points * settings.minutes + settings.logs

    def write(self, signal: Signal) -> None:
        """Land all rows of *signal*."""
        folder = self._folder / signal
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for number, table in enumerate(_GENERATORS[signal](self._settings)):
                path = folder / f"{signal}-{self._run}-{number:05d}.parquet"
                self._land(signal, table, path)
        except OSError as error:
            msg = (
                f"cannot write to the landing folder {folder}: {error.strerror or error}; make "
                f"room or choose another folder (complete files stay: {len(self.files)})"
            )
            raise JobError(msg) from error

    def _land(self, signal: Signal, table: pa.Table, path: Path) -> None:
        # Readers pass over names that begin with a dot, Spark among them.
        hidden = path.with_name(f".{path.name}.tmp")
        try:
            self._fill(signal, table, hidden)
            size = hidden.stat().st_size
            hidden.rename(path)
        finally:
            hidden.unlink(missing_ok=True)
        _sync_folder(path.parent)
        self.files.append(path)
        self.bytes += size

    def _fill(self, signal: Signal, table: pa.Table, path: Path) -> None:
        with path.open("xb") as file:
            with _writer(signal, file) as writer:
                for start in range(0, table.num_rows, _ROW_GROUP):
                    part = table.slice(start, _ROW_GROUP)
                    writer.write_table(part, row_group_size=_ROW_GROUP)
                    self.rows[signal] += part.num_rows
                    self._report()
            file.flush()
            os.fsync(file.fileno())

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(sum(self.rows.values()), self._total)


def _writer(signal: Signal, file: object) -> pq.ParquetWriter:
    schema = SIGNALS[signal]
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=_dictionaries(schema),
        write_statistics=[name for name in _MEASURED if name in schema.names],
    )


def _dictionaries(schema: pa.Schema) -> list[str]:
    """Return the columns whose values repeat, as Parquet names them."""
    leaves: list[str] = []
    for column in schema:
        if pa.types.is_map(column.type):
            leaves += [f"{column.name}.key_value.key", f"{column.name}.key_value.value"]
        elif column.name not in _PLAIN:
            leaves.append(column.name)
    return leaves


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, not only what it names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
