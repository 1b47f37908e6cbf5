"""Runs of the job: in this process on the shared session, or as `penstock aggregate`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import psutil
from pyspark.sql import SparkSession

from penstock.generate import GeneratorSettings, write_landing
from penstock.metrics import Metric, default_rules, load_rules
from penstock.spark.aggregation import Aggregation, AggregationConfig, Watcher
from penstock.spark.job import BatchReport
from penstock.store import open_store
from penstock.store.contract import Granularity, SeriesQuery
from penstock.telemetry import Signal
from penstock.testing import eventually
from tests.oracle.buckets import Key
from tests.oracle.meters import compute_meters
from tests.oracle.oracle import compute
from tests.oracle.topn import Slow, TopKey, top
from tests.support.spark import landed_rows

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = Path(__file__).with_name("everything.oal")
# The public core file of the language, where it has been fetched.
CORE = ROOT.parent / "shared" / "data" / "oal" / "core.oal"

# The shared session answers calls from Java on threads of its own.
CALLBACKS = "Thread-"
DEADLINE = 240.0  # seconds; only a failing test waits this long
# A short life does not pay for the JVM's best compiler.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
DAYS: dict[str, Any] = {"granularity": Granularity.DAY, "limit": 1_000_000}


def standard_rules() -> tuple[Metric, ...]:
    """Return the metrics of the public core file, or those that come with penstock."""
    return load_rules([CORE]) if CORE.is_file() else default_rules()


@dataclass(frozen=True)
class Telemetry:
    """Landed files, and all that an oracle says of them."""

    folder: Path
    metrics: tuple[Metric, ...]

    @classmethod
    def generated(cls, settings: GeneratorSettings, folder: Path) -> "Telemetry":
        """Make up files."""
        write_landing(settings, folder)
        return cls(folder, (*standard_rules(), *load_rules([EVERYTHING])))

    def copied_to(self, folder: Path) -> Path:
        """Return a landing folder with copies of the files."""
        shutil.copytree(self.folder, folder)
        return folder

    @cached_property
    def spans(self) -> list[dict[str, Any]]:
        """All spans."""
        return landed_rows(self.folder, Signal.SPANS)

    @cached_property
    def values(self) -> Mapping[Key, object]:
        """All values of all metrics and meters."""
        points = landed_rows(self.folder, Signal.POINTS)
        return {**compute(self.metrics, self.spans), **compute_meters(points)}

    @cached_property
    def tops(self) -> Mapping[TopKey, list[Slow]]:
        """All top lists."""
        return top(self.spans)


@dataclass
class Reports(Watcher):
    """Keeps the reports of batches."""

    reports: list[BatchReport] = field(default_factory=list)

    def batch(self, report: BatchReport) -> None:
        """Keep a report."""
        self.reports.append(report)

    @property
    def rows(self) -> int:
        """How many rows were merged."""
        return sum(report.rows for report in self.reports)

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows were left out, by cause."""
        causes = {cause for report in self.reports for cause in report.left_out}
        return {
            cause: sum(report.left_out.get(cause, 0) for report in self.reports) for cause in causes
        }


def aggregate(
    spark: SparkSession,
    folder: Path,
    metrics: Sequence[Metric],
    url: str | None = None,
    **config: Any,  # noqa: ANN401
) -> Reports:
    """Merge all that has landed in *folder*/landing, in this process; return the reports."""
    reports = Reports()
    store = open_store(url or str(folder / "store.db"))
    whole: dict[str, Any] = {
        "landing": folder / "landing",
        "checkpoint": folder / "checkpoint",
        "once": True,
    }
    try:
        Aggregation(AggregationConfig(**(whole | config)), store, metrics, reports).run(spark)
    finally:
        store.close()
    return reports


def totals(url: str) -> dict[str, int]:
    """Return, for each metric of a store, how many rows its days hold."""
    store = open_store(url)
    try:
        return {
            name: sum(row.state.count for row in store.series(SeriesQuery(metric=name, **DAYS)))
            for name in store.catalogue()
        }
    finally:
        store.close()


class Command:
    """`penstock aggregate` as a process of its own, in a session of its own."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        arguments = ["--landing", str(folder / "landing"), "--store", str(folder / "store.db")]
        command = [sys.executable, "-m", "penstock.cli.main", "aggregate", *arguments, *options]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_JAVA, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing of it behind, however the test has ended."""
        for process in self.relatives():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(DEADLINE)

    @property
    def out(self) -> str:
        """What it has answered."""
        return self._out.read_text("utf-8")

    @property
    def err(self) -> str:
        """What else it has said."""
        return self._err.read_text("utf-8")

    def relatives(self) -> list[psutil.Process]:
        """Return all that lives of it: the command, Spark's Java and the Python workers."""
        alive = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                is_ours = os.getsid(process.pid) == self.process.pid
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def await_that(self, condition: Callable[[], object]) -> None:
        """Wait until *condition* holds, or fail with what the command said."""
        eventually(lambda: condition() or self.process.poll() is not None, DEADLINE)
        assert condition(), f"exit code {self.process.poll()}\n{self.out}\n{self.err}"

    def end(self) -> int:
        """Wait for its end; return its exit code."""
        return self.process.wait(DEADLINE)
