"""Whether a checkpoint and a store belong together, and what is said when they do not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.errors import JobError
from penstock.spark.identity import identify
from penstock.store import open_store
from penstock.store.contract import MetricStore

Open: TypeAlias = Callable[[str], MetricStore]


@pytest.fixture
def open_new(tmp_path: Path) -> Iterator[Open]:
    """Return what opens a new store of a name."""
    opened = []

    def open_new(name: str) -> MetricStore:
        store = open_store(str(tmp_path / f"{name}.db"))
        store.migrate()
        opened.append(store)
        return store

    yield open_new
    for store in opened:
        store.close()


@pytest.fixture
def store(open_new: Open) -> MetricStore:
    """Return a new store."""
    return open_new("metrics")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return where the checkpoint will be."""
    return tmp_path / "checkpoint"


def progress(checkpoint: Path) -> None:
    """Leave behind what Spark leaves after its first batch."""
    (checkpoint / "offsets").mkdir(parents=True)


def test_a_new_checkpoint_and_a_new_store_become_one_job(
    checkpoint: Path, store: MetricStore
) -> None:
    """Both remember it, and are recognised."""
    identity = identify(checkpoint, store)
    assert store.job() == identity.job
    progress(checkpoint)
    assert identify(checkpoint, store) == identity


def test_ids_are_never_the_same(tmp_path: Path, open_new: Open) -> None:
    """Of two jobs, and of their checkpoints."""
    one = identify(tmp_path / "one", open_new("one"))
    other = identify(tmp_path / "other", open_new("other"))
    assert len({one.job, one.checkpoint, other.job, other.checkpoint}) == 4


def test_a_store_that_was_deleted_alone_is_missed(
    checkpoint: Path, store: MetricStore, open_new: Open
) -> None:
    """The checkpoint would go on after files that the new store never saw."""
    identity = identify(checkpoint, store)
    progress(checkpoint)
    with pytest.raises(JobError, match=r"new\.db is new, but .* remove the checkpoint") as error:
        identify(checkpoint, open_new("new"))
    assert identity.job in str(error.value)


def test_a_checkpoint_that_was_deleted_alone_is_missed(
    tmp_path: Path, checkpoint: Path, store: MetricStore
) -> None:
    """Its batches would be numbered from 0 again, and be taken for those that were merged."""
    identify(checkpoint, store)
    with pytest.raises(JobError, match=r"its checkpoint is not in .* add --new-checkpoint"):
        identify(tmp_path / "new", store)
    assert not (tmp_path / "new").exists()


def test_a_lost_checkpoint_may_be_replaced(
    tmp_path: Path, checkpoint: Path, store: MetricStore
) -> None:
    """The job stays the same; the checkpoint is a new one, with batches of its own."""
    before = identify(checkpoint, store)
    after = identify(tmp_path / "new", store, adopt=True)
    assert after.job == before.job
    assert after.checkpoint != before.checkpoint
    assert identify(tmp_path / "new", store) == after


def test_a_checkpoint_of_another_job_is_refused(
    tmp_path: Path, store: MetricStore, open_new: Open
) -> None:
    """Also if a new one would do: these are two that do not belong together."""
    ours = identify(tmp_path / "ours", store)
    theirs = identify(tmp_path / "theirs", open_new("theirs"))
    for adopt in (False, True):
        with pytest.raises(JobError, match="Give the two that belong together") as error:
            identify(tmp_path / "theirs", store, adopt=adopt)
        assert ours.job in str(error.value)
        assert theirs.job in str(error.value)


def test_a_checkpoint_that_does_not_say_whose_it_is(checkpoint: Path, store: MetricStore) -> None:
    """Somebody else's query has left it."""
    progress(checkpoint)
    for adopt in (False, True):
        with pytest.raises(JobError, match="does not say which job it belongs to"):
            identify(checkpoint, store, adopt=adopt)
    assert store.job() is None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"job": "a"}', "\0", '{"a": 1, "b": 2}'])
def test_a_damaged_file_is_told(checkpoint: Path, store: MetricStore, content: str) -> None:
    """With its name and what to do."""
    checkpoint.mkdir()
    (checkpoint / "penstock-job.json").write_text(content, "utf-8")
    with pytest.raises(JobError, match=r"penstock-job\.json cannot be read .* restore or remove"):
        identify(checkpoint, store)


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path: Path, store: MetricStore) -> None:
    """And the store still belongs to nobody."""
    (tmp_path / "file").write_text("in the way", "utf-8")
    with pytest.raises(JobError, match="cannot be written: Not a directory; name another one"):
        identify(tmp_path / "file" / "checkpoint", store)
    assert store.job() is None


def test_a_beginning_that_was_cut_off_begins_again(
    checkpoint: Path, store: MetricStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two halves, nothing was merged yet, and nobody has to do anything."""

    def killed(_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(store, "adopt_job", killed)
        with pytest.raises(KeyboardInterrupt):
            identify(checkpoint, store)
    identity = identify(checkpoint, store)
    assert store.job() == identity.job
