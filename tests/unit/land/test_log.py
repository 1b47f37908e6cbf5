"""The write-ahead log: what it has returned from is on the disk, and nothing else counts."""

import errno
import re
from pathlib import Path

import pytest

from penstock.land.segments import MAGIC, read_segment
from tests.unit.land.rig import Log, record_of

ONE, TWO, THREE = record_of(1), record_of(2), record_of(3)
SEGMENT = "spans/*.wal"


def size_of(*records: object) -> int:
    """Return the bytes of a segment with some of these records, which are all of one size."""
    return len(MAGIC) + len(records) * (24 + len(ONE.payload))


def test_a_group_is_synced_before_it_is_answered(tmp_path: Path) -> None:
    """W1: the name of a new segment, then the records; of later groups only the records."""
    log = Log(tmp_path)
    log.log.append([ONE, TWO])
    assert log.disk.calls == [
        f"create {SEGMENT}",
        f"write {SEGMENT}",
        "sync_folder spans",
        f"write {SEGMENT}",
        f"sync {SEGMENT}",
    ]
    log.disk.calls.clear()
    log.log.append([THREE])
    assert log.disk.calls == [f"write {SEGMENT}", f"sync {SEGMENT}"]
    [path] = tmp_path.glob("spans/*.wal")
    assert read_segment(path).records == (ONE, TWO, THREE)
    log.log.seal()


def test_a_full_segment_is_sealed(tmp_path: Path) -> None:
    """With the group that filled it; the next group begins another."""
    log = Log(tmp_path, segment_bytes=size_of(ONE, TWO))
    log.log.append([ONE])
    assert log.sealed == []
    log.log.append([TWO])
    log.log.append([THREE])
    [segment] = log.sealed
    assert read_segment(segment.path, segment.end).records == (ONE, TWO)
    assert segment.end == segment.path.stat().st_size
    log.log.seal()
    assert [read_segment(each.path).records for each in log.sealed] == [(ONE, TWO), (THREE,)]


def test_an_old_segment_is_sealed(tmp_path: Path) -> None:
    """When it has its age, not before; one that does not exist has none."""
    log = Log(tmp_path)
    assert log.log.due(2.0) is None
    log.log.append([ONE])
    log.clock.advance(1.5)
    log.log.seal(2.0)
    assert log.sealed == []
    assert log.log.due(2.0) == 0.5
    log.clock.advance(0.5)
    assert log.log.due(2.0) == 0.0
    log.log.seal(2.0)
    assert len(log.sealed) == 1
    assert log.log.due(2.0) is None


def test_a_segment_is_sealed_once(tmp_path: Path) -> None:
    """W3: and gets nothing after that, whoever asks for it to be sealed again."""
    log = Log(tmp_path)
    log.log.append([ONE])
    log.log.seal()
    log.log.seal()
    log.log.append([TWO])
    log.log.seal()
    log.log.seal()
    assert [read_segment(each.path).records for each in log.sealed] == [(ONE,), (TWO,)]
    assert len({each.name for each in log.sealed}) == 2
    assert [each.path.stat().st_size for each in log.sealed] == [s.end for s in log.sealed]


@pytest.mark.parametrize("call", ["write", "^sync "])
def test_after_a_failed_group_the_segment_is_sealed(call: str, tmp_path: Path) -> None:
    """W2: without what the group has left; the next one is written behind nothing broken."""
    log = Log(tmp_path)
    log.log.append([ONE])
    log.disk.fail(call)
    with pytest.raises(OSError, match="No space left"):
        log.log.append([TWO])
    [segment] = log.sealed
    assert segment.path.stat().st_size == segment.end == size_of(ONE)
    assert read_segment(segment.path).records == (ONE,)
    log.disk.mend()
    log.log.append([TWO])
    log.log.seal()
    assert read_segment(log.sealed[1].path).records == (TWO,)


def test_whatever_stops_a_group_its_segment_is_sealed(tmp_path: Path) -> None:
    """Also what is not the disk's fault: the next group must not follow half of one."""
    log = Log(tmp_path)
    log.log.append([ONE])
    log.disk.interrupt("write", MemoryError)
    with pytest.raises(MemoryError):
        log.log.append([TWO])
    log.disk.mend()
    log.log.append([THREE])
    log.log.seal()
    assert [read_segment(each.path, each.end).records for each in log.sealed] == [(ONE,), (THREE,)]


def test_what_cannot_be_cut_off_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The segment ends before it."""
    log = Log(tmp_path)
    log.log.append([ONE])
    log.disk.fail("^sync ", errno.EIO)
    log.disk.fail("truncate", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.log.append([TWO])
    [segment] = log.sealed
    assert read_segment(segment.path).records == (ONE, TWO)
    assert read_segment(segment.path, segment.end).records == (ONE,)
    assert "land.not_cut" in caplog.text


@pytest.mark.parametrize("call", ["create", "write", "sync_folder", "^sync "])
def test_failed_groups_leave_no_segments_behind(call: str, tmp_path: Path) -> None:
    """While the disk is full, clients come again and again: nothing piles up meanwhile."""
    log = Log(tmp_path)
    log.disk.fail(call)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            log.log.append([ONE])
    assert list((tmp_path / "spans").iterdir()) == []
    assert log.sealed == []
    log.disk.mend()
    log.log.append([ONE])
    log.log.seal()
    assert [read_segment(each.path).records for each in log.sealed] == [(ONE,)]


def test_an_empty_segment_that_cannot_be_removed_is_sealed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody finds it there, and it is nobody's loss."""
    log = Log(tmp_path)
    log.disk.fail("^sync ")
    log.disk.fail("remove", errno.EROFS)
    with pytest.raises(OSError, match="No space left"):
        log.log.append([ONE])
    [segment] = log.sealed
    assert read_segment(segment.path, segment.end).records == ()
    assert "land.not_removed" in caplog.text


def test_what_cannot_be_closed_is_sealed_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What counts was synced before."""
    log = Log(tmp_path)
    log.log.append([ONE])
    log.disk.fail("close", errno.EIO)
    log.log.seal()
    assert [read_segment(each.path).records for each in log.sealed] == [(ONE,)]
    assert "land.not_closed" in caplog.text


def test_a_segment_has_the_name_of_its_file(tmp_path: Path) -> None:
    """Without the ending."""
    log = Log(tmp_path)
    log.log.append([ONE])
    log.log.seal()
    assert re.fullmatch(r"\d{13}-[0-9a-f]{12}-\d{6}", log.sealed[0].name)
