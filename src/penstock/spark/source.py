"""Landed files as a streaming source: a micro-batch is a list of files.

An offset holds the names of the files of its own batch, so a batch that is run again after a
crash has exactly the same files. What has been merged is moved out of the folder before the next
batch is planned, so nothing but the last offset has to be remembered, however long the job runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from penstock.land.folder import LandedFile, LandingFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

__all__ = ["SOURCE_NAME", "LandingSource", "balanced", "landing_stream"]

SOURCE_NAME = "penstock_landing"


def landing_stream(
    spark: SparkSession, landing: Path, *, max_files: int, max_bytes: int
) -> DataFrame:
    """Return the names of landed files as a stream; a micro-batch has no more than the limits."""
    spark.dataSource.register(LandingSource)
    return (
        spark.readStream.format(SOURCE_NAME)
        .option("path", str(landing.absolute()))
        .option("parallelism", str(spark.sparkContext.defaultParallelism))
        .option("max_files", str(max_files))
        .option("max_bytes", str(max_bytes))
        .load()
    )


class LandingSource(DataSource):
    """Files of a landing folder. Options: path, parallelism, max_files, max_bytes."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return SOURCE_NAME

    def schema(self) -> str:
        """Return what a row is: a file to be read."""
        return "name string"

    def streamReader(self, schema: StructType) -> _LandingReader:  # noqa: N802 # Spark's name
        """Return the reader of the stream."""
        del schema
        return _LandingReader(self.options)


class _Share(InputPartition):
    """The files that one task reads."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(0)
        self.names = names


class _LandingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._folder = LandingFolder(Path(options["path"]))
        self._parallelism = int(options["parallelism"])
        self._max_files = int(options["max_files"])
        self._max_bytes = int(options["max_bytes"])
        self._only: frozenset[str] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 # Spark's name
        return {"sequence": 0, "files": []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 # Spark's name
        # The limits are ours: of files and bytes at once.
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 # Spark's name
        self._only = frozenset(file.name for file in self._folder.pending())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        del limit
        taken = {name for name, _ in start["files"]}
        waiting = [
            file
            for file in self._folder.pending()
            if file.name not in taken and (self._only is None or file.name in self._only)
        ]
        batch = self._admitted(waiting)
        if not batch:
            return start
        files = [[file.name, file.size] for file in batch]
        return {"sequence": start["sequence"] + 1, "files": files}

    def _admitted(self, waiting: list[LandedFile]) -> list[LandedFile]:
        admitted: list[LandedFile] = []
        room = self._max_bytes
        for file in waiting[: self._max_files]:
            if admitted and file.size > room:
                break
            admitted.append(file)
            room -= file.size
        return admitted

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start["sequence"] == end["sequence"]:
            return []
        files = [LandedFile(name, size) for name, size in end["files"]]
        return [_Share(names) for names in balanced(files, self._parallelism)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Share)
        yield pa.RecordBatch.from_pydict({"name": pa.array(partition.names, pa.string())})

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: files are moved when the store has them, which Spark does not know."""

    def __repr__(self) -> str:
        return f"landing folder {json.dumps(str(self._folder.root))}"


def balanced(files: list[LandedFile], shares: int) -> list[tuple[str, ...]]:
    """Deal *files* out to at most *shares* tasks: the largest first, each to the lightest task."""
    loads = [0] * min(shares, len(files))
    dealt: list[list[str]] = [[] for _ in loads]
    for file in sorted(files, key=lambda file: (-file.size, file.name)):
        lightest = loads.index(min(loads))
        dealt[lightest].append(file.name)
        loads[lightest] += file.size
    return [tuple(names) for names in dealt]
