"""Segments: what was written whole is read back, whatever lies around it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.land.segments import MAGIC, Record, digest_of, pieces_of, read_segment
from penstock.telemetry import Signal

RECORDS = tuple(
    Record(digest_of(Signal.SPANS, payload), payload)
    for payload in (b"first", b"", b"the third one", b"4")
)
HEAD = 24


def segment(path: Path, *records: Record) -> bytes:
    """Write a segment and return its bytes."""
    data = MAGIC + b"".join(piece for record in records for piece in pieces_of(record))
    path.write_bytes(data)
    return data


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    """In their order, an empty one too."""
    segment(tmp_path / "a.wal", *RECORDS)
    contents = read_segment(tmp_path / "a.wal")
    assert contents.records == RECORDS
    assert contents.remains == b""


@pytest.mark.parametrize("data", [b"", MAGIC[:5], MAGIC], ids=["nothing", "half a line", "a line"])
def test_a_segment_without_records_is_empty(data: bytes, tmp_path: Path) -> None:
    """A process may die before the first record, or before the first line is whole."""
    (tmp_path / "a.wal").write_bytes(data)
    contents = read_segment(tmp_path / "a.wal")
    assert contents.records == ()
    assert contents.remains == (b"" if data == MAGIC else data)


def test_what_is_no_segment_has_no_records(tmp_path: Path) -> None:
    """All of it remains."""
    (tmp_path / "a.wal").write_bytes(b"something else entirely")
    contents = read_segment(tmp_path / "a.wal")
    assert contents == type(contents)((), b"something else entirely")


def test_cut_anywhere_the_whole_records_are_read(tmp_path: Path) -> None:
    """At every byte: as many records as are whole, and the torn one remains."""
    data = segment(tmp_path / "a.wal", *RECORDS)
    ends = [len(MAGIC)]
    for record in RECORDS:
        ends.append(ends[-1] + HEAD + len(record.payload))
    for cut in range(len(MAGIC), len(data) + 1):
        (tmp_path / "a.wal").write_bytes(data[:cut])
        contents = read_segment(tmp_path / "a.wal")
        whole = sum(end <= cut for end in ends) - 1
        assert contents.records == RECORDS[:whole]
        assert contents.remains == data[ends[whole] : cut]


def test_what_lies_behind_the_end_is_not_read(tmp_path: Path) -> None:
    """A failed group that could not be cut off does not count, however whole it looks."""
    end = len(segment(tmp_path / "a.wal", *RECORDS[:2]))
    segment(tmp_path / "a.wal", *RECORDS)
    contents = read_segment(tmp_path / "a.wal", end)
    assert contents.records == RECORDS[:2]
    assert contents.remains == b""


@pytest.mark.parametrize("place", [4, HEAD - 4, HEAD], ids=["digest", "checksum", "payload"])
def test_a_damaged_record_costs_no_other_its_place(place: int, tmp_path: Path) -> None:
    """The one is left out, and remains; those behind it were acknowledged too."""
    data = bytearray(segment(tmp_path / "a.wal", *RECORDS))
    data[len(MAGIC) + place] ^= 0x10
    (tmp_path / "a.wal").write_bytes(data)
    contents = read_segment(tmp_path / "a.wal")
    assert contents.records == RECORDS[1:]
    assert contents.remains == data[len(MAGIC) : len(MAGIC) + HEAD + len(b"first")]


def test_a_damaged_length_ends_the_segment(tmp_path: Path) -> None:
    """Where the next record begins is not known any more; all behind it remains."""
    data = bytearray(segment(tmp_path / "a.wal", *RECORDS))
    start = len(MAGIC) + HEAD + len(b"first")
    data[start + 3] = 0xFF
    (tmp_path / "a.wal").write_bytes(data)
    contents = read_segment(tmp_path / "a.wal")
    assert contents.records == RECORDS[:1]
    assert contents.remains == data[start:]


def test_zeros_are_no_records(tmp_path: Path) -> None:
    """A file system may leave them where the last write was to be."""
    data = segment(tmp_path / "a.wal", *RECORDS)
    (tmp_path / "a.wal").write_bytes(data + bytes(100))
    contents = read_segment(tmp_path / "a.wal")
    assert contents.records == RECORDS
    assert contents.remains == bytes(100)


def test_equal_requests_of_two_signals_differ() -> None:
    """An empty request is a valid one of each signal."""
    assert len({digest_of(signal, b"same") for signal in Signal}) == len(Signal)
    assert digest_of(Signal.LOGS, b"same") == digest_of(Signal.LOGS, b"same")


@settings(derandomize=True, max_examples=50)
@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
def test_whatever_byte_is_damaged_no_wrong_record_is_read(
    payloads: list[bytes], data: st.DataObject
) -> None:
    """Every record that is read was written."""
    records = [Record(digest_of(Signal.LOGS, payload), payload) for payload in payloads]
    whole = MAGIC + b"".join(piece for record in records for piece in pieces_of(record))
    broken = bytearray(whole)
    position = data.draw(st.integers(0, len(whole) - 1))
    broken[position] ^= data.draw(st.integers(1, 255))

    class Held:
        """A path whose content is in memory."""

        @staticmethod
        def read_bytes() -> bytes:
            return bytes(broken)

    contents = read_segment(Held())  # type: ignore[arg-type] # all that is asked of a path
    assert set(contents.records) <= set(records)
    if position >= len(MAGIC):
        assert len(contents.remains) + len(MAGIC) + sum(
            HEAD + len(record.payload) for record in contents.records
        ) == len(whole)
