"""The figures of the job and of its store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StoreUnavailableError
from penstock.figures import Figure
from penstock.land import LandingFolder
from penstock.metrics import default_rules
from penstock.spark.aggregation import Watcher, define_metrics
from penstock.spark.figures import JobFigures
from penstock.spark.job import BatchReport
from penstock.store import open_store
from penstock.store.contract import MetricStore


class Noting(Watcher):
    """Notes what is passed on."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.ticks = 0

    def batch(self, report: BatchReport) -> None:
        """Note the batch."""
        self.batches.append(report.batch)

    def tick(self) -> None:
        """Note that time passes."""
        self.ticks += 1


def report(batch: int, **other: object) -> BatchReport:
    """Return what a batch of ten spans and two points reports."""
    fields: dict[str, object] = {
        "rows": 12,
        "files": 2,
        "rejected": 1,
        "seconds": 0.5,
        "newest_ns": 1_700_000_000_000_000_000,
        "left_out": {"late": 3},
        "rows_by_signal": {"spans": 10, "points": 2},
    }
    return BatchReport(batch=batch, **(fields | other))  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricStore]:
    """Open a store that knows the default rules."""
    opened = open_store(str(tmp_path / "metrics.db"))
    opened.migrate()
    define_metrics(opened, default_rules())
    yield opened
    opened.close()


@pytest.fixture
def landing(tmp_path: Path) -> LandingFolder:
    """Return a folder in which one file waits."""
    folder = LandingFolder(tmp_path / "landing")
    folder.prepare()
    folder.path("spans/a.parquet").write_bytes(bytes(100))
    return folder


def values(job: JobFigures) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples of all figures by name."""
    found = list(job.figures())
    assert all(isinstance(figure, Figure) for figure in found)
    return {figure.name: dict(figure.samples) for figure in found}


def test_batches_add_up_and_are_passed_on(store: MetricStore, landing: LandingFolder) -> None:
    """Rows by signal, files, what was left out and why; the last batch by itself."""
    inner = Noting()
    job = JobFigures(store, landing, inner, now=lambda: 1_700_000_060.0)
    job.batch(report(0))
    job.batch(report(1, seconds=0.25))
    job.tick()
    found = values(job)
    assert found["job_rows"] == {("spans",): 20, ("points",): 4, ("logs",): 0}
    assert found["job_left_out_rows"] == {("late",): 6}
    assert found["job_batches"] == {(): 2}
    assert found["job_files"] == {(): 4}
    assert found["job_rejected_files"] == {(): 2}
    assert found["job_busy_seconds"] == {(): 0.75}
    assert found["job_last_batch_seconds"] == {(): 0.25}
    assert found["job_last_batch_timestamp_seconds"] == {(): 1_700_000_060.0}
    assert found["job_newest_event_timestamp_seconds"] == {(): 1_700_000_000.0}
    assert found["job_files_waiting"] == {(): 1}
    assert found["job_bytes_waiting"] == {(): 100}
    assert (inner.batches, inner.ticks) == ([0, 1], 1)


def test_before_the_first_batch_there_is_no_last_one(
    store: MetricStore, landing: LandingFolder
) -> None:
    """A time that is not known is not told as 0."""
    found = values(JobFigures(store, landing, Watcher()))
    assert found["job_batches"] == {(): 0}
    assert not [name for name in found if "last_batch" in name or "newest" in name]


def test_the_store_is_told_too(store: MetricStore, landing: LandingFolder) -> None:
    """Its metrics and its entities by scope."""
    found = values(JobFigures(store, landing, Watcher()))
    assert found["store_up"] == {(): 1}
    assert found["store_metrics"] == {(): len(default_rules())}
    assert found["store_entities"]["Service",] == 0


def test_a_store_that_does_not_answer_costs_its_own_figures_only(
    store: MetricStore, landing: LandingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape tells that it is down, and all the rest."""

    def fail() -> None:
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(store, "catalogue", fail)
    found = values(JobFigures(store, landing, Watcher()))
    assert found["store_up"] == {(): 0}
    assert "store_metrics" not in found
    assert found["job_files_waiting"] == {(): 1}
