"""Segments converted by a process beside this one: as here, and whatever becomes of it."""

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.land import LandingFolder
from penstock.land.converters import ConverterProcess, ConverterThread
from penstock.land.landing import Landing, LandingSettings
from penstock.land.log import Segment
from penstock.telemetry import Signal
from penstock.testing import eventually
from tests.support.receiver import check_folder, landed_spans
from tests.unit.land.rig import broken_record, record_of, write_segment

NAME = "1700000000000-0123456789ab-000001"
NOTHING: frozenset[bytes] = frozenset()


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConverterProcess]:
    """Lend a process that converts; its start takes a second."""
    lock = os.open(tmp_path_factory.mktemp("lock") / "lock", os.O_RDWR | os.O_CREAT)
    converter = ConverterProcess()
    converter.start(lock)
    yield converter
    converter.close()
    os.close(lock)


@pytest.fixture
def folder(tmp_path: Path) -> LandingFolder:
    """Return a landing folder that is ready."""
    folder = LandingFolder(tmp_path / "landing")
    folder.prepare()
    return folder


def process_of(converter: ConverterProcess) -> int:
    """Return the id of the process."""
    assert converter._process is not None
    return converter._process.pid


def test_a_segment_is_converted_as_it_would_be_here(
    folder: LandingFolder, tmp_path: Path, beside: ConverterProcess
) -> None:
    """The same file, the same figures, and what is known is left to others."""
    here = LandingFolder(tmp_path / "here")
    here.prepare()
    records = (record_of(1, 2), broken_record(), record_of(3))
    results = []
    for place, converter in ((folder, beside), (here, ConverterThread())):
        segment = Segment(Signal.SPANS, write_segment(place.root, NAME, *records))
        results.append(converter.convert(segment, place, frozenset({record_of(3).digest})))
    assert results[0] == results[1]
    assert (results[0].records, results[0].set_aside, results[0].repeated) == (2, 1, 1)
    assert landed_spans(folder.root) == landed_spans(here.root) == {1: 1, 2: 1}


def test_a_disk_that_fails_there_fails_here(
    folder: LandingFolder, beside: ConverterProcess
) -> None:
    """With the same error; the process goes on."""
    (folder.root / "spans").rmdir()
    segment = Segment(Signal.SPANS, write_segment(folder.root, NAME, record_of(1)))
    before = process_of(beside)
    with pytest.raises(OSError, match="No such file") as caught:
        beside.convert(segment, folder, NOTHING)
    assert caught.value.errno == errno.ENOENT
    folder.prepare()
    assert beside.convert(segment, folder, NOTHING).records == 1
    assert process_of(beside) == before


def test_it_outlasts_a_signal_that_is_meant_for_the_receiver(
    folder: LandingFolder, beside: ConverterProcess
) -> None:
    """Ctrl-C and a service manager reach all processes; the receiver still needs this one."""
    before = process_of(beside)
    path = write_segment(folder.root, NAME, record_of(1))
    assert beside.convert(Segment(Signal.SPANS, path), folder, NOTHING).records == 1
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(before, number)
    path = write_segment(folder.root, NAME.replace("1", "2"), record_of(2))
    assert beside.convert(Segment(Signal.SPANS, path), folder, NOTHING).records == 1
    assert process_of(beside) == before


def test_a_process_that_was_killed_is_started_again(
    folder: LandingFolder, beside: ConverterProcess
) -> None:
    """The segment is there as it was, and is converted the next time."""
    segment = Segment(Signal.SPANS, write_segment(folder.root, NAME, record_of(1)))
    before = process_of(beside)
    os.kill(before, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="has ended; it is started again"):
        beside.convert(segment, folder, NOTHING)
    assert beside.convert(segment, folder, NOTHING).records == 1
    assert process_of(beside) != before


def test_a_landing_survives_its_converter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the folder is free when both have ended, not before."""
    converter = ConverterProcess()
    settings = LandingSettings(folder=tmp_path, segment_bytes=1)
    landing = Landing(settings, converter=converter)
    landing.open()
    first = process_of(converter)
    with (tmp_path / ".wal" / "lock").open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.kill(first, signal.SIGKILL)
    landing.commit(Signal.SPANS, [record_of(1)])
    eventually(lambda: landing.stats().files[Signal.SPANS] == 1, timeout=60.0)
    assert landing.stats().trouble is None
    assert landing.close(60.0)
    check_folder(tmp_path, [1])
    assert "land.not_converted" in caplog.text
    with (tmp_path / ".wal" / "lock").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
