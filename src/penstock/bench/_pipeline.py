"""Runs of the pipeline that `penstock bench pipeline` measures."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.aggregation.aggregator import Horizon
from penstock.clock import wall_time
from penstock.generate import GeneratorSettings, write_landing
from penstock.land.folder import LandingFolder
from penstock.metrics import default_rules
from penstock.metrics.definitions import Attribute, Condition, Operator
from penstock.spark.aggregation import Aggregation, AggregationConfig, Watcher
from penstock.spark.job import BatchReport, read_files
from penstock.spark.source import landing_stream
from penstock.spark.task import RESULT, AggregateFiles
from penstock.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.metrics.definitions import Metric

__all__ = ["FILES", "Data", "Run", "more_rules", "run_noop", "run_pipeline"]

FILES = 4  # per micro-batch, which is a million spans; the first one is the warm-up
_THRESHOLDS = (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Data:
    """Generated files, kept for all runs; each run gets links to them, as it moves them.

    *spans* come with about 51,000 groups in 25 minutes; more spans are more minutes of the same
    traffic, and have more groups in proportion.
    """

    def __init__(self, folder: Path, spans: int) -> None:
        self._folder = folder
        self._spans = spans
        self._minute = wall_time() // 60 * 60
        self._known: set[int] = set()

    def landing(self, spans: int) -> Path:
        """Return a fresh landing folder: a micro-batch to warm up, then *spans* to measure."""
        target = Path(tempfile.mkdtemp(dir=self._folder)) / "spans"
        target.mkdir()
        for path in (self.sample(spans) / "spans").iterdir():
            os.link(path, target / path.name)
        return target.parent

    def _settings(self, spans: int) -> GeneratorSettings:
        settings = replace(GeneratorSettings.benchmark(self._spans), end=self._minute, seed=spans)
        rows = min(settings.rows_per_file, -(-spans // FILES))
        total = spans + FILES * rows
        minutes = max(1, settings.minutes * total // self._spans)
        return replace(settings, spans=total, minutes=minutes, rows_per_file=rows)

    def forget(self, spans: int) -> None:
        """Delete the files of *spans* spans, which take room."""
        self._known.discard(spans)
        shutil.rmtree(self._folder / str(spans), ignore_errors=True)

    def sample(self, spans: int) -> Path:
        """Return the files as they lie, to be read only; the first FILES are the warm-up's."""
        folder = self._folder / str(spans)
        if spans not in self._known:
            write_landing(self._settings(spans), folder)
            self._known.add(spans)
        return folder


@dataclass(frozen=True, slots=True)
class Run:
    """What one run over a landing folder took, from the end of its first batch to its end."""

    spans: int
    seconds: float
    batches: int

    @property
    def rate(self) -> float:
        """Spans per second."""
        return self.spans / self.seconds

    @property
    def nanoseconds(self) -> float:
        """Nanoseconds per span."""
        return self.seconds / self.spans * 1e9


class _Stopwatch(Watcher):
    def __init__(self) -> None:
        self.ends: list[float] = []
        self.rows: list[int] = []

    def batch(self, report: BatchReport) -> None:
        self.ends.append(perf_counter())
        self.rows.append(report.rows)

    def result(self) -> Run:
        return Run(sum(self.rows[1:]), self.ends[-1] - self.ends[0], len(self.rows) - 1)


def run_pipeline(spark: SparkSession, landing: Path, store: str, metrics: Sequence[Metric]) -> Run:
    """Aggregate *landing* into *store*; everything that `penstock aggregate` does."""
    stopwatch = _Stopwatch()
    opened = open_store(store)
    try:
        config = _config(landing)
        Aggregation(config, opened, metrics, stopwatch).run(spark)
    finally:
        opened.close()
        shutil.rmtree(landing)
    return stopwatch.result()


def run_noop(spark: SparkSession, landing: Path, metrics: Sequence[Metric]) -> Run:
    """Aggregate *landing* by the same plan and keys; the states get no further than Spark."""
    stopwatch = _Stopwatch()
    config = _config(landing)
    folder = LandingFolder(landing)
    folder.prepare()
    horizon = Horizon.at(wall_time(), config.job.retention)
    task = AggregateFiles(str(landing), tuple(metrics), config.job.aggregation, horizon)

    def throw_away(frame: DataFrame, batch: int) -> None:
        started = perf_counter()
        result = frame.mapInArrow(lambda batches: task(batches), RESULT)  # noqa: PLW0108
        files = [
            file
            for stream in result.select("files").toArrow()["files"].to_pylist()
            for file in read_files(stream)
        ]
        folder.retire([file.name for file in files], wall_time())
        stopwatch.batch(
            BatchReport(
                batch=batch,
                rows=sum(file.rows for file in files),
                files=len(files),
                rejected=0,
                seconds=perf_counter() - started,
                newest_ns=None,
                left_out={},
            )
        )

    stream = landing_stream(spark, landing, max_files=config.max_files, max_bytes=config.max_bytes)
    query = (
        stream.writeStream.foreachBatch(throw_away)
        .option("checkpointLocation", str(config.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(landing)
    return stopwatch.result()


def _config(landing: Path) -> AggregationConfig:
    return AggregationConfig(
        landing=landing, checkpoint=landing / ".checkpoint", once=True, max_files=FILES
    )


def more_rules(count: int | None = None) -> Sequence[Metric]:
    """Return *count* metrics: the default ones, fewer of them, or each with further filters."""
    rules = default_rules()
    if count is None:
        return rules
    if count <= len(rules):
        # Spread over the sources, as the file is ordered by source.
        return [rules[index * len(rules) // count] for index in range(count)]
    variants = [
        replace(
            metric,
            name=f"{metric.name}_over_{limit}",
            filters=(
                *metric.filters,
                Condition(Attribute("latency"), Operator.GE, limit),
            ),
        )
        for limit in _THRESHOLDS
        for metric in rules
    ]
    return [*rules, *variants][:count]
