"""Digests: a request is recognised for its time, and no longer."""

import os
from pathlib import Path

from penstock.land.digests import RecentDigests, keep_digests, kept_digests, prune_digests
from penstock.land.durable import DISK
from tests.support.disks import ScriptedDisk


def digest(number: int) -> bytes:
    """Return one of many digests."""
    return number.to_bytes(16, "big")


def test_a_digest_is_known_for_its_time() -> None:
    """From when it was added, to the second."""
    recent = RecentDigests(keep=10.0)
    recent.add(digest(1), 100.0)
    assert recent.has(digest(1), 110.0)
    assert not recent.has(digest(2), 110.0)
    assert not recent.has(digest(1), 110.1)
    assert len(recent) == 0


def test_a_digest_that_comes_again_is_kept_from_its_first_time() -> None:
    """It is forgotten once, and may be added after that."""
    recent = RecentDigests(keep=10.0)
    recent.add(digest(1), 100.0)
    recent.add(digest(1), 105.0)
    assert len(recent) == 1
    recent.add(digest(2), 111.0)
    assert not recent.has(digest(1), 111.0)
    recent.add(digest(1), 112.0)
    assert recent.has(digest(1), 120.0)


def test_of_too_many_the_oldest_are_forgotten() -> None:
    """What is remembered is bounded, whatever comes."""
    recent = RecentDigests(keep=10.0, most=3)
    for number in range(5):
        recent.add(digest(number), 100.0)
    assert len(recent) == 3
    known = [number for number in range(5) if recent.has(digest(number), 100.0)]
    assert known == [2, 3, 4]


def test_digests_are_kept_in_a_file(tmp_path: Path) -> None:
    """Which is placed whole, like any other."""
    disk = ScriptedDisk(tmp_path)
    keep_digests(tmp_path / "a.digests", [digest(1), digest(2)], disk)
    assert kept_digests(tmp_path / "a.digests") == [digest(1), digest(2)]
    assert disk.calls[-2:] == ["rename .a.digests.tmp a.digests", "sync_folder ."]


def test_of_a_damaged_file_the_whole_digests_count(tmp_path: Path) -> None:
    """Better some of them than none, and better none than no start."""
    path = tmp_path / "a.digests"
    path.write_bytes(digest(1) + b"half of one")
    assert kept_digests(path) == [digest(1)]
    assert kept_digests(tmp_path / "gone.digests") == []


def test_old_files_are_deleted(tmp_path: Path) -> None:
    """By the time they were written; not those whose segment is still there."""
    ages = {"old.digests": 99.0, "new.digests": 100.0, "kept.digests": 99.0, "kept.wal": 99.0}
    for name, at in ages.items():
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (at, at))
    (tmp_path / "link.digests").symlink_to("nowhere")
    prune_digests(tmp_path, 100.0, DISK)
    assert {path.name for path in tmp_path.iterdir()} == {
        "new.digests",
        "kept.digests",
        "kept.wal",
        "link.digests",
    }
