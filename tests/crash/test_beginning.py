"""A job that dies while it begins: the store and the checkpoint get their names one by one."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import JobError
from penstock.spark import identity
from penstock.spark.identity import identify
from penstock.store import open_store
from penstock.store.contract import MetricStore


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricStore]:
    """Return an empty store."""
    with closing(open_store(str(tmp_path / "metrics.db"))) as store:
        store.migrate()
        yield store


def die(*_: object) -> None:
    """Be killed instead of doing it."""
    raise Killed


def test_killed_between_its_halves_a_job_can_begin_again(
    tmp_path: Path, store: MetricStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever half is written first, the next run completes what it finds."""
    with monkeypatch.context() as patch:
        patch.setattr(store, "adopt_job", die)
        with pytest.raises(Killed):
            identify(tmp_path / "checkpoint", store)
    begun = identify(tmp_path / "checkpoint", store)
    assert store.job() == begun.job
    assert identify(tmp_path / "checkpoint", store) == begun


def test_killed_before_the_first_half_nothing_has_happened(
    tmp_path: Path, store: MetricStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has a name then: the next run is the first one."""
    with monkeypatch.context() as patch:
        patch.setattr(identity, "_write", die)
        with pytest.raises(Killed):
            identify(tmp_path / "checkpoint", store)
    assert store.job() is None
    assert identify(tmp_path / "checkpoint", store).job == store.job()


def test_a_checkpoint_that_has_been_worked_from_is_not_given_to_a_new_store(
    tmp_path: Path, store: MetricStore
) -> None:
    """What it counts as done is in another store: that would be lost here."""
    begun = identify(tmp_path / "checkpoint", store)
    (tmp_path / "checkpoint" / "offsets").mkdir()
    with closing(open_store(str(tmp_path / "new.db"))) as other:
        other.migrate()
        with pytest.raises(JobError, match=f"belongs to the job {begun.job}"):
            identify(tmp_path / "checkpoint", other)
        assert other.job() is None
