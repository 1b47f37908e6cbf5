"""What runs on the executors: files to partial states.

A task reads its files and aggregates them with Arrow; it returns one row with the partial states
of all of them. Spark would otherwise decode the same Parquet in the JVM and send every row to
this process, which costs several times what the aggregation does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.aggregation.aggregator import Aggregator, Horizon, span_columns
from penstock.aggregation.partials import FILES, Partials
from penstock.land.folder import LandingFolder
from penstock.land.reading import UnreadableFileError, read_batches
from penstock.telemetry.schema import POINTS, Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.aggregation.settings import AggregationSettings
    from penstock.metrics.definitions import Metric

__all__ = ["GONE", "RESULT", "AggregateFiles", "FileResult"]

GONE = "the file is gone"
RESULT = "files binary, partials array<binary>"
_RESULT = pa.schema([("files", pa.binary()), ("partials", pa.list_(pa.binary()))])


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file: a row of FILES."""

    name: str
    rows: int
    newest_ns: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class AggregateFiles:
    """The function that Spark maps over the names of files; it travels to the executors."""

    landing: str
    metrics: tuple[Metric, ...]
    settings: AggregationSettings
    horizon: Horizon
    skip: frozenset[str] = frozenset()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Aggregate the named files; yield one row for all of them."""
        names = [name for batch in batches for name in batch.column("name").to_pylist()]
        results, partials = self.run([name for name in names if name not in self.skip])
        if results:
            yield _row(results, Partials.concatenated(partials) if partials else None)

    def run(self, names: list[str]) -> tuple[list[FileResult], list[Partials]]:
        """Return what became of each file, and the partial states of those that were read."""
        results, partials = [], []
        for name in names:
            result, partial = self._one(name)
            results.append(result)
            if partial is not None:
                partials.append(partial)
        return results, partials

    def _one(self, name: str) -> tuple[FileResult, Partials | None]:
        """Aggregate one file, entirely or not at all."""
        signal = Signal(name.partition("/")[0])
        aggregator = Aggregator(self.metrics, self.settings, self.horizon)
        columns, time = self._columns(signal)
        rows, newest = 0, None
        reading = read_batches(LandingFolder(Path(self.landing)).path(name), signal, columns)
        try:
            for batch in reading:
                aggregator.add(signal, batch)
                rows += batch.num_rows
                newest = _newest(batch, time, newest)
        except UnreadableFileError as error:
            return FileResult(name, 0, None, str(error)), None
        except FileNotFoundError:
            return FileResult(name, 0, None, GONE), None
        except UnicodeDecodeError as error:
            return FileResult(
                name, 0, None, f"has text that is not UTF-8: {error.object!r:.100}"
            ), None
        except (pa.ArrowInvalid, OverflowError) as error:
            # Nobody has thought of such content. It must not stop all that comes after it; what
            # a bug of ours raises does, as it would set every file aside.
            reason = f"cannot be aggregated: {type(error).__name__}: {error!s:.200}"
            return FileResult(name, 0, None, " ".join(reason.split())), None
        return FileResult(name, rows, newest, None), aggregator.finish()

    def _columns(self, signal: Signal) -> tuple[list[str], str]:
        if signal is Signal.SPANS:
            return span_columns(self.metrics), "start_ns"
        if signal is Signal.POINTS:
            return [name for name in POINTS.names if name != "resource_attributes"], "time_ns"
        return ["time_ns"], "time_ns"


def _newest(batch: pa.RecordBatch, time: str, newest: int | None) -> int | None:
    if not batch.num_rows:
        return newest
    latest = int(batch.column(time).to_numpy(zero_copy_only=False).max())
    return latest if newest is None else max(latest, newest)


def _row(results: list[FileResult], partials: Partials | None) -> pa.RecordBatch:
    rows = [(r.name, r.rows, r.newest_ns, r.error) for r in results]
    columns = [
        pa.array(list(column), field.type)
        for column, field in zip(zip(*rows, strict=True), FILES, strict=True)
    ]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=FILES)
    with pa.ipc.new_stream(sink, FILES) as writer:
        writer.write_table(table)
    streams = [] if partials is None else partials.to_bytes()
    return pa.RecordBatch.from_arrays(
        [pa.array([bytes(sink.getvalue())], pa.binary()), pa.array([streams], _RESULT.types[1])],
        schema=_RESULT,
    )
