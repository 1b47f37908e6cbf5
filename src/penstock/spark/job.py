"""The aggregation job: one streaming query, from landed files to the store.

Invariants
J1  A file's rows are in the store entirely or not at all, and once, whatever is killed when: its
    name is written to the ledger in the transaction that merges it.
J2  A file leaves the landing folder only after that transaction, and before Spark plans the next
    batch; a batch that Spark runs again finds itself in the ledger and only tidies up. Files that
    cannot be read are set aside before it: nothing of them would ever be committed.
J3  Nothing is merged by a job that does not hold the store's lease.
J4  A stop waits for the batch under way and never for one that begins after it: such a batch is
    refused, as Spark, which is being stopped, would wait for it in turn.
"""

# Guards, in the order of the invariants:
#   test_a_batch_that_is_run_again_changes_nothing, test_a_file_that_comes_back_is_not_merged_again
#   test_files_leave_after_the_commit_and_before_the_next_batch
#   test_a_job_without_the_lease_merges_nothing
#   test_a_batch_that_begins_during_a_stop_is_refused

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from penstock.aggregation.aggregator import Horizon
from penstock.aggregation.merging import Merger
from penstock.aggregation.partials import Partials
from penstock.aggregation.settings import AggregationSettings
from penstock.clock import SYSTEM_CLOCK, wait_until, wall_time
from penstock.errors import FilesMergedError, JobError, PenstockError, StoreUnavailableError
from penstock.spark.task import GONE, RESULT, AggregateFiles, FileResult
from penstock.store.contract import LedgerEntry, Retention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from penstock.clock import Clock
    from penstock.land.folder import LandingFolder
    from penstock.metrics.definitions import Metric
    from penstock.spark.identity import Identity
    from penstock.store.contract import MetricStore

__all__ = ["BatchReport", "JobSettings", "MicroBatches", "Setting", "as_job_error", "read_files"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between attempts to reach the store


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """How the job treats time and trouble.

    ``patience`` is how many seconds an unreachable store is waited for before the job gives up;
    ``keep_consumed`` how many days merged files stay in the folder.
    """

    aggregation: AggregationSettings = field(default_factory=AggregationSettings)
    retention: Retention = field(default_factory=Retention)
    patience: float = 300.0
    keep_consumed: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a job works with: where from, where to, as whom, and by which clocks."""

    landing: LandingFolder
    store: MetricStore
    metrics: tuple[Metric, ...]
    identity: Identity
    holder: str
    now: Callable[[], float] = wall_time
    clock: Clock = SYSTEM_CLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What became of one micro-batch."""

    batch: int
    rows: int
    files: int
    rejected: int
    seconds: float
    newest_ns: int | None
    left_out: Mapping[str, int]
    was_committed: bool = False  # it was in the store already
    rows_by_signal: Mapping[str, int] = field(default_factory=dict)


class MicroBatches:
    """Processes micro-batches: the function that the streaming query calls for each."""

    def __init__(
        self,
        setting: Setting,
        settings: JobSettings,
        on_report: Callable[[BatchReport], None] = lambda _: None,
    ) -> None:
        self._landing = setting.landing
        self._store = setting.store
        self._metrics = setting.metrics
        self._checkpoint = setting.identity.checkpoint
        self._now = setting.now
        self._clock = setting.clock
        self._settings = settings
        self._on_report = on_report
        self._merger = Merger(setting.store, setting.holder, settings.aggregation.max_entities)
        self._condition = threading.Condition()
        self._is_stopping = False
        self.failure: BaseException | None = None
        # Held while a batch is processed, so that a stop can wait for its end (J4).
        self._in_batch = threading.Lock()

    def stop(self) -> None:
        """Let no further batch begin, and wait until the one that is under way is finished.

        One that waits for a store that cannot be reached gives up.
        """
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        with self._in_batch:
            pass

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Process one micro-batch; what goes wrong is kept in ``failure`` for the main thread."""
        with self._in_batch:
            if self._is_stopping:  # J4; to return would tell Spark that the batch is done
                raise JobError("the job is being stopped; the batch is merged at the next start")
            try:
                self._process(frame, batch)
            except BaseException as error:
                self.failure = error
                raise

    def _process(self, frame: DataFrame, batch: int) -> None:
        started = self._clock.now()
        entry = self._patiently(lambda: self._store.committed(self._checkpoint, batch))
        if entry is not None:
            self._tidy_up(frame, entry)
            self._on_report(_again(batch, entry, self._clock.now() - started))
            return
        files, left_out = self._merged(frame, batch)
        if not files:  # Spark begins a new checkpoint with a batch of nothing
            return
        read = [file for file in files if file.error is None]
        self._on_report(
            BatchReport(
                batch=batch,
                rows=sum(file.rows for file in read),
                files=len(read),
                rejected=len(files) - len(read),
                seconds=self._clock.now() - started,
                newest_ns=max((f.newest_ns for f in read if f.newest_ns is not None), default=None),
                left_out=left_out,
                rows_by_signal=_rows_by_signal(read),
            )
        )

    def _tidy_up(self, frame: DataFrame, entry: LedgerEntry) -> None:
        """Move away what is left of a batch that was committed before.

        Raises JobError if that batch was another one: nothing of this one would ever be merged.
        """
        others = [name for name in frame.toArrow()["name"].to_pylist() if name not in entry.files]
        merged = self._patiently(lambda: self._store.merged_files(others)) if others else ()
        self._landing.retire([*entry.files, *merged], self._now())
        waiting = [name for name in others if self._landing.path(name).exists()]
        if waiting:
            raise JobError(
                f"batch {entry.batch} of this checkpoint has {waiting[0]}, but was merged into "
                f"{self._store.address} without it: the checkpoint is an older copy. Remove it "
                "and start with --new-checkpoint: no file counts twice"
            )

    def _merged(self, frame: DataFrame, batch: int) -> tuple[list[FileResult], Mapping[str, int]]:
        """Aggregate and commit; without files that the store has, should there be any."""
        horizon = Horizon.at(self._now(), self._settings.retention)
        known: frozenset[str] = frozenset()
        unreadable: list[FileResult] = []
        while True:
            skip = known.union(file.name for file in unreadable)
            files, partials = self._aggregated(frame, horizon, skip)
            unreadable += self._set_aside(files)
            read = [file for file in files if file.error is None]
            names = tuple(file.name for file in read)
            try:
                left_out = self._committed(partials, batch, names, horizon)
            except FilesMergedError as error:
                log.warning("job.files_known: %s; they are left out", error)
                known |= frozenset(error.files)
                continue
            self._landing.retire([*known, *names], self._now())
            return [*read, *unreadable], left_out

    def _aggregated(
        self, frame: DataFrame, horizon: Horizon, skip: frozenset[str]
    ) -> tuple[list[FileResult], Partials | None]:
        task = AggregateFiles(
            str(self._landing.root), self._metrics, self._settings.aggregation, horizon, skip
        )
        # Spark wants a function, and finds its schema by its signature.
        result = frame.mapInArrow(lambda batches: task(batches), RESULT).toArrow()  # noqa: PLW0108
        files = [file for stream in result["files"].to_pylist() for file in read_files(stream)]
        streams = [list(parts) for parts in result["partials"].to_pylist() if parts]
        partials = [Partials.from_bytes(parts) for parts in streams]
        return files, Partials.concatenated(partials) if partials else None

    def _committed(
        self, partials: Partials | None, batch: int, names: tuple[str, ...], horizon: Horizon
    ) -> Mapping[str, int]:
        if partials is None:  # not one file could be read
            return {}
        entry = LedgerEntry(self._checkpoint, batch, self._now(), names)

        def attempt() -> Mapping[str, int]:
            # The answer to an earlier attempt may have been lost, not the commit.
            if self._store.committed(entry.checkpoint, batch) is not None:
                return {}
            return self._merger.merge(partials, entry, horizon)

        return self._patiently(attempt)

    def _set_aside(self, files: list[FileResult]) -> list[FileResult]:
        """Set aside, and return, the files that could not be read."""
        unreadable = [file for file in files if file.error is not None]
        unseen = [f.name for f in unreadable if f.error == GONE and self._landing.has(f.name)]
        if unseen:
            raise JobError(
                f"the executors do not see {unseen[0]} in {self._landing.root}, which is there for "
                "the driver; the landing folder must be shared by all hosts, under the same path"
            )
        for file in unreadable:
            log.warning("job.file_rejected: %s: %s", file.name, file.error)
            self._landing.reject(file.name, str(file.error))
        return unreadable

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Repeat *attempt* while the store cannot be reached, until patience runs out."""
        deadline = self._clock.now() + self._settings.patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return attempt()
            except StoreUnavailableError as error:
                if self._clock.now() + pause > deadline:
                    raise
                log.warning("job.store_unavailable: %s; trying again in %g s", error, pause)
            if self._is_stopping_after(pause):
                raise JobError("stopped while the store could not be reached; nothing is lost")
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_stopping_after(self, seconds: float) -> bool:
        with self._condition:
            return wait_until(self._clock, self._condition, lambda: self._is_stopping, seconds)


def _rows_by_signal(files: Sequence[FileResult]) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for file in files:
        rows[file.name.partition("/")[0]] += file.rows
    return dict(rows)


def _again(batch: int, entry: LedgerEntry, seconds: float) -> BatchReport:
    return BatchReport(
        batch=batch,
        rows=0,
        files=len(entry.files),
        rejected=0,
        seconds=seconds,
        newest_ns=None,
        left_out={},
        was_committed=True,
    )


def read_files(stream: bytes) -> list[FileResult]:
    """Return what a task says of its files."""
    table = pa.ipc.open_stream(stream).read_all()
    return [FileResult(**row) for row in table.to_pylist()]


def as_job_error(error: BaseException) -> PenstockError:
    """Return *error* as one that is told to the user without a stack trace."""
    if isinstance(error, PenstockError):
        return error
    return JobError(_in_one_line(error))


def _in_one_line(error: BaseException) -> str:
    """Return what went wrong: an executor's own words, where Spark quotes them."""
    lines = str(error).splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            last = next((said for said in lines[number + 1 :] if said[:1].strip()), None)
            if last is not None:
                return f"an executor failed: {last}"
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
