"""The landing: groups in, files out, through trouble with the disk and back."""

import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.errors import LandingError
from penstock.land.landing import Landing, LandingSettings
from penstock.land.segments import Contents, read_segment
from penstock.telemetry import Signal
from penstock.testing import FakeClock, eventually
from tests.support.disks import ScriptedDisk
from tests.support.receiver import check_folder, landed_spans
from tests.unit.land.rig import (
    BROKEN,
    broken_record,
    eventually_converted,
    landing_on,
    record_of,
    segments_of,
    write_segment,
)

SPANS = Signal.SPANS
FULL = "No space left on device"
SMALL = 1  # bytes: every group fills its segment


def name_of(number: int) -> str:
    """Return the name of an old segment."""
    return f"{1_700_000_000_000 + number}-0123456789ab-000001"


def eventually_failed(landing: Landing, times: int) -> None:
    """Wait until conversions have failed so often."""
    eventually(lambda: landing.stats().conversion_errors == times)


def test_what_was_committed_lands(tmp_path: Path) -> None:
    """And is counted."""
    with landing_on(tmp_path) as landing:
        landing.commit(SPANS, [record_of(1, 2), record_of(3)])
        landing.commit(SPANS, [record_of(4)])
        assert landed_spans(tmp_path) == {}
        stats = landing.stats()
        assert (stats.requests[SPANS], stats.groups[SPANS]) == (3, 2)
        sizes = [len(record_of(*ids).payload) for ids in ((1, 2), (3,), (4,))]
        assert stats.committed_bytes[SPANS] == sum(sizes)
    stats = landing.stats()
    assert (stats.files[SPANS], stats.records[SPANS], stats.segments_waiting) == (1, 4, 0)
    check_folder(tmp_path, [1, 2, 3, 4])


def test_a_segment_lands_when_it_is_old(tmp_path: Path) -> None:
    """At its age, though nothing else happens; its clock says when."""
    clock = FakeClock()
    with landing_on(tmp_path, clock=clock, segment_age=2.0) as landing:
        clock.await_sleepers(1)
        landing.commit(SPANS, [record_of(1)])
        clock.advance(1.9)
        clock.await_sleepers(1)
        assert landed_spans(tmp_path) == {}
        clock.advance(0.1)
        eventually(lambda: landing.stats().files[SPANS] == 1)
        assert landed_spans(tmp_path) == {1: 1}


def test_a_segment_lands_when_it_is_large(tmp_path: Path) -> None:
    """Whatever its age; signals have segments of their own."""
    with landing_on(tmp_path, segment_bytes=2_000) as landing:
        landing.commit(SPANS, [record_of(1, padding=500)])
        landing.commit(Signal.LOGS, [record_of(8)])
        landing.commit(SPANS, [record_of(2, padding=2_000)])
        eventually(lambda: landing.stats().files[SPANS] == 1)
        assert landed_spans(tmp_path) == {1: 1, 2: 1}
        assert [path.parent.name for path in segments_of(tmp_path)] == ["logs"]
        landing.commit(SPANS, [record_of(3)])
    assert landing.stats().files[SPANS] == 2


def test_every_segment_is_converted_once(tmp_path: Path) -> None:
    """Z1: those found, those that fill up, and the one that is open at the end."""
    for number in (1, 2):
        write_segment(tmp_path, name_of(number), record_of(100 + number))
    disk = ScriptedDisk(tmp_path)
    with landing_on(tmp_path, disk, segment_bytes=400) as landing:
        for number in range(20):
            landing.commit(SPANS, [record_of(number)])
    check_folder(tmp_path, [*range(20), 101, 102])
    stats = landing.stats()
    assert stats.records[SPANS] == 22
    assert stats.repeated[SPANS] == stats.conversion_errors == 0
    files = len(list((tmp_path / "spans").iterdir()))
    removed = disk.calls.count("remove .wal/spans/*.wal")
    assert stats.files[SPANS] == files == removed


def test_a_failed_conversion_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Z2: with longer and longer pauses; the others go on, and it is told once."""
    clock, disk = FakeClock(), ScriptedDisk(tmp_path)
    disk.fail(r"create spans/\..*parquet")
    with landing_on(tmp_path, disk, clock, segment_bytes=SMALL) as landing:
        landing.commit(SPANS, [record_of(1)])
        for tries, pause in enumerate((0.5, 1.0, 2.0, 4.0, 5.0, 5.0), start=1):
            eventually_failed(landing, tries)
            clock.await_sleepers(1)
            clock.advance(pause - 0.01)
            clock.await_sleepers(1)
            assert landing.stats().conversion_errors == tries
            assert FULL in str(landing.stats().trouble)
            assert landing.stats().segments_waiting == 1
            clock.advance(0.02)
        eventually_failed(landing, 7)
        clock.await_sleepers(1)
        disk.mend()
        clock.advance(5.0)
        eventually_converted(landing)
        assert landing.stats().trouble is None
    assert caplog.text.count("land.not_converted") == 1
    check_folder(tmp_path, [1])


def test_one_bad_segment_keeps_no_other_from_landing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong with it, which is told with a stack trace; it is kept."""

    def reads(path: Path, end: int | None) -> Contents:
        if path.name.startswith(name_of(1)):
            raise ValueError("a defect of ours")
        return read_segment(path, end)

    monkeypatch.setattr("penstock.land.conversion.read_segment", reads)
    write_segment(tmp_path, name_of(1), record_of(1))
    write_segment(tmp_path, name_of(2), record_of(2))
    clock = FakeClock()

    def has_landed(files: int) -> bool:
        clock.advance(0.5)
        return landing.stats().files[SPANS] == files

    with landing_on(tmp_path, clock=clock, segment_bytes=SMALL) as landing:
        eventually(lambda: has_landed(1))
        landing.commit(SPANS, [record_of(3)])
        eventually(lambda: has_landed(2))
        assert [path.stem for path in segments_of(tmp_path)] == [name_of(1)]
        monkeypatch.undo()
        eventually(lambda: has_landed(3))
    assert "ValueError: a defect of ours" in caplog.text
    check_folder(tmp_path, [1, 2, 3])


@pytest.mark.parametrize("call", ["write", "^sync ", "create", "sync_folder"])
def test_what_cannot_be_written_is_told_and_may_come_again(call: str, tmp_path: Path) -> None:
    """Nothing that was committed before is lost, nothing of what failed stays."""
    clock, disk = FakeClock(), ScriptedDisk(tmp_path)
    with landing_on(tmp_path, disk, clock) as landing:
        if call in {"write", "^sync "}:
            landing.commit(SPANS, [record_of(1)])
        disk.fail(f"{call}.*(wal|spans)$")
        for _ in range(3):
            with pytest.raises(OSError, match=FULL):
                landing.commit(SPANS, [record_of(2)])
        stats = landing.stats()
        assert stats.trouble == f"requests cannot be written: {FULL}"
        assert stats.commit_errors == 3
        disk.mend()
        landing.commit(SPANS, [record_of(2)])
        assert landing.stats().trouble is None
        landing.commit(SPANS, [record_of(1)])
    assert set(landed_spans(tmp_path)) == {1, 2}
    assert landed_spans(tmp_path)[2] == 1


def test_a_failed_write_that_cannot_be_cut_off_lands_once(tmp_path: Path) -> None:
    """The client sends it again, and only that one counts."""
    disk = ScriptedDisk(tmp_path)
    with landing_on(tmp_path, disk) as landing:
        landing.commit(SPANS, [record_of(1)])
        disk.fail("^sync .*wal", errno.EIO)
        disk.fail("truncate")
        with pytest.raises(OSError, match="Input/output"):
            landing.commit(SPANS, [record_of(2)])
        disk.mend()
        landing.commit(SPANS, [record_of(2)])
    check_folder(tmp_path, [1, 2])


def test_when_the_disk_can_be_written_again_it_is_noticed_without_a_request(
    tmp_path: Path,
) -> None:
    """Whoever sends requests only where they would be accepted would never send one."""
    clock, disk = FakeClock(), ScriptedDisk(tmp_path)
    with landing_on(tmp_path, disk, clock) as landing:
        clock.await_sleepers(1)
        disk.fail("write")
        with pytest.raises(OSError, match=FULL):
            landing.commit(SPANS, [record_of(1)])
        eventually(lambda: "create .wal/.probe.tmp" in disk.calls)
        clock.await_sleepers(1)
        assert landing.stats().trouble is not None
        disk.mend()
        clock.advance(1.0)
        eventually(lambda: landing.stats().trouble is None)
        assert not list((tmp_path / ".wal").glob("*probe*"))


@pytest.mark.parametrize(
    "call",
    [
        r"create spans/\..*parquet",
        r"write spans/\..*parquet",
        r"^sync spans/\..*parquet",
        "rename .*parquet",
        "sync_folder spans",
        r"create .*digests",
        r"write .*digests",
        r"sync .*digests",
        r"rename .*digests",
        r"remove .*wal$",
        "write rejected",
        "sync_folder rejected",
    ],
)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_whatever_cannot_be_converted_lands_later(call: str, code: int, tmp_path: Path) -> None:
    """Meanwhile requests are taken; without a restart all is well when the disk is."""
    clock, disk = FakeClock(), ScriptedDisk(tmp_path)
    disk.fail(call, code)
    with landing_on(tmp_path, disk, clock, segment_bytes=SMALL) as landing:
        landing.commit(SPANS, [record_of(1), broken_record()])
        eventually_failed(landing, 1)
        assert os.strerror(code) in str(landing.stats().trouble)
        landing.commit(SPANS, [record_of(2)])
        assert landing.stats().trouble is not None
        disk.mend()
        clock.await_sleepers(1)
        clock.advance(1.0)
        eventually(lambda: landing.stats().segments_waiting == 0)
        assert landing.stats().trouble is None
    check_folder(tmp_path, [1, 2])
    [aside] = (tmp_path / "rejected" / "spans").glob("*.otlp")
    assert aside.read_bytes() == BROKEN


def test_old_digests_that_cannot_be_deleted_are_in_nobodys_way(tmp_path: Path) -> None:
    """The segment was converted, and is not converted again."""
    disk = ScriptedDisk(tmp_path)
    with landing_on(tmp_path, disk, segment_bytes=SMALL) as landing:
        old = tmp_path / ".wal" / "spans" / f"{name_of(1)}.digests"
        old.write_bytes(bytes(16))
        os.utime(old, (1.0, 1.0))
        disk.fail("remove .*digests", errno.EACCES)
        landing.commit(SPANS, [record_of(1)])
        eventually(lambda: landing.stats().files[SPANS] == 1)
        landing.commit(SPANS, [record_of(2)])
        eventually(lambda: landing.stats().files[SPANS] == 2)
        assert landing.stats().conversion_errors == 0
    assert old.exists()


def test_a_folder_that_cannot_be_measured_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be out of descriptors for a moment."""

    def exhausted() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with landing_on(tmp_path, segment_bytes=SMALL) as landing:
        monkeypatch.setattr(landing.folder, "pending", exhausted)
        for number in range(3):
            landing.commit(SPANS, [record_of(number)])
            eventually_converted(landing)
        monkeypatch.undo()
    check_folder(tmp_path, range(3))


def test_beyond_the_disk_cap_there_is_no_room_until_files_are_consumed(tmp_path: Path) -> None:
    """Segments and files that wait count; those that were merged do not."""
    clock = FakeClock()
    with landing_on(tmp_path, clock=clock, disk_bytes=20_000) as landing:
        assert landing.has_room()
        for number in range(10):
            landing.commit(SPANS, [record_of(number, padding=2_000)])
        assert not landing.has_room()
    waiting = landing.folder.pending()
    with landing_on(tmp_path, clock=clock, disk_bytes=waiting[0].size) as landing:
        assert not landing.has_room()
        assert landing.stats().used_bytes >= waiting[0].size
        clock.await_sleepers(1)
        landing.folder.retire([file.name for file in waiting], 0.0)
        for path in (tmp_path / ".wal" / "spans").glob("*.digests"):
            path.unlink()
        assert not landing.has_room()
        clock.advance(1.0)
        eventually(landing.has_room)
        assert landing.stats().used_bytes == 0


def test_a_second_landing_on_the_same_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    """And may have the folder when the first is done."""
    with landing_on(tmp_path) as landing:
        landing.commit(SPANS, [record_of(1)])
        second = Landing(LandingSettings(folder=tmp_path, lock_patience=0.0))
        with pytest.raises(LandingError, match=r"another receiver uses .*\.wal; stop it") as caught:
            second.open()
        assert "\n" not in str(caught.value)
        assert second.close(0.0)
        assert segments_of(tmp_path) != []
    with landing_on(tmp_path):
        check_folder(tmp_path, [1])


@pytest.mark.parametrize("call", ["sync_folder", "remove"])
def test_a_folder_that_cannot_be_used_is_told_in_one_line(call: str, tmp_path: Path) -> None:
    """With its name, the reason and the remedy; it is not kept locked."""
    old = tmp_path / ".wal" / "spans" / f"{name_of(1)}.digests"
    old.parent.mkdir(parents=True)
    old.write_bytes(bytes(16))
    os.utime(old, (1.0, 1.0))
    disk = ScriptedDisk(tmp_path)
    disk.fail(call, errno.EROFS)
    landing = Landing(LandingSettings(folder=tmp_path), disk=disk)
    with pytest.raises(LandingError, match=r"cannot be used: Read-only file system; name") as error:
        landing.open()
    assert "\n" not in str(error.value)
    with landing_on(tmp_path):
        pass


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    """By its name."""
    (tmp_path / ".wal").write_bytes(b"")
    landing = Landing(LandingSettings(folder=tmp_path))
    with pytest.raises(LandingError, match=r"\.wal.* cannot be used: (Not a dir|File exists)"):
        landing.open()


def test_segments_may_lie_elsewhere(tmp_path: Path) -> None:
    """On a disk of their own, for one."""
    landing = Landing(
        LandingSettings(folder=tmp_path / "landing", segments=tmp_path / "wal", segment_age=1e6)
    )
    landing.open()
    landing.commit(SPANS, [record_of(1)])
    assert len(list((tmp_path / "wal" / "spans").glob("*.wal"))) == 1
    assert landing.close(30.0)
    assert not (tmp_path / "landing" / ".wal").exists()
    check_folder(tmp_path / "landing", [1])


def test_what_an_earlier_process_has_left_lands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whole, torn and empty segments."""
    caplog.set_level("INFO", "penstock.land")
    write_segment(tmp_path, name_of(1), record_of(1), record_of(2))
    write_segment(tmp_path, name_of(2), record_of(3), rest=b"torn")
    write_segment(tmp_path, name_of(3))
    write_segment(tmp_path, name_of(4)).write_bytes(b"")
    with landing_on(tmp_path) as landing:
        eventually_converted(landing)
    check_folder(tmp_path, [1, 2, 3])
    assert "land.recovered: 4 segments" in caplog.text


def test_what_a_look_at_the_disk_has_left_goes(tmp_path: Path) -> None:
    """A process may die while it tries whether the disk can be written."""
    (tmp_path / ".wal").mkdir()
    (tmp_path / ".wal" / ".probe.tmp").write_bytes(bytes(100))
    with landing_on(tmp_path):
        assert not (tmp_path / ".wal" / ".probe.tmp").exists()


def test_a_request_in_two_segments_lands_once(tmp_path: Path) -> None:
    """It was written, but not known to be, when the process died; and sent again before that."""
    write_segment(tmp_path, name_of(1), record_of(1), record_of(2))
    write_segment(tmp_path, name_of(2), record_of(2), record_of(3))
    write_segment(tmp_path, name_of(3), record_of(2))
    with landing_on(tmp_path) as landing:
        eventually_converted(landing)
        assert landing.stats().repeated[SPANS] == 2
    check_folder(tmp_path, [1, 2, 3])


def test_a_request_that_landed_from_a_later_segment_lands_once(tmp_path: Path) -> None:
    """Its digest tells."""
    write_segment(tmp_path, name_of(1), record_of(1), record_of(2))
    with landing_on(tmp_path):
        pass
    write_segment(tmp_path, name_of(0), record_of(2), record_of(3))
    with landing_on(tmp_path):
        pass
    check_folder(tmp_path, [1, 2, 3])


def test_digests_are_known_after_a_restart_for_their_time(tmp_path: Path) -> None:
    """Of what landed and of what is still in segments; with the times of their segments."""
    with landing_on(tmp_path) as landing:
        landing.commit(SPANS, [record_of(1)])
    write_segment(tmp_path, name_of(1), record_of(2))
    landing = Landing(LandingSettings(folder=tmp_path))
    known = landing.open()
    assert landing.close(30.0)
    assert [digest for _, digest in known] == [record_of(2).digest, record_of(1).digest]
    assert known[0][0] == 1_700_000_000.001
    assert known[1][0] > known[0][0]
    for path in (tmp_path / ".wal" / "spans").glob("*.digests"):
        os.utime(path, (1_000.0, 1_000.0))
    later = Landing(LandingSettings(folder=tmp_path, remember=600.0), now=lambda: 1_600.0)
    assert len(later.open()) == 2
    assert later.close(30.0)
    later = Landing(LandingSettings(folder=tmp_path, remember=600.0), now=lambda: 1_600.1)
    assert later.open() == []
    assert later.close(30.0)
    assert not list((tmp_path / ".wal" / "spans").iterdir())


def test_digests_are_forgotten_while_it_runs(tmp_path: Path) -> None:
    """Their files do not pile up."""
    now = 2_000_000_000.0
    landing = Landing(
        LandingSettings(folder=tmp_path, segment_bytes=SMALL, remember=600.0), now=lambda: now
    )
    landing.open()
    landing.commit(SPANS, [record_of(1)])
    eventually(lambda: landing.stats().files[SPANS] == 1)
    for path in (tmp_path / ".wal" / "spans").glob("*.digests"):
        os.utime(path, (now - 601.0, now - 601.0))
    landing.commit(SPANS, [record_of(2)])
    assert landing.close(30.0)
    assert not list((tmp_path / ".wal" / "spans").glob("*.wal"))


def test_closing_gives_up_at_its_deadline(tmp_path: Path) -> None:
    """What is left is on the disk, and lands when the folder is opened again."""
    clock, disk = FakeClock(), ScriptedDisk(tmp_path)
    disk.fail("rename .*parquet", errno.EROFS)
    settings = LandingSettings(folder=tmp_path, segment_age=1e6)
    landing = Landing(settings, disk=disk, clock=clock)
    landing.open()
    landing.commit(SPANS, [record_of(1)])
    done: list[bool] = []
    closer = threading.Thread(target=lambda: done.append(landing.close(3.0)))
    closer.start()
    for tries in range(1, 7):  # at once, then every half second
        eventually_failed(landing, tries)
        clock.await_sleepers(1)
        clock.advance(0.5)
    closer.join(10.0)
    assert done == [False]
    assert segments_of(tmp_path) != []
    with landing_on(tmp_path):
        pass
    check_folder(tmp_path, [1])


def test_at_the_end_what_failed_is_tried_at_once(tmp_path: Path) -> None:
    """Not after the pause that it had come to, when nobody was in a hurry."""
    clock, disk = FakeClock(), ScriptedDisk(tmp_path)
    disk.fail("rename .*parquet", errno.EROFS)
    landing = Landing(LandingSettings(folder=tmp_path, segment_bytes=SMALL), disk=disk, clock=clock)
    landing.open()
    landing.commit(SPANS, [record_of(1)])
    for tries, pause in enumerate((0.5, 1.0, 2.0, 4.0), start=1):
        eventually_failed(landing, tries)
        clock.await_sleepers(1)
        clock.advance(pause)
    eventually_failed(landing, 5)
    clock.await_sleepers(1)
    disk.mend()
    assert landing.close(3.0)
    check_folder(tmp_path, [1])


def test_a_landing_that_was_not_opened_can_be_closed(tmp_path: Path) -> None:
    """Whoever gives up before that closes all the same."""
    assert Landing(LandingSettings(folder=tmp_path)).close(1.0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_another_user_is_told_in_one_line(tmp_path: Path) -> None:
    """What the permissions of the folder say, without anybody pretending."""
    with landing_on(tmp_path):
        pass
    (tmp_path / ".wal" / "lock").chmod(0o400)
    with pytest.raises(LandingError, match=r"lock cannot be used: Permission denied; name"):
        Landing(LandingSettings(folder=tmp_path)).open()
