"""The calls that make files last."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.land.durable import DISK, Disk
from tests.support.disks import ScriptedDisk


def test_pieces_are_written_one_behind_the_other(tmp_path: Path) -> None:
    """Also more of them than one system call takes."""
    pieces = [b"%d," % number for number in range(3_000)]
    descriptor = DISK.create(tmp_path / "file")
    assert DISK.write(descriptor, pieces) == len(b"".join(pieces))
    DISK.sync(descriptor)
    DISK.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than it was given; the rest follows, byte for byte."""
    real = os.write

    def one_byte(descriptor: int, pieces: Sequence[bytes]) -> int:
        return real(descriptor, pieces[0][:1])

    monkeypatch.setattr(os, "writev", one_byte)
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    descriptor = DISK.create(tmp_path / "file")
    assert DISK.write(descriptor, [b"hello ", b"world"]) == 11
    DISK.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"hello world"


def test_what_is_there_is_not_created_again(tmp_path: Path) -> None:
    """Two writers of one name would be two owners of it."""
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        DISK.create(tmp_path / "file")


def test_after_a_cut_writing_goes_on_there(tmp_path: Path) -> None:
    """No hole is left where the cut part was."""
    descriptor = DISK.create(tmp_path / "file")
    DISK.write(descriptor, [b"keep this, not that"])
    DISK.truncate(descriptor, 9)
    DISK.write(descriptor, [b"!"])
    DISK.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"keep this!"


def test_removing_what_is_gone_is_no_matter(tmp_path: Path) -> None:
    """Whoever repeats a step finds it done."""
    DISK.remove(tmp_path / "nothing")


def test_names_can_be_synced(tmp_path: Path) -> None:
    """A folder that is none is told."""
    DISK.sync_folder(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        DISK.sync_folder(tmp_path / "file")


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    """Content, sync, name, sync of the name: at no time is half of it to be seen."""
    disk = ScriptedDisk(tmp_path)
    disk.place(tmp_path / "file", [b"content"])
    assert disk.calls == [
        "create .file.tmp",
        "write .file.tmp",
        "sync .file.tmp",
        "rename .file.tmp file",
        "sync_folder .",
    ]
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("call", ["create", "write", "^sync ", "rename"])
def test_a_file_that_cannot_be_placed_leaves_nothing(call: str, tmp_path: Path) -> None:
    """Neither itself nor its draft, which would only take room on a full disk."""
    disk = ScriptedDisk(tmp_path)
    disk.fail(call, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        disk.place(tmp_path / "file", [b"content"])
    assert list(tmp_path.iterdir()) == []


def test_the_draft_of_a_process_that_died_is_replaced(tmp_path: Path) -> None:
    """It may be longer than the file."""
    (tmp_path / ".file.tmp").write_bytes(b"what was left of an earlier try")
    Disk().place(tmp_path / "file", [b"content"])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"content"
