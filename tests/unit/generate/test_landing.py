"""Landing generated telemetry: files appear whole, never twice, and failures are told clearly."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import JobError
from penstock.generate import generate_logs, generate_points, generate_spans, write_landing
from penstock.telemetry import SIGNALS, Signal
from tests.unit.generate.rig import small, whole

GENERATORS = {
    Signal.SPANS: generate_spans,
    Signal.POINTS: generate_points,
    Signal.LOGS: generate_logs,
}


def files_below(folder: Path) -> list[Path]:
    """Return all files, those that readers pass over too."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def raising(error: BaseException, after: int = 0) -> Callable[..., NoReturn]:
    """Return a function that works *after* times (as fsync would) and then raises."""
    calls = iter(range(after))

    def fail(*_arguments: object) -> Any:  # noqa: ANN401 - stands for whatever it replaces
        if next(calls, None) is None:
            raise error

    return fail


def test_what_lands_is_what_is_generated(tmp_path: Path) -> None:
    """One folder for each signal; read in the order of their names, files have all rows."""
    settings = small(rows_per_file=1_234)
    summary = write_landing(settings, tmp_path)
    for signal, generate in GENERATORS.items():
        paths = sorted((tmp_path / signal).glob("*.parquet"))
        tables = [pq.read_table(path, partitioning=None) for path in paths]
        assert all(table.schema.equals(SIGNALS[signal]) for table in tables)
        assert pa.concat_tables(tables).combine_chunks().equals(whole(generate, settings))
    assert sorted(summary.files) == files_below(tmp_path)
    assert (summary.spans, summary.points, summary.logs) == (5_000, 2_000, 300)
    assert summary.bytes == sum(path.stat().st_size for path in summary.files)
    assert (summary.start_ns, summary.end_ns) == (settings.start_ns, settings.end_ns)


def test_files_are_compressed_in_row_groups_of_bounded_size(tmp_path: Path) -> None:
    """Readers share the work by row groups; texts that repeat are stored once."""
    settings = small(spans=200_000, points=0, logs=0)
    [path] = write_landing(settings, tmp_path).files
    metadata = pq.ParquetFile(path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [131_072, 200_000 - 131_072]
    columns = {
        group.column(number).path_in_schema: group.column(number)
        for group in groups
        for number in range(group.num_columns)
    }
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    for name in ("service_name", "db_statement", "attributes.key_value.value"):
        assert columns[name].has_dictionary_page, name
    assert not columns["span_id"].has_dictionary_page


def test_a_second_run_adds_files(tmp_path: Path) -> None:
    """Equal settings do not overwrite what is there; names carry the seed."""
    settings = small(seed=77)
    first, second = (write_landing(settings, tmp_path).files for _ in range(2))
    assert sorted([*first, *second]) == files_below(tmp_path)
    assert len({*first, *second}) == 6
    assert all("-s77-" in path.name for path in first)


def test_a_reader_never_sees_a_file_in_the_making(tmp_path: Path) -> None:
    """While rows are being written, every file that does not start with a dot is whole."""
    seen: list[tuple[int, int]] = []
    hidden = 0

    def look(done: int, total: int) -> None:
        nonlocal hidden
        seen.append((done, total))
        for path in files_below(tmp_path):
            if path.name.startswith("."):
                hidden += 1
            else:
                pq.read_table(path, partitioning=None)

    write_landing(small(rows_per_file=2_000), tmp_path, look)
    assert hidden == len(seen) == 5
    assert seen[-1] == (7_300, 7_300)
    assert sorted(seen) == seen


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_failure_before_the_name_is_given_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What was written completely but not made durable or renamed is gone again."""
    failure = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    target: Any = os if step == "fsync" else Path
    monkeypatch.setattr(target, step, raising(failure))
    with pytest.raises(JobError, match=r"spans: No space left on device; make room or choose"):
        write_landing(small(), tmp_path)
    assert files_below(tmp_path) == []


def test_complete_files_stay_when_a_later_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are whole, so a reader may have taken them already; the message says how many."""
    # Each file is synced, and then its folder: the third call is for the second file.
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.EIO, "Input/output error"), after=2))
    with pytest.raises(JobError, match=r"Input/output error.*\(complete files stay: 1\)"):
        write_landing(small(rows_per_file=3_000), tmp_path)
    [path] = files_below(tmp_path)
    assert pq.read_table(path, partitioning=None).num_rows == 3_000


@pytest.mark.parametrize("step", ["writing", "syncing"])
def test_an_interrupt_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Ctrl-C passes through, and the file in the making is gone."""
    interrupt = raising(KeyboardInterrupt())
    if step == "syncing":
        monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_landing(small(), tmp_path, interrupt if step == "writing" else None)
    assert files_below(tmp_path) == []


def test_a_folder_that_cannot_be_is_one_clear_error(tmp_path: Path) -> None:
    """The message names the folder and the cause."""
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"cannot write to the landing folder .*file/spans: Not a"):
        write_landing(small(), tmp_path / "file")


def test_a_folder_that_may_not_be_written_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the folder and the cause; forced, since root may write everywhere."""
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    monkeypatch.setattr(Path, "open", raising(denied))
    with pytest.raises(JobError, match=r"cannot write to the landing folder .*: Permission denied"):
        write_landing(small(), tmp_path)


def test_nothing_to_land_is_no_files(tmp_path: Path) -> None:
    """The folders are there all the same, so that a reader can start."""
    summary = write_landing(replace(small(), spans=0, points=0, logs=0), tmp_path)
    assert summary.files == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "points", "spans"]
