"""The landing folder as Spark's source: which files are in which batch, and in which task."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.land import LandedFile, LandingFolder
from penstock.spark.source import LandingSource, _LandingReader, balanced

LIMIT = ReadAllAvailable()
NOW = 1_700_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> LandingFolder:
    """Return a landing folder that is ready."""
    folder = LandingFolder(tmp_path)
    folder.prepare()
    return folder


def put(folder: LandingFolder, *sizes: int, prefix: str = "f") -> list[str]:
    """Put files of these sizes into the folder; return their names."""
    names = [f"spans/{prefix}{number}.parquet" for number in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        (folder.root / name).write_bytes(b"x" * size)
    return names


def reader(folder: LandingFolder, max_files: int = 100, max_bytes: int = 10_000) -> _LandingReader:
    """Return a reader, as after every start."""
    options = {"path": folder.root, "parallelism": 2}
    limits = {"max_files": max_files, "max_bytes": max_bytes}
    return _LandingReader({name: str(value) for name, value in (options | limits).items()})


def names(offset: dict[str, Any]) -> list[str]:
    """Return the files that an offset is about."""
    return [name for name, _ in offset["files"]]


def batches(folder: LandingFolder, reading: _LandingReader, *, limit: int = 100) -> list[list[str]]:
    """Plan and merge batch after batch until nothing is left."""
    planned: list[list[str]] = []
    offset = reading.initialOffset()
    for _ in range(limit):
        after = reading.latestOffset(offset, LIMIT)
        if after == offset:
            return planned
        planned.append(names(after))
        folder.retire(names(after), NOW)
        offset = json.loads(json.dumps(after))
    raise AssertionError(f"still new batches after {limit}: {planned[-2:]}")


def shares(reading: _LandingReader, start: dict[str, Any], end: dict[str, Any]) -> list[list[str]]:
    """Return the files that each task reads."""
    return [
        name
        for partition in reading.partitions(start, end)
        for batch in reading.read(partition)
        for name in [batch.column("name").to_pylist()]
    ]


def test_every_file_is_in_one_batch(folder: LandingFolder) -> None:
    """All that fit are in the first one."""
    files = put(folder, 10, 20, 30)
    assert batches(folder, reader(folder)) == [files]


def test_a_batch_has_so_many_files_at_most(folder: LandingFolder) -> None:
    """The oldest names first."""
    files = put(folder, *[1] * 5)
    planned = batches(folder, reader(folder, max_files=2))
    assert planned == [files[:2], files[2:4], files[4:]]


def test_a_batch_has_so_many_bytes_at_most(folder: LandingFolder) -> None:
    """Unless a single file is larger: that is a batch of its own."""
    files = put(folder, 50, 50, 1, 500, 10, 90)
    planned = batches(folder, reader(folder, max_bytes=100))
    assert planned == [files[:2], files[2:3], files[3:4], files[4:]]


def test_nothing_new_is_no_batch(folder: LandingFolder) -> None:
    """The offset stays what it was, and there is nothing to read."""
    reading = reader(folder)
    start = reading.initialOffset()
    assert reading.latestOffset(start, LIMIT) == start
    assert reading.partitions(start, start) == []


def test_files_that_come_later_are_in_a_later_batch(folder: LandingFolder) -> None:
    """Without an end, as long as the job runs."""
    first = put(folder, 1)
    reading = reader(folder)
    one = reading.latestOffset(reading.initialOffset(), LIMIT)
    folder.retire(names(one), NOW)
    second = put(folder, 1, prefix="g")
    other = reading.latestOffset(one, LIMIT)
    assert (names(one), names(other)) == (first, second)
    assert other["sequence"] == one["sequence"] + 1


def test_a_batch_is_not_planned_again_while_its_files_are_there(folder: LandingFolder) -> None:
    """They leave when the batch is merged, which is before the next one is planned."""
    put(folder, 1)
    reading = reader(folder)
    one = reading.latestOffset(reading.initialOffset(), LIMIT)
    assert reading.latestOffset(one, LIMIT) == one


def test_a_batch_that_is_run_again_has_the_same_files(folder: LandingFolder) -> None:
    """Those of its offset, whatever has landed or left in between."""
    files = put(folder, 10, 20)
    before = reader(folder)
    start = before.initialOffset()
    end = before.latestOffset(start, LIMIT)
    put(folder, 30, prefix="new")
    (folder.root / files[0]).unlink()
    after = reader(folder)
    again = shares(after, json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    assert sorted(name for share in again for name in share) == files


def test_a_run_that_ends_reads_what_was_there_when_it_began(folder: LandingFolder) -> None:
    """What lands meanwhile would keep it from ending."""
    files = put(folder, *[1] * 3)
    reading = reader(folder, max_files=2)
    reading.prepareForTriggerAvailableNow()
    put(folder, 1, prefix="a-new-one")
    assert batches(folder, reading) == [files[:2], files[2:]]


def test_an_offset_holds_its_own_files_only(folder: LandingFolder) -> None:
    """It does not grow with what was merged before."""
    put(folder, *[1] * 40)
    reading = reader(folder, max_files=2)
    offset = reading.initialOffset()
    for _ in range(20):
        offset = reading.latestOffset(offset, LIMIT)
        folder.retire(names(offset), NOW)
    assert len(offset["files"]) == 2
    assert offset["sequence"] == 20


def test_files_are_dealt_out_to_the_tasks(folder: LandingFolder) -> None:
    """As many as run at once."""
    files = put(folder, 40, 30, 20, 10)
    reading = reader(folder)
    start = reading.initialOffset()
    dealt = shares(reading, start, reading.latestOffset(start, LIMIT))
    assert dealt == [[files[0], files[3]], [files[1], files[2]]]


@pytest.mark.parametrize(
    ("sizes", "tasks", "loads"),
    [
        ([5, 4, 3, 3, 3], 2, [8, 10]),
        ([100, 1, 1, 1], 2, [100, 3]),
        ([7], 4, [7]),
        ([], 4, []),
        ([0, 0, 0], 2, [0, 0]),
    ],
)
def test_the_largest_file_goes_to_the_lightest_task(
    sizes: Sequence[int], tasks: int, loads: list[int]
) -> None:
    """No task has less than nothing to do, and none is there without files."""
    files = [LandedFile(f"f{number}", size) for number, size in enumerate(sizes)]
    dealt = balanced(files, tasks)
    size_of = {file.name: file.size for file in files}
    assert [sum(size_of[name] for name in share) for share in dealt] == loads
    assert sorted(name for share in dealt for name in share) == sorted(size_of)


def test_the_same_files_are_always_dealt_out_the_same_way() -> None:
    """In whatever order they are listed."""
    files = [LandedFile(f"f{number}", 5) for number in range(7)]
    assert balanced(files, 3) == balanced(files[::-1], 3)


def test_the_source_is_known_by_its_name(folder: LandingFolder) -> None:
    """And says what it reads when Spark asks."""
    source = LandingSource({"path": str(folder.root)})
    assert source.name() == "penstock_landing"
    assert source.schema() == "name string"
    assert str(folder.root) in repr(reader(folder))
