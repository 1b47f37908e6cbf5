"""A job without Spark: micro-batches over a landing folder, a SQLite store and a still clock."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.land import LandingFolder
from penstock.metrics import parse_rules
from penstock.spark.aggregation import define_metrics
from penstock.spark.identity import Identity
from penstock.spark.job import BatchReport, JobSettings, MicroBatches, Setting
from penstock.store import open_store
from penstock.testing import FakeClock
from tests.oracle.samples import START, span
from tests.support.spark import LocalFrame, Tables, dump, land

NOW = START / 1e9 + 600.0
ME, SOMEBODY_ELSE = "me", "somebody else"
RULES = """
calls = from(Service.*).count();
latency = from(Service.latency).sum();
"""


class JobRig:
    """One landing folder, one store, and any number of jobs on them."""

    def __init__(self, folder: Path) -> None:
        self.landing = LandingFolder(folder / "landing")
        self.landing.prepare()
        self.path = folder / "store.db"
        self.store = open_store(str(self.path), now=lambda: NOW)
        self.store.migrate()
        self.store.acquire(ME, 1e6)
        self.metrics = parse_rules(RULES).metrics
        define_metrics(self.store, self.metrics)
        self.clock = FakeClock()
        self.reports: list[BatchReport] = []

    def setting(self, checkpoint: str = "checkpoint", **parts: Any) -> Setting:  # noqa: ANN401
        """Return what a job works with; *parts* are put in place."""
        whole = Setting(
            landing=self.landing,
            store=self.store,
            metrics=self.metrics,
            identity=Identity("job", checkpoint),
            holder=ME,
            now=lambda: NOW,
            clock=self.clock,
        )
        return replace(whole, **parts)

    def job(
        self,
        checkpoint: str = "checkpoint",
        settings: JobSettings | None = None,
        **parts: Any,  # noqa: ANN401
    ) -> MicroBatches:
        """Start a job, as after every restart; *parts* are put in place in its setting."""
        setting = self.setting(checkpoint, **parts)
        return MicroBatches(setting, settings or JobSettings(), self.reports.append)

    def land(self, name: str, *latencies: int) -> str:
        """Land spans of the given latencies as spans/*name*.parquet."""
        spans = [span(latency=ms, number=n) for n, ms in enumerate(latencies, 1)]
        return land(self.landing.root, f"spans/{name}.parquet", spans)

    def pending(self) -> list[str]:
        """Return the names of the files that wait."""
        return [file.name for file in self.landing.pending()]

    def consumed(self) -> list[str]:
        """Return the names of the files that were merged."""
        return [file.name for file in self.landing.consumed()]

    def dump(self) -> Tables:
        """Return all that the store has made of telemetry."""
        return dump(self.path)

    def latencies(self) -> int:
        """Return the sum of all latencies that the store has in the minutes of one service."""
        from penstock.store.contract import SeriesQuery  # noqa: PLC0415

        rows = self.store.series(SeriesQuery(metric="latency"))
        return sum(row.state.total for row in rows)


def frame(names: Sequence[str], before: Callable[[], None] = lambda: None) -> Any:  # noqa: ANN401
    """Return the frame of a micro-batch with these files, as far as the job knows frames."""
    return LocalFrame(names, before)
