"""The way of a file through the landing folder."""

import os
from pathlib import Path

import pytest

from penstock.errors import JobError
from penstock.land import LandedFile, LandingFolder
from penstock.telemetry import Signal

NOW = 1_700_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> LandingFolder:
    """Return a landing folder that is ready."""
    folder = LandingFolder(tmp_path / "landing")
    folder.prepare()
    return folder


def put(folder: LandingFolder, name: str, content: str = "content") -> str:
    """Put a file into the folder."""
    (folder.root / name).write_text(content, "utf-8")
    return name


def reason_of(folder: LandingFolder, name: str) -> str:
    """Return why a file was set aside."""
    return (folder.root / "rejected" / f"{name}.reason.txt").read_text("utf-8")


def test_folders_are_created_and_kept(folder: LandingFolder) -> None:
    """Preparing twice changes nothing."""
    name = put(folder, "spans/a.parquet")
    folder.prepare()
    assert [file.name for file in folder.pending()] == [name]
    for signal in Signal:
        assert (folder.root / "consumed" / signal).is_dir()
        assert (folder.root / "rejected" / signal).is_dir()


def test_a_folder_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    """With its name, the reason and the remedy."""
    (tmp_path / "file").write_text("in the way", "utf-8")
    with pytest.raises(JobError, match=r"file/landing cannot be used: Not a directory; name a"):
        LandingFolder(tmp_path / "file" / "landing").prepare()


def test_files_wait_in_the_order_of_their_names(folder: LandingFolder) -> None:
    """With their sizes, and what they hold by their folder."""
    put(folder, "spans/b.parquet", "12345")
    put(folder, "spans/a.parquet")
    put(folder, "points/c.parquet")
    put(folder, "logs/d.parquet")
    names = ["logs/d.parquet", "points/c.parquet", "spans/a.parquet", "spans/b.parquet"]
    assert [file.name for file in folder.pending()] == names
    assert folder.pending()[-1] == LandedFile("spans/b.parquet", 5)
    assert [file.signal for file in folder.pending()][1:3] == [Signal.POINTS, Signal.SPANS]


def test_what_is_not_landed_is_left_alone(folder: LandingFolder) -> None:
    """Files in the making, other endings, names that are no text, links that lead nowhere."""
    put(folder, "spans/.a.parquet.tmp")
    put(folder, "spans/.hidden.parquet")
    put(folder, "spans/readme.txt")
    (folder.root / "spans" / "gone.parquet").symlink_to("nowhere")
    with open(os.fsencode(folder.root / "spans") + b"/\xff.parquet", "wb"):  # noqa: PTH123
        pass
    assert folder.pending() == []


def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    """Nobody has landed anything yet."""
    assert LandingFolder(tmp_path / "nowhere").pending() == []


def test_merged_files_are_kept_apart(folder: LandingFolder) -> None:
    """They are out of the way, under the same name; one that is gone already is no matter."""
    names = [put(folder, "spans/a.parquet"), put(folder, "points/b.parquet")]
    folder.retire(["spans/gone.parquet", *names], NOW)
    assert folder.pending() == []
    assert [file.name for file in folder.consumed()] == sorted(names)
    folder.retire(names, NOW)
    assert len(folder.consumed()) == 2


def test_merged_files_go_when_their_time_is_over(folder: LandingFolder) -> None:
    """Counted from when they were merged, however old they were then."""
    old, new = put(folder, "spans/old.parquet"), put(folder, "spans/new.parquet")
    for name in (old, new):
        os.utime(folder.root / name, (0, 0))
    folder.retire([old], NOW - 100.0)
    folder.retire([new], NOW)
    assert folder.prune(NOW - 100.0) == 0
    assert folder.prune(NOW - 99.0) == 1
    assert [file.name for file in folder.consumed()] == [new]


def test_a_file_is_set_aside_with_its_reason(folder: LandingFolder) -> None:
    """The reason lies beside it."""
    name = put(folder, "spans/a.parquet", "the content")
    folder.reject(name, "it is broken")
    assert folder.pending() == []
    assert [file.name for file in folder.rejected()] == [name]
    assert reason_of(folder, name) == "it is broken\n"
    assert (folder.root / "rejected" / name).read_text("utf-8") == "the content"


def test_a_file_that_is_gone_leaves_its_reason(folder: LandingFolder) -> None:
    """There is nothing to set aside, but somebody may ask."""
    folder.reject("spans/a.parquet", "the file is gone")
    assert folder.rejected() == []
    assert reason_of(folder, "spans/a.parquet") == "the file is gone\n"


def test_the_first_reason_stays(folder: LandingFolder) -> None:
    """A batch that is run again finds the file gone, which is not why it was set aside."""
    name = put(folder, "spans/a.parquet")
    folder.reject(name, "it is broken")
    folder.reject(name, "the file is gone")
    assert reason_of(folder, name) == "it is broken\n"


def test_nothing_that_was_set_aside_is_lost(folder: LandingFolder) -> None:
    """Another file of the same name gets a name beside the first."""
    name = "spans/a.parquet"
    for content in ("first", "second"):
        put(folder, name, content)
        folder.reject(name, f"{content} reason")
    assert [file.name for file in folder.rejected()] == ["spans/a.2.parquet", name]
    assert reason_of(folder, "spans/a.2.parquet") == "second reason\n"
    assert (folder.root / "rejected" / name).read_text("utf-8") == "first"


def test_a_folder_can_be_set_aside_too(folder: LandingFolder) -> None:
    """Twice, with what is in it."""
    for content in ("first", "second"):
        odd = folder.root / "spans" / "odd.parquet"
        odd.mkdir()
        (odd / "inside").write_text(content, "utf-8")
        folder.reject("spans/odd.parquet", "it is a folder")
    assert folder.pending() == []
    assert (folder.root / "rejected/spans/odd.2.parquet/inside").read_text("utf-8") == "second"
