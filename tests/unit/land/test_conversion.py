"""From a segment to a file: in an order that can be repeated from any point on."""

import errno
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.land import LandingFolder
from penstock.land.conversion import convert
from penstock.land.digests import kept_digests
from penstock.land.log import Segment
from penstock.land.segments import Record, digest_of
from penstock.telemetry import Signal, otlp, plain
from penstock.telemetry.requests import parse
from penstock.telemetry.schema import SIGNALS
from tests.support.disks import ScriptedDisk
from tests.support.receiver import landed_spans
from tests.unit.land.rig import BROKEN, broken_record, record_of, write_segment

NAME = "1700000000000-0123456789ab-000001"
FILE, DIGESTS = "spans/*.parquet", ".wal/spans/*.digests"
OTHER = record_of(9)


@pytest.fixture
def folder(tmp_path: Path) -> LandingFolder:
    """Return a landing folder that is ready."""
    folder = LandingFolder(tmp_path)
    folder.prepare()
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> ScriptedDisk:
    """Return a disk that writes down what it is asked."""
    return ScriptedDisk(tmp_path)


def left(folder: LandingFolder, *records: Record, rest: bytes = b"") -> Segment:
    """Return a segment that an earlier process has left."""
    return Segment(Signal.SPANS, write_segment(folder.root, NAME, *records, rest=rest))


def rejected(folder: LandingFolder, ending: str) -> tuple[bytes, str]:
    """Return what was set aside under the segment's name, and its reason."""
    path = folder.root / "rejected" / "spans" / f"{NAME}{ending}"
    return path.read_bytes(), path.with_name(f"{path.name}.reason.txt").read_text("utf-8")


def test_the_segment_goes_when_all_else_is_on_the_disk(
    folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """The digests, their name, the file, its name; only then is the segment not needed."""
    segment = left(folder, record_of(1, 2), record_of(3))
    converted = convert(segment, folder, disk)
    assert disk.calls == [
        "create .wal/spans/.*.digests.tmp",
        "write .wal/spans/.*.digests.tmp",
        "sync .wal/spans/.*.digests.tmp",
        f"rename .wal/spans/.*.digests.tmp {DIGESTS}",
        "sync_folder .wal/spans",
        "create spans/.*.parquet.tmp",
        "write spans/.*.parquet.tmp",
        "sync spans/.*.parquet.tmp",
        f"rename spans/.*.parquet.tmp {FILE}",
        "sync_folder spans",
        "remove .wal/spans/*.wal",
    ]
    assert converted.file == f"spans/{NAME}.parquet"
    assert converted.records == 3
    assert converted.size == folder.pending()[0].size
    assert landed_spans(folder.root) == {1: 1, 2: 1, 3: 1}


def test_what_is_set_aside_is_on_the_disk_before_the_segment_goes(
    folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """It was acknowledged, too."""
    convert(left(folder, broken_record(), rest=b"torn"), folder, disk)
    assert disk.calls[-1] == "remove .wal/spans/*.wal"
    for ending in (".torn", "-0.otlp"):
        for name in (f".*{ending}.tmp", f".*{ending}.reason.txt.tmp"):
            assert f"sync rejected/spans/{name}" in disk.calls


def test_a_file_has_the_columns_of_its_signal(folder: LandingFolder, disk: ScriptedDisk) -> None:
    """Whether its requests were decoded together or one by one."""
    convert(left(folder, record_of(1), broken_record()), folder, disk)
    schema = pq.read_schema(folder.path(f"spans/{NAME}.parquet"))
    assert schema.equals(SIGNALS[Signal.SPANS])


def test_a_file_that_landed_is_not_landed_again(folder: LandingFolder, disk: ScriptedDisk) -> None:
    """Whoever was killed before the segment went gets no second file; the name is made to last."""
    segment = left(folder, record_of(1))
    disk.fail("^remove .*wal", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        convert(segment, folder, disk)
    inode = folder.path(f"spans/{NAME}.parquet").stat().st_ino
    disk.mend()
    disk.calls.clear()
    converted = convert(segment, folder, disk)
    assert disk.calls[0] == "sync_folder spans"
    assert folder.path(f"spans/{NAME}.parquet").stat().st_ino == inode
    assert (converted.records, converted.size) == (1, 0)
    assert not segment.path.exists()


@pytest.mark.parametrize("place", ["consumed", "rejected"])
def test_a_file_that_was_taken_is_not_landed_again(
    place: str, folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """It has been merged, or set aside as unreadable, between two tries."""
    segment = left(folder, record_of(1))
    disk.fail("^remove .*wal", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        convert(segment, folder, disk)
    name = f"spans/{NAME}.parquet"
    folder.path(name).rename(folder.root / place / name)
    disk.mend()
    convert(segment, folder, disk)
    assert folder.pending() == []
    assert not segment.path.exists()


def test_a_name_that_could_not_be_synced_is_synced_the_next_time(
    folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """The file is to be seen already, but would not survive the machine."""
    segment = left(folder, record_of(1))
    disk.fail("sync_folder spans", errno.EIO)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            convert(segment, folder, disk)
        assert segment.path.exists()
    disk.mend()
    convert(segment, folder, disk)
    assert landed_spans(folder.root) == {1: 1}


def test_known_requests_are_left_to_others(folder: LandingFolder, disk: ScriptedDisk) -> None:
    """They count as repeated, and are not among the digests that stay."""
    segment = left(folder, OTHER, record_of(1), record_of(1))
    converted = convert(segment, folder, disk, {OTHER.digest})
    assert (converted.repeated, converted.records) == (2, 1)
    assert landed_spans(folder.root) == {1: 1}
    assert kept_digests(folder.root / f".wal/spans/{NAME}.digests") == [record_of(1).digest]


def test_what_a_segment_has_to_land_is_decided_once(
    folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """The digests say it, whatever else is in the segment or known by the next who tries."""
    segment = left(folder, record_of(1), record_of(2))
    end = segment.path.stat().st_size - len(record_of(2).payload) - 24
    disk.fail("create spans")
    with pytest.raises(OSError, match="No space left"):
        convert(Segment(Signal.SPANS, segment.path, end), folder, disk)
    disk.mend()
    converted = convert(segment, folder, disk, {record_of(1).digest})
    assert converted.records == 1
    assert landed_spans(folder.root) == {1: 1}


@pytest.mark.parametrize("records", [(), (OTHER,)], ids=["empty", "all known"])
def test_a_segment_without_news_leaves_nothing(
    records: tuple[Record, ...], folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """No file, no digests."""
    converted = convert(left(folder, *records), folder, disk, {OTHER.digest})
    assert converted.file is None
    assert disk.calls == ["remove .wal/spans/*.wal"]


def test_an_undecodable_request_is_set_aside_and_the_others_land(
    folder: LandingFolder, disk: ScriptedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """As it came, with its reason; its digest stays, as sending it again would not help."""
    segment = left(folder, record_of(1), broken_record(), record_of(2))
    converted = convert(segment, folder, disk)
    assert (converted.set_aside, converted.records) == (1, 2)
    assert landed_spans(folder.root) == {1: 1, 2: 1}
    data, reason = rejected(folder, "-0.otlp")
    assert data == BROKEN
    assert reason.startswith("MalformedError: ")
    assert len(kept_digests(folder.root / f".wal/spans/{NAME}.digests")) == 3
    assert "land.decoding_one_by_one" in caplog.text


def test_one_by_one_the_same_records_are_rejected(
    folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """A span without an id is left out, and counted by its reason, either way."""
    counted = []
    for records in ((record_of(1), bad_span()), (record_of(1), bad_span(), broken_record())):
        segment = left(folder, *records)
        converted = convert(segment, folder, disk)
        counted.append((converted.records, dict(converted.rejected)))
        folder.path(f"spans/{NAME}.parquet").unlink()
    assert counted == [(1, {"span_id": 1})] * 2


def bad_span() -> Record:
    """Return a request with a span whose id is too short."""
    message = parse(Signal.SPANS, record_of(7).payload)
    message.resource_spans[0].scope_spans[0].spans[0].span_id = b"1234"
    payload = message.SerializeToString()
    return Record(digest_of(Signal.SPANS, payload), payload)


def test_a_torn_end_is_kept_and_the_rest_lands(
    folder: LandingFolder, disk: ScriptedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody was told that it landed, but somebody may ask."""
    convert(left(folder, record_of(1), rest=b"half a record"), folder, disk)
    assert landed_spans(folder.root) == {1: 1}
    data, reason = rejected(folder, ".torn")
    assert data == b"half a record"
    assert reason == f"13 bytes of segment {NAME} are not a whole request\n"
    assert "land.torn_segment: 13 bytes" in caplog.text


def test_damage_in_the_middle_costs_one_request(folder: LandingFolder, disk: ScriptedDisk) -> None:
    """Those before and behind it land; what is left of it is kept."""
    segment = left(folder, record_of(1), record_of(2), record_of(3))
    data = bytearray(segment.path.read_bytes())
    data[len(data) // 2] ^= 1
    segment.path.write_bytes(data)
    convert(segment, folder, disk)
    assert landed_spans(folder.root) == {1: 1, 3: 1}
    assert record_of(2).digest in rejected(folder, ".torn")[0]


def test_without_memory_no_request_is_to_blame(
    folder: LandingFolder, disk: ScriptedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is kept, and nothing is set aside."""

    def exhausted(*_: object) -> None:
        raise MemoryError

    segment = left(folder, record_of(1), broken_record())
    for module in (plain, otlp):  # one by one first: the broken request leads there
        monkeypatch.setattr(module, "decode", exhausted)
        with pytest.raises(MemoryError):
            convert(segment, folder, disk)
        monkeypatch.undo()
    assert segment.path.exists()
    assert list((folder.root / "rejected" / "spans").iterdir()) == []


@pytest.mark.parametrize("signal", list(Signal))
def test_every_signal_lands_in_its_folder(
    signal: Signal, folder: LandingFolder, disk: ScriptedDisk
) -> None:
    """An empty request of it has nothing to land."""
    path = folder.root / ".wal" / signal / f"{NAME}.wal"
    path.parent.mkdir(parents=True)
    source = write_segment(folder.root, "x", Record(digest_of(signal, b""), b""))
    source.rename(path)
    converted = convert(Segment(signal, path), folder, disk)
    assert (converted.signal, converted.file, converted.records) == (signal, None, 0)
    assert not path.exists()


def test_a_folder_that_was_removed_is_made_again(folder: LandingFolder, disk: ScriptedDisk) -> None:
    """Whoever makes room may have removed the folder with all that was set aside."""
    (folder.root / "rejected" / "spans").rmdir()
    (folder.root / "rejected" / "points").rmdir()
    convert(left(folder, broken_record()), folder, disk)
    assert rejected(folder, "-0.otlp")[0] == BROKEN
