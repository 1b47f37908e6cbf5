"""Telemetry to land, stores to look into, and frames that need no Spark."""

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.land import LandingFolder
from penstock.telemetry import SIGNALS, Signal

__all__ = ["LocalFrame", "Tables", "dump", "land", "landed_rows", "same_tables"]

# By table: its rows, sorted.
Tables: TypeAlias = dict[str, list[tuple[object, ...]]]

# What telemetry has become; not who brought it in, when, and in which batch.
_TABLES = ("metric", "entity", "metric_minute", "metric_hour", "metric_day", "topn", "reading")


def land(root: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Land *rows* as the file *name* ("spans/a.parquet"); return the name."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows), schema=SIGNALS[Signal(path.parent.name)])
    hidden = path.with_name(f".{path.name}.tmp")
    pq.write_table(table, hidden)
    hidden.rename(path)
    return name


def landed_rows(root: Path, signal: Signal) -> list[dict[str, Any]]:
    """Return all rows of a signal that lie in the landing folder, merged or not."""
    folder = LandingFolder(root)
    paths = [root / file.name for file in folder.pending() if file.signal is signal]
    paths += [root / "consumed" / f.name for f in folder.consumed() if f.signal is signal]
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def dump(path: Path) -> Tables:
    """Return all that a SQLite store has made of telemetry."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr)  # noqa: S608
            for table in _TABLES
        }


def same_tables(one: Tables, other: Tables) -> bool:
    """Whether two dumps agree; sums of fractions may have been added up in another order."""
    return all(
        len(one[table]) == len(other[table])
        and all(_same_row(a, b) for a, b in zip(one[table], other[table], strict=True))
        for table in _TABLES
    )


def _same_row(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-9)
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for a, b in zip(one, other, strict=True)
    )


class LocalFrame:
    """Stands in for the frame of a micro-batch: the names of its files, read in this process.

    *before* is called when the work of the batch is about to begin.
    """

    def __init__(self, names: Iterable[str], before: Callable[[], None] = lambda: None) -> None:
        self.names = list(names)
        self._before = before

    def toArrow(self) -> pa.Table:  # noqa: N802 # Spark's name
        """Return the names themselves."""
        return pa.table({"name": pa.array(self.names, pa.string())})

    def mapInArrow(  # noqa: N802 # Spark's name
        self,
        function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: str,
    ) -> "_LocalResult":
        """Remember what is to be done."""
        del schema
        return _LocalResult(self._run(function))

    def _run(
        self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        self._before()
        # A task for each file, as many executors would do it.
        for name in self.names:
            batch = pa.RecordBatch.from_pydict({"name": pa.array([name], pa.string())})
            yield from function(iter([batch]))


class _LocalResult:
    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def toArrow(self) -> pa.Table:  # noqa: N802 # Spark's name
        """Do the work."""
        schema = pa.schema([("files", pa.binary()), ("partials", pa.list_(pa.binary()))])
        return pa.Table.from_batches(self._batches, schema=schema)
