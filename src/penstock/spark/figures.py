"""Every figure of the aggregation and of its store, in one list."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from penstock.clock import wall_time
from penstock.errors import StoreError
from penstock.figures import Figure
from penstock.metrics.sources import METER, SOURCES
from penstock.spark.aggregation import Watcher
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.land.folder import LandingFolder
    from penstock.spark.job import BatchReport
    from penstock.store.contract import MetricStore

__all__ = ["JobFigures"]

_NS = 1_000_000_000
_counter, _gauge = Figure.counter, Figure.gauge


class JobFigures(Watcher):
    """Counts what batches report, and passes it on to another watcher."""

    # Guarded by _lock: all counts. Batches are reported by the query's thread, figures are asked
    # for by another.

    def __init__(
        self,
        store: MetricStore,
        landing: LandingFolder,
        inner: Watcher,
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._store = store
        self._landing = landing
        self._inner = inner
        self._now = now
        self._lock = threading.Lock()
        self._rows: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._seconds = 0.0
        self._last: BatchReport | None = None
        self._last_at = 0.0

    def batch(self, report: BatchReport) -> None:
        """Add a batch."""
        with self._lock:
            self._rows.update(report.rows_by_signal)
            self._left_out.update(report.left_out)
            self._totals.update(batches=1, files=report.files, rejected=report.rejected)
            self._seconds += report.seconds
            self._last, self._last_at = report, self._now()
        self._inner.batch(report)

    def tick(self) -> None:
        """Pass on that time passes."""
        self._inner.tick()

    def figures(self) -> Iterator[Figure]:
        """Yield how the job and its store stand."""
        yield from self._of_the_job()
        yield from self._of_the_store()

    def _of_the_job(self) -> Iterator[Figure]:
        with self._lock:
            rows = {(signal.value,): self._rows[signal] for signal in Signal}
            left_out = {(cause,): count for cause, count in self._left_out.items()}
            totals, seconds, last = self._totals.copy(), self._seconds, self._last
            last_at = self._last_at
        yield _counter("job_rows", "Rows merged into the store", rows, "signal")
        yield _counter("job_left_out_rows", "Rows left out, by cause", left_out, "cause")
        yield _counter("job_batches", "Micro-batches merged", totals["batches"])
        yield _counter("job_files", "Files merged", totals["files"])
        yield _counter("job_rejected_files", "Files set aside as unreadable", totals["rejected"])
        yield _counter("job_busy_seconds", "Time in micro-batches", seconds)
        waiting = self._landing.pending()
        yield _gauge("job_files_waiting", "Files that wait to be merged", len(waiting))
        size = sum(file.size for file in waiting)
        yield _gauge("job_bytes_waiting", "Bytes that wait to be merged", size)
        if last is not None:
            yield _gauge("job_last_batch_seconds", "Time the last micro-batch took", last.seconds)
            text = "When the last micro-batch ended, in seconds since 1970"
            yield _gauge("job_last_batch_timestamp_seconds", text, last_at)
        if last is not None and last.newest_ns is not None:
            text = "Newest event in the last micro-batch, in seconds since 1970"
            yield _gauge("job_newest_event_timestamp_seconds", text, last.newest_ns / _NS)

    def _of_the_store(self) -> Iterator[Figure]:
        try:
            metrics = len(self._store.catalogue())
            entities: dict[tuple[str, ...], float] = {
                (scope,): len(self._store.entity_ids(scope)) for scope in (*SOURCES, METER)
            }
        except StoreError:
            yield _gauge("store_up", "1 if the store answers", 0)
            return
        yield _gauge("store_up", "1 if the store answers", 1)
        yield _gauge("store_metrics", "Metrics in the catalogue", metrics)
        yield _gauge("store_entities", "Entities by scope", entities, "scope")
