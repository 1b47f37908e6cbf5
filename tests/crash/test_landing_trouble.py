"""Merged files that cannot be moved away, and files that are not where they were."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.clock import wall_time
from penstock.errors import JobError
from penstock.land import LandingFolder
from penstock.store import open_store
from penstock.store.contract import MetricStore, Retention
from tests.crash.rig import Telemetry, check_store, contents, local_batches
from tests.oracle.comparing import differences


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricStore]:
    """Return an empty store."""
    with closing(open_store(str(tmp_path / "metrics.db"))) as store:
        yield store


@pytest.fixture
def landing(tmp_path: Path, tiny: Telemetry) -> LandingFolder:
    """Return a landing folder with four files."""
    return tiny.copied_to(tmp_path / "landing")


def consumed(landing: LandingFolder) -> list[str]:
    """Return the names of the files that were moved away."""
    return [file.name for file in landing.consumed()]


def test_files_that_cannot_be_moved_are_told_and_do_not_count_twice(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """The batch is committed; the next run finds it in the ledger and only moves the files."""
    spans = landing.root / "consumed" / "spans"
    spans.rmdir()
    spans.write_text("a file where the folder should be", encoding="utf-8")
    with local_batches(store, landing) as process:
        with pytest.raises(JobError, match=r"is merged but cannot be moved to .*consumed/spans: "):
            process(0, tiny.names)
        check_store(store, tiny)
        spans.unlink()
        process(0, tiny.names)
    check_store(store, tiny)
    assert consumed(landing) == list(tiny.names)


def test_a_landing_folder_that_cannot_be_written_is_told(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """As above, for want of a permission; a file cannot leave a folder that is read-only."""
    spans = landing.root / "spans"
    spans.chmod(0o555)
    try:
        if _may_write(spans):
            pytest.skip("permissions do not hold for this user")
        with local_batches(store, landing) as process:
            with pytest.raises(JobError, match="Permission denied; let this user write to both"):
                process(0, tiny.names)
            spans.chmod(0o755)
            process(0, tiny.names)
    finally:
        spans.chmod(0o755)
    check_store(store, tiny)
    assert consumed(landing) == list(tiny.names)


def test_a_folder_for_merged_files_that_somebody_removed_is_made_again(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """Whoever makes room with rm -r does not keep the files from leaving."""
    with local_batches(store, landing) as process:
        process(0, tiny.names[:1])
        shutil.rmtree(landing.root / "consumed")
        process(1, tiny.names[1:])
    assert landing.pending() == []
    assert consumed(landing) == list(tiny.names[1:])


def test_files_that_come_back_are_not_merged_again(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """A restored copy of the landing folder lands files that the store has, beside new ones."""
    with local_batches(store, landing) as process:
        process(0, tiny.names[:2])
        for name in tiny.names[:2]:
            shutil.copy(landing.root / "consumed" / name, landing.root / name)
        process(1, tiny.names)
    check_store(store, tiny)
    assert landing.pending() == []


def test_a_batch_that_is_run_again_changes_nothing_half_moved_or_not(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """Spark repeats the last batch after a crash: what is left of its files is moved."""
    with local_batches(store, landing) as process:
        process(0, tiny.names)
        for name in tiny.names[::2]:
            (landing.root / "consumed" / name).rename(landing.root / name)
        process(0, tiny.names)
    check_store(store, tiny)
    assert consumed(landing) == list(tiny.names)


def test_files_that_came_back_leave_when_their_batch_is_run_again(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """A batch of a new file and a known one, killed before they were moved: both are."""
    with local_batches(store, landing) as process:
        process(0, tiny.names[:1])
        shutil.copy(landing.root / "consumed" / tiny.names[0], landing.root / tiny.names[0])
        process(1, tiny.names)
        for name in tiny.names:
            (landing.root / "consumed" / name).rename(landing.root / name)
        process(1, tiny.names)
    check_store(store, tiny)
    assert consumed(landing) == list(tiny.names)


def test_an_older_copy_of_the_checkpoint_is_refused(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """Its next numbers are in the ledger, with other files: the new ones would be passed over."""
    with local_batches(store, landing) as process:
        process(0, tiny.names[:1])
        process(1, tiny.names[1:2])
        with pytest.raises(JobError, match=f"has {tiny.names[2]}, but .* --new-checkpoint"):
            process(1, tiny.names[2:])
        assert [file.name for file in landing.pending()] == list(tiny.names[2:])
        process(2, tiny.names[2:])
    check_store(store, tiny)


def test_a_job_that_stood_still_for_months_does_not_repeat_its_last_batch(
    store: MetricStore, landing: LandingFolder, tiny: Telemetry
) -> None:
    """Retention empties the ledger too, but for the batch that a killed job may have to repeat."""
    with local_batches(store, landing) as process:
        process(0, tiny.names[:2])
        process(1, tiny.names[2:])
        for name in tiny.names[2:]:  # as if it had been killed before it moved them
            (landing.root / "consumed" / name).rename(landing.root / name)
        before = contents(store)
        store.expire(wall_time() + 60 * 86_400, Retention(minute=90, hour=90, records=90))
        process(1, tiny.names[2:])
        assert not differences(before, contents(store))
    assert landing.pending() == []


def _may_write(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
    except PermissionError:
        return False
    (folder / "probe").unlink()
    return True
