"""Landed files and what only looks like one."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.land.reading import UnreadableFileError, read_batches
from penstock.telemetry import SPANS, Signal
from tests.oracle.samples import span

COLUMNS = ["span_id", "name", "start_ns", "http_method", "attributes"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the file lies."""
    return tmp_path / "file.parquet"


def written(path: Path, rows: int = 3, **options: Any) -> pa.Table:  # noqa: ANN401
    """Write spans; return them as a table."""
    spans = [span(number=n, http_method="GET" if n % 2 else None) for n in range(rows)]
    table = pa.Table.from_pylist(spans, schema=SPANS)
    pq.write_table(table, path, **options)
    return table


def read(path: Path, columns: list[str] = COLUMNS) -> list[pa.RecordBatch]:
    """Read all of the file."""
    return list(read_batches(path, Signal.SPANS, columns))


def changed(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """Return the table with another column in the place of one."""
    return table.set_column(table.schema.get_field_index(name), name, column)


def test_the_columns_that_were_asked_for_are_read(path: Path) -> None:
    """In their order, texts by code."""
    table = written(path)
    (batch,) = read(path)
    assert batch.schema.names == COLUMNS
    assert pa.types.is_dictionary(batch.schema.field("name").type)
    assert batch.column("http_method").to_pylist() == table["http_method"].to_pylist()
    assert batch.column("attributes").to_pylist() == table["attributes"].to_pylist()


def test_row_groups_and_rows_are_all_read(path: Path) -> None:
    """However the file was cut."""
    table = written(path, rows=10, row_group_size=3)
    found = [value for batch in read(path) for value in batch.column("span_id").to_pylist()]
    assert found == table["span_id"].to_pylist()


def test_a_file_without_rows_is_fine(path: Path) -> None:
    """It has nothing to say."""
    written(path, rows=0)
    assert sum(batch.num_rows for batch in read(path)) == 0


def test_further_columns_and_their_order_are_no_matter(path: Path) -> None:
    """A newer writer may know more."""
    table = written(path)
    pq.write_table(table.append_column("new", pa.array([1, 2, 3])).select(["new", *COLUMNS]), path)
    (batch,) = read(path)
    assert batch.schema.names == COLUMNS


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_may_be_stored_in_other_ways(path: Path, kind: pa.DataType) -> None:
    """They are texts all the same."""
    table = written(path)
    pq.write_table(changed(table, "name", table["name"].cast(kind)), path)
    (batch,) = read(path)
    assert batch.column("name").to_pylist() == ["work"] * 3


def truncated(path: Path) -> None:
    """Cut the file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_its_end(path: Path) -> None:
    """Take the last byte away."""
    path.write_bytes(path.read_bytes()[:-1])


def damaged(path: Path) -> None:
    """Turn the pages into nonsense and leave what describes them."""
    table = pq.read_table(path)
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(content)


def emptied(path: Path) -> None:
    """Leave nothing."""
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    """Write something else altogether."""
    path.write_text("name,latency\nshop,3\n", "utf-8")


def a_folder(path: Path) -> None:
    """Make it a folder of that name."""
    path.unlink()
    path.mkdir()


def of_other_columns(path: Path) -> None:
    """Write Parquet of another schema."""
    pq.write_table(pa.table({"x": [1]}), path)


def of_another_type(path: Path) -> None:
    """Write times as texts."""
    table = pq.read_table(path)
    pq.write_table(changed(table, "start_ns", table["start_ns"].cast(pa.string())), path)


def with_null(path: Path) -> None:
    """Leave out a value that has to be there."""
    schema = pa.schema([field.with_nullable(True) for field in SPANS])  # noqa: FBT003 # Arrow's
    pq.write_table(pa.Table.from_pylist([span() | {"start_ns": None}, span()], schema=schema), path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (truncated, "not a whole Parquet file"),
        (without_its_end, "not a whole Parquet file"),
        (damaged, "not a whole Parquet file"),
        (emptied, "not a whole Parquet file"),
        (foreign, "not a whole Parquet file"),
        (a_folder, "not a whole Parquet file"),
        (of_other_columns, "column 'span_id' is missing"),
        (of_another_type, "column 'start_ns' is string, not int64"),
        (with_null, "column 'start_ns' has rows without a value"),
    ],
)
def test_what_the_file_is_to_blame_for_is_told(
    path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    """In one line, whatever it is."""
    written(path)
    spoil(path)
    with pytest.raises(UnreadableFileError, match=reason) as error:
        read(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_file_that_is_not_there_is_not_unreadable(path: Path) -> None:
    """Somebody has taken it away."""
    with pytest.raises(FileNotFoundError):
        read(path)


@pytest.mark.parametrize(
    "trouble",
    [
        OSError(errno.EMFILE, "Too many open files"),
        PermissionError(errno.EACCES, "Permission denied"),
        pa.ArrowMemoryError("malloc of size 1 failed"),
    ],
)
def test_what_the_machine_is_to_blame_for_is_not_the_files_fault(
    path: Path, trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails and is started again; a good file must not be set aside for it."""
    written(path)

    def fail(*_: object, **__: object) -> None:
        raise trouble

    monkeypatch.setattr(pq, "read_metadata", fail)
    with pytest.raises(type(trouble)) as error:
        read(path)
    assert not isinstance(error.value, UnreadableFileError)
