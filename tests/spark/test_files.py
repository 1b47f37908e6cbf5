"""Files that are not what they should be: set aside and counted, and the stream goes on."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.clock import wall_time
from penstock.errors import JobError
from penstock.land import LandingFolder
from penstock.metrics import parse_rules
from penstock.telemetry import SPANS
from tests.oracle.samples import span
from tests.spark.rig import CALLBACKS, aggregate, totals
from tests.support.spark import land

pytestmark = [pytest.mark.spark, pytest.mark.leaves_threads(CALLBACKS)]

CALLS = parse_rules("calls = from(Service.*).count();").metrics


def write(folder: Path, name: str, table: pa.Table) -> None:
    """Write a table as it is."""
    pq.write_table(table, folder / "spans" / f"{name}.parquet")


def spoil(folder: Path, minute: int) -> dict[str, str]:
    """Land a file for everything that can be wrong with one; return their reasons."""
    rows = [span(minute=minute, number=n) for n in range(50)]
    good = pa.Table.from_pylist(rows, schema=SPANS)
    open_schema = pa.schema([field.with_nullable(True) for field in SPANS])  # noqa: FBT003 # Arrow's
    position = SPANS.get_field_index("start_ns")
    write(folder, "whole", good)
    whole = (folder / "spans" / "whole.parquet").read_bytes()
    (folder / "spans" / "whole.parquet").unlink()
    content = {
        "cut-off": whole[: len(whole) // 2],
        "damaged": whole[:4] + b"\xff" * 200 + whole[204:],
        "empty": b"",
        "text": b"name,latency\nshop,3\n",
    }
    for name, written in content.items():
        (folder / "spans" / f"{name}.parquet").write_bytes(written)
    write(folder, "foreign", pa.table({"x": [1, 2]}))
    times = good["start_ns"].cast(pa.string())
    write(folder, "wrong-type", good.set_column(position, "start_ns", times))
    write(folder, "null", pa.Table.from_pylist([{**rows[0], "kind": None}], schema=open_schema))
    names = pa.array([b"\xff"] * 50, pa.binary()).view(pa.string())
    position = SPANS.get_field_index("service_name")
    write(folder, "no-text", good.set_column(position, "service_name", names))
    (folder / "spans" / "folder.parquet").mkdir()
    not_whole = "not a whole Parquet file"
    return {
        **dict.fromkeys((*content, "folder"), not_whole),
        "foreign": "column 'trace_id' is missing",
        "wrong-type": "column 'start_ns' is string, not int64",
        "null": "column 'kind' has rows without a value",
        "no-text": "has text that is not UTF-8",
    }


def vanishing(path: Path) -> Callable[[], float]:
    """Return a clock that takes a file away when a batch looks at it.

    That is when the batch has been planned, and before its files are read.
    """

    def now() -> float:
        if threading.current_thread() is not threading.main_thread():
            path.unlink(missing_ok=True)
        return wall_time()

    return now


def test_the_stream_goes_on(tmp_path: Path, spark: SparkSession, minute: int) -> None:
    """Good files before, between and after the bad ones are all merged, in several batches."""
    landing = LandingFolder(tmp_path / "landing")
    landing.prepare()
    reasons = spoil(landing.root, minute)
    for number, name in enumerate("aenz"):
        rows = [span(minute=minute, number=100 * number + n) for n in range(10)]
        land(landing.root, f"spans/{name}-good.parquet", rows)
    land(landing.root, "spans/g-nothing.parquet", [])
    gone = landing.root / land(landing.root, "spans/a-gone.parquet", [span(minute=minute)])
    reports = aggregate(spark, tmp_path, CALLS, max_files=4, now=vanishing(gone))
    assert totals(str(tmp_path / "store.db")) == {"calls": 40}
    assert landing.pending() == []
    assert [file.name for file in landing.rejected()] == sorted(
        f"spans/{name}.parquet" for name in reasons
    )
    for name, reason in {**reasons, "a-gone": "the file is gone"}.items():
        note = landing.root / "rejected" / "spans" / f"{name}.parquet.reason.txt"
        assert reason in note.read_text("utf-8"), name
    assert sum(report.rejected for report in reports.reports) == len(reasons) + 1
    assert sum(report.files for report in reports.reports) == 5
    assert len(reports.reports) == 4


def test_a_batch_of_bad_files_only(tmp_path: Path, spark: SparkSession, minute: int) -> None:
    """There is nothing to merge; the next files are merged as ever."""
    landing = LandingFolder(tmp_path / "landing")
    landing.prepare()
    (landing.root / "spans" / "bad.parquet").write_bytes(b"bad")
    assert aggregate(spark, tmp_path, CALLS).reports[0].rejected == 1
    assert totals(str(tmp_path / "store.db")) == {"calls": 0}
    land(landing.root, "spans/good.parquet", [span(minute=minute)])
    reports = aggregate(spark, tmp_path, CALLS)
    assert [(r.files, r.rejected) for r in reports.reports] == [(1, 0)]
    assert totals(str(tmp_path / "store.db")) == {"calls": 1}


def test_what_an_executor_fails_with_is_told_in_one_line(
    tmp_path: Path, spark: SparkSession, minute: int
) -> None:
    """Its last words, not where Spark keeps them; nothing is lost."""
    landing = LandingFolder(tmp_path / "landing")
    landing.prepare()
    land(landing.root, "spans/good.parquet", [span(minute=minute)])
    broken = replace(CALLS[0], name="broken", source="NoSuchSource")
    with pytest.raises(JobError, match=r"^an executor failed: KeyError: 'NoSuchSource'$"):
        aggregate(spark, tmp_path, [*CALLS, broken])
    assert [file.name for file in landing.pending()] == ["spans/good.parquet"]
