"""Micro-batches, each brought to the moment at which something goes wrong. No Spark is started."""

import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.aggregation.settings import AggregationSettings
from penstock.errors import JobError, LeaseLostError, StoreUnavailableError
from penstock.land import LandingFolder
from penstock.spark.job import JobSettings, as_job_error
from penstock.store.contract import LedgerEntry, MetricStore
from penstock.testing import eventually
from tests.oracle.samples import span
from tests.support.spark import land
from tests.unit.rig import PATIENCE, in_background
from tests.unit.spark.rig import ME, NOW, SOMEBODY_ELSE, JobRig, frame


class KilledError(Exception):
    """Stands for the end of the process at that very point."""


class Interrupted(LandingFolder):
    """A folder whose owner is killed when files are about to leave."""

    def retire(self, names: Iterable[str], at: float) -> None:
        """Be killed."""
        raise KilledError(names, at)


class Watched(LandingFolder):
    """A folder that notes what the ledger knew when files left."""

    def __init__(self, root: Path, store: MetricStore) -> None:
        super().__init__(root)
        self._store = store
        self.known: list[tuple[list[str], list[str]]] = []

    def retire(self, names: Iterable[str], at: float) -> None:
        """Note which of the files were merged, and let them go."""
        leaving = list(names)
        self.known.append((leaving, list(self._store.merged_files(leaving))))
        super().retire(leaving, at)


class Breaking:
    """A store that breaks off in the middle of a transaction, at its very end."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    @contextmanager
    def begin(self, holder: str) -> Iterator[object]:
        """Be killed before the commit."""
        with self._store.begin(holder) as transaction:
            yield transaction
            raise KilledError


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[JobRig]:
    """Return a job's surroundings."""
    rig = JobRig(tmp_path)
    yield rig
    rig.store.close()


def test_a_batch_is_merged_and_told(rig: JobRig) -> None:
    """All files of a batch are in the store; the report says how many rows that were."""
    names = [rig.land("a", 10, 20), rig.land("b", 30)]
    rig.job()(frame(names), 0)
    assert rig.latencies() == 60
    assert rig.consumed() == names
    (report,) = rig.reports
    assert (report.batch, report.rows, report.files, report.rejected) == (0, 3, 2, 0)
    assert not report.was_committed


def test_a_batch_of_nothing_is_not_told(rig: JobRig) -> None:
    """Spark begins a new checkpoint with one, also if nothing has landed."""
    rig.job()(frame([]), 0)
    assert rig.reports == []


def test_a_batch_that_is_run_again_changes_nothing(rig: JobRig) -> None:
    """Killed between the store's commit and Spark's, a batch comes again: it only tidies up."""
    names = [rig.land("a", 10, 20), rig.land("b", 30)]
    with pytest.raises(KilledError):
        rig.job(landing=Interrupted(rig.landing.root))(frame(names), 0)
    merged = rig.dump()
    assert rig.pending() == names
    restarted = rig.job()
    restarted(frame(names), 0)
    restarted(frame(names), 0)
    assert rig.dump() == merged
    assert rig.latencies() == 60
    assert (rig.pending(), rig.consumed()) == ([], names)
    assert [report.was_committed for report in rig.reports] == [True, True]


def test_a_batch_whose_commit_broke_off_is_merged_when_it_comes_again(rig: JobRig) -> None:
    """Killed before the store's commit, nothing of the batch is there; the next run merges it."""
    empty = rig.dump()
    names = [rig.land("a", 10, 20)]
    with pytest.raises(KilledError):
        rig.job(store=Breaking(rig.store))(frame(names), 0)
    assert rig.dump() == empty
    assert rig.pending() == names
    rig.job()(frame(names), 0)
    assert rig.latencies() == 30


def test_a_file_that_comes_back_is_not_merged_again(rig: JobRig) -> None:
    """A file is known by its name, under another checkpoint and in another batch too."""
    old = rig.land("old", 10, 20)
    rig.job()(frame([old]), 0)
    back = rig.landing.root / old
    shutil.copy(rig.landing.root / "consumed" / old, back)
    new = rig.land("new", 100)
    rig.job("another checkpoint")(frame([new, old]), 0)
    assert rig.latencies() == 130
    assert (rig.pending(), rig.consumed()) == ([], [new, old])
    assert (rig.reports[-1].files, rig.reports[-1].rows) == (1, 1)


def test_a_batch_of_known_files_only_merges_nothing(rig: JobRig) -> None:
    """When every file of a batch was merged before, they leave and nothing else happens."""
    name = rig.land("old", 10)
    rig.job()(frame([name]), 0)
    merged = rig.dump()
    shutil.copy(rig.landing.root / "consumed" / name, rig.landing.root / name)
    rig.job("another checkpoint")(frame([name]), 7)
    assert rig.dump() == merged
    assert rig.pending() == []


def test_files_leave_after_the_commit_and_before_the_next_batch(rig: JobRig) -> None:
    """When a file leaves the ledger has it, and when the call returns it has left."""
    watched = Watched(rig.landing.root, rig.store)
    names = [rig.land("a", 10), rig.land("b", 20)]
    job = rig.job(landing=watched)
    job(frame(names), 0)
    assert watched.known == [(names, names)]
    assert rig.pending() == []
    late = rig.land("c", 30)
    job(frame([late]), 1)
    assert watched.known[1:] == [([late], [late])]
    assert rig.pending() == []


def test_a_job_without_the_lease_merges_nothing(rig: JobRig) -> None:
    """The store looks at the lease in the transaction, so losing it at any time before is safe."""
    empty = rig.dump()
    names = [rig.land("a", 10)]

    def lose_it() -> None:
        rig.store.release(ME)
        rig.store.acquire(SOMEBODY_ELSE, 1e6)

    job = rig.job()
    with pytest.raises(LeaseLostError):
        job(frame(names, before=lose_it), 0)
    assert isinstance(job.failure, LeaseLostError)
    assert rig.dump() == empty
    assert (rig.pending(), rig.consumed()) == (names, [])
    assert rig.store.committed("checkpoint", 0) is None
    rig.job(holder=SOMEBODY_ELSE)(frame(names), 0)
    assert rig.latencies() == 10


def test_the_time_of_leaving_is_that_of_the_job(rig: JobRig) -> None:
    """Merged files are kept from when they were merged on, however long they lay before."""
    name = rig.land("a", 10)
    rig.job()(frame([name]), 0)
    merged = rig.landing.root / "consumed" / name
    assert merged.stat().st_mtime == NOW


def test_a_batch_that_begins_during_a_stop_is_refused(rig: JobRig) -> None:
    """It is not run, and not reported as done either: Spark brings it again at the next start."""
    name = rig.land("a", 10)
    job = rig.job()
    job.stop()
    with pytest.raises(JobError, match="being stopped"):
        job(frame([name]), 0)
    assert job.failure is None
    assert rig.pending() == [name]
    rig.job()(frame([name]), 0)
    assert rig.latencies() == 10


def test_a_stop_waits_for_the_batch_under_way(rig: JobRig) -> None:
    """When stop returns, a batch that had begun is merged to its end."""
    name = rig.land("a", 10)
    under_way, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        under_way.set()
        assert go_on.wait(PATIENCE)

    job = rig.job()
    merging = in_background(lambda: job(frame([name], before=pause), 0))
    assert under_way.wait(PATIENCE)
    stopping = in_background(job.stop)
    with pytest.raises(TimeoutError):
        stopping.result(0.05)
    go_on.set()
    stopping.result(PATIENCE)
    assert rig.latencies() == 10
    merging.result(PATIENCE)


def test_an_unreadable_file_is_set_aside_and_counted(rig: JobRig) -> None:
    """The rest of its batch is merged; the file lies in rejected/ with its reason beside it."""
    good, bad = rig.land("good", 10), "spans/bad.parquet"
    (rig.landing.root / bad).write_bytes(b"not Parquet")
    rig.job()(frame([bad, good]), 0)
    assert rig.latencies() == 10
    assert (rig.reports[0].files, rig.reports[0].rejected) == (1, 1)
    assert [file.name for file in rig.landing.rejected()] == [bad]
    reason = rig.landing.root / "rejected" / f"{bad}.reason.txt"
    assert "not a whole Parquet file" in reason.read_text("utf-8")


def test_a_batch_without_any_readable_file_is_done_with(rig: JobRig) -> None:
    """There is nothing to commit; run again, it finds the files gone and their reasons known."""
    bad = "spans/bad.parquet"
    (rig.landing.root / bad).write_bytes(b"not Parquet")
    rig.job()(frame([bad]), 0)
    rig.job()(frame([bad]), 0)
    assert [report.rejected for report in rig.reports] == [1, 1]
    assert rig.pending() == []
    reason = rig.landing.root / "rejected" / f"{bad}.reason.txt"
    assert "not a whole Parquet file" in reason.read_text("utf-8")


def test_unreadable_files_leave_even_if_the_batch_is_killed(rig: JobRig) -> None:
    """Killed after the commit, a batch comes again and does not look at its files any more."""
    good, bad = rig.land("good", 10), "spans/bad.parquet"
    (rig.landing.root / bad).write_bytes(b"not Parquet")
    with pytest.raises(KilledError):
        rig.job(landing=Interrupted(rig.landing.root))(frame([bad, good]), 0)
    rig.job()(frame([bad, good]), 0)
    assert rig.pending() == []
    assert [file.name for file in rig.landing.rejected()] == [bad]


def test_unreadable_and_known_files_in_one_batch(rig: JobRig) -> None:
    """A known file makes the batch be read again; a file that was set aside is counted once."""
    old, bad = rig.land("old", 10), "spans/bad.parquet"
    rig.job()(frame([old]), 0)
    shutil.copy(rig.landing.root / "consumed" / old, rig.landing.root / old)
    (rig.landing.root / bad).write_bytes(b"not Parquet")
    new = rig.land("new", 100)
    rig.job("another checkpoint")(frame([bad, new, old]), 0)
    assert rig.latencies() == 110
    assert (rig.reports[-1].files, rig.reports[-1].rejected) == (1, 1)
    reason = rig.landing.root / "rejected" / f"{bad}.reason.txt"
    assert "not a whole Parquet file" in reason.read_text("utf-8")


class Unreachable:
    """A store whose server is away until the test says otherwise."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        self.is_away = True
        self.asked = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    def committed(self, checkpoint: str, batch: int) -> LedgerEntry | None:
        """Answer, or be away."""
        self.asked += 1
        if self.is_away:
            raise StoreUnavailableError("the server is away")
        return self._store.committed(checkpoint, batch)


def test_a_store_that_is_away_is_waited_for(rig: JobRig) -> None:
    """The pause doubles with each attempt; when the store is back, the batch is merged."""
    store = Unreachable(rig.store)
    name = rig.land("a", 10)
    job = rig.job(store=store)
    merging = in_background(lambda: job(frame([name]), 0))
    for pause in (0.5, 1.0, 2.0):
        rig.clock.await_sleepers(1)
        assert not merging.done()
        rig.clock.advance(pause - 0.01)
        rig.clock.await_sleepers(1)
        asked = store.asked
        rig.clock.advance(0.01)
        eventually(lambda asked=asked: store.asked == asked + 1)  # type: ignore[misc]
    rig.clock.await_sleepers(1)
    store.is_away = False
    rig.clock.advance(4.0)
    merging.result(PATIENCE)
    assert rig.latencies() == 10


def test_patience_has_an_end(rig: JobRig) -> None:
    """A store that stays away ends the job; nothing is lost."""
    name = rig.land("a", 10)
    job = rig.job(store=Unreachable(rig.store), settings=JobSettings(patience=0.4))
    with pytest.raises(StoreUnavailableError, match="away"):
        job(frame([name]), 0)
    assert isinstance(job.failure, StoreUnavailableError)
    assert rig.pending() == [name]


def test_a_stop_does_not_wait_for_a_store_that_is_away(rig: JobRig) -> None:
    """The batch gives up at once and says that nothing is lost."""
    name = rig.land("a", 10)
    job = rig.job(store=Unreachable(rig.store))
    merging = in_background(lambda: job(frame([name]), 0))
    rig.clock.await_sleepers(1)
    in_background(job.stop).result(PATIENCE)
    with pytest.raises(JobError, match="nothing is lost"):
        merging.result(PATIENCE)
    assert rig.pending() == [name]


class Forgetful:
    """A store that commits, and whose answer is lost on the way."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        self.losses = 1

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    @contextmanager
    def begin(self, holder: str) -> Iterator[object]:
        """Commit, and say that the store cannot be reached."""
        with self._store.begin(holder) as transaction:
            yield transaction
        if self.losses:
            self.losses -= 1
            raise StoreUnavailableError("the connection broke off")


def test_a_commit_whose_answer_was_lost_is_not_repeated(rig: JobRig) -> None:
    """Before it tries again, the job looks whether the ledger has the batch."""
    name = rig.land("a", 10)
    job = rig.job(store=Forgetful(rig.store))
    merging = in_background(lambda: job(frame([name]), 0))
    rig.clock.await_sleepers(1)
    rig.clock.advance(0.5)
    merging.result(PATIENCE)
    assert rig.latencies() == 10
    assert rig.consumed() == [name]


def test_entities_of_a_commit_whose_answer_was_lost_are_known(rig: JobRig) -> None:
    """They took their room in the scope: the next batch counts them as there, not as new."""
    job = rig.job(
        store=Forgetful(rig.store),
        settings=JobSettings(aggregation=AggregationSettings(max_entities=1)),
    )
    merging = in_background(lambda: job(frame([rig.land("a", 10)]), 0))
    rig.clock.await_sleepers(1)
    rig.clock.advance(0.5)
    merging.result(PATIENCE)
    spans = [span(latency=1, service_name=service) for service in ("shop", "bank", "ant")]
    job(frame([land(rig.landing.root, "spans/b.parquet", spans)]), 1)
    assert rig.store.entities("Service") == [("(other)",), ("shop",)]


def test_an_error_of_our_own_is_told_as_it_is() -> None:
    """What is a PenstockError already has the words for the user."""
    error = StoreUnavailableError("the server is away")
    assert as_job_error(error) is error


def test_any_other_error_is_told_by_its_name_and_first_line() -> None:
    """The rest is for developers: it is the cause of the error that is raised."""
    error = as_job_error(ValueError("no such thing\nsecond line"))
    assert isinstance(error, JobError)
    assert str(error) == "ValueError: no such thing"
    assert str(as_job_error(ValueError())) == "ValueError: "


def test_what_an_executor_said_is_told() -> None:
    """Spark wraps it in its own words, and puts where it happened before and after it."""
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "task.py", line 58, in __call__\n    results = self.run(names)\n'
        "ModuleNotFoundError: No module named 'penstock'\n\nJVM stacktrace:\norg.apache.spark\n"
    )
    told = str(as_job_error(RuntimeError(text)))
    assert told == "an executor failed: ModuleNotFoundError: No module named 'penstock'"
    cut_off = RuntimeError("Job aborted\nTraceback (most recent call last):\n  File")
    assert str(as_job_error(cut_off)) == "RuntimeError: Job aborted"
