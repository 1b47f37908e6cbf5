"""What executors do with files, one by one."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.aggregation.aggregator import Horizon
from penstock.aggregation.partials import Partials
from penstock.aggregation.settings import AggregationSettings
from penstock.metrics import default_rules, parse_rules
from penstock.spark.task import AggregateFiles, FileResult
from penstock.store.contract import Retention
from penstock.telemetry import LOGS, POINTS, SPANS
from tests.oracle.samples import START, point, span
from tests.support.spark import land
from tests.unit.spark.rig import NOW

# Reads the map of attributes, as the default rules do not.
RULES = parse_rules('calls = from(Service.*).labelCount(tag["a"]);').metrics


@pytest.fixture
def task(tmp_path: Path) -> AggregateFiles:
    """Return a task over a landing folder."""
    horizon = Horizon.at(NOW, Retention())
    rules = (*default_rules(), *RULES)
    return AggregateFiles(str(tmp_path), rules, AggregationSettings(), horizon)


def run(task: AggregateFiles, *names: str) -> tuple[list[FileResult], list[Partials]]:
    """Return what becomes of the files."""
    return task.run(list(names))


def land_table(task: AggregateFiles, name: str, table: pa.Table) -> str:
    """Land a table as it is."""
    path = Path(task.landing) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return name


def spans_with(column: str, values: pa.Array) -> pa.Table:
    """Return as many spans as there are values, with these in a column."""
    table = pa.Table.from_pylist([span(number=n) for n in range(len(values))], schema=SPANS)
    return table.set_column(SPANS.get_field_index(column), SPANS.field(column), values)


def not_text(*values: bytes) -> pa.Array:
    """Return bytes that claim to be text, as only a broken writer leaves them."""
    return pa.array(values, pa.binary()).view(pa.string())


def test_a_file_is_told_with_its_rows_and_its_newest_event(task: AggregateFiles) -> None:
    """The newest, wherever in the file it is."""
    times = [START, START + 7, START + 3]
    name = land(Path(task.landing), "spans/a.parquet", [span() | {"start_ns": t} for t in times])
    results, partials = run(task, name)
    assert results == [FileResult(name, 3, START + 7, None)]
    assert partials[0].facts.num_rows > 0


def test_each_signal_is_read_as_what_it_is(task: AggregateFiles) -> None:
    """Logs become no metric, but they count as read."""
    log: dict[str, Any] = {
        "time_ns": START,
        "severity_number": 9,
        "service_name": "shop",
        "service_instance": "shop-1",
    }
    root = Path(task.landing)
    names = [
        land(root, "points/a.parquet", [point(value=1.0)]),
        land(root, "logs/a.parquet", [dict.fromkeys(LOGS.names) | log]),
    ]
    results, partials = run(task, *names)
    assert [(r.name, r.rows, r.newest_ns, r.error) for r in results] == [
        (names[0], 1, START, None),
        (names[1], 1, START, None),
    ]
    assert [part.facts.num_rows for part in partials] == [1, 0]


def test_a_file_without_rows_is_read_to_its_end(task: AggregateFiles) -> None:
    """It has no newest event, and is no error."""
    results, partials = run(task, land(Path(task.landing), "spans/a.parquet", []))
    assert results == [FileResult("spans/a.parquet", 0, None, None)]
    assert partials[0].facts.num_rows == 0


def test_a_file_that_is_gone_is_told_so(task: AggregateFiles) -> None:
    """The others of the task are read."""
    good = land(Path(task.landing), "spans/b.parquet", [span()])
    results, partials = run(task, "spans/a.parquet", good)
    assert [result.error for result in results] == ["the file is gone", None]
    assert len(partials) == 1


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("name", not_text(b"ok", b"\xff\xfe")),
        ("http_route", not_text(b"\xc3", b"ok")),
        (
            "attributes",
            pa.MapArray.from_arrays(
                pa.array([0, 1], pa.int32()), pa.array(["a"]), not_text(b"\xff")
            ),
        ),
    ],
)
def test_bytes_that_are_no_text_spoil_their_file_only(
    task: AggregateFiles, column: str, values: pa.Array
) -> None:
    """Nothing of it is merged; it is told with what was found."""
    bad = land_table(task, "spans/bad.parquet", spans_with(column, values))
    good = land(Path(task.landing), "spans/good.parquet", [span()])
    results, partials = run(task, bad, good)
    assert str(results[0].error).startswith("has text that is not UTF-8: b'")
    assert results[0].rows == 0
    assert results[1].error is None
    assert len(partials) == 1


def test_content_that_nobody_thought_of_spoils_its_file_only(task: AggregateFiles) -> None:
    """Here: a bucket without a count."""
    histogram = point("h", "histogram", count=1, bounds=[1.0], bucket_counts=[1, None])
    rows = pa.Table.from_pylist([histogram], schema=POINTS)
    bad = land_table(task, "points/bad.parquet", rows)
    good = land(Path(task.landing), "points/good.parquet", [point(value=1.0)])
    results, partials = run(task, bad, good)
    assert str(results[0].error).startswith("cannot be aggregated: ")
    assert "\n" not in str(results[0].error)
    assert results[1].error is None
    assert len(partials) == 1


def test_a_file_that_turns_out_bad_in_the_middle_adds_nothing(
    task: AggregateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entirely or not at all: the rows before the fault do not count either."""
    monkeypatch.setattr("penstock.land.reading.BATCH_ROWS", 2)
    table = spans_with("name", not_text(b"ok", b"ok", b"ok", b"\xff"))
    path = Path(task.landing) / "spans" / "bad.parquet"
    path.parent.mkdir()
    pq.write_table(table, path, row_group_size=2)
    results, partials = run(task, "spans/bad.parquet")
    assert results[0].error is not None
    assert partials == []


def test_running_out_of_memory_is_not_the_files_fault(
    task: AggregateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task fails, and Spark tries it again."""
    name = land(Path(task.landing), "spans/a.parquet", [span()])

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("penstock.aggregation.aggregator.Aggregator.add", fail)
    with pytest.raises(MemoryError):
        run(task, name)


def test_all_files_of_a_task_are_one_row(task: AggregateFiles) -> None:
    """What is to be skipped is not even opened; a task without files has no row."""
    names = [land(Path(task.landing), f"spans/{n}.parquet", [span()]) for n in "ab"]
    batch = pa.RecordBatch.from_pydict({"name": pa.array([*names, "spans/skipped.parquet"])})
    skipping = AggregateFiles(
        task.landing,
        task.metrics,
        task.settings,
        task.horizon,
        skip=frozenset({"spans/skipped.parquet"}),
    )
    (row,) = skipping(iter([batch]))
    assert row.num_rows == 1
    only = pa.RecordBatch.from_pydict({"name": pa.array(["spans/skipped.parquet"])})
    assert list(skipping(iter([only]))) == []
    assert list(skipping(iter([]))) == []
