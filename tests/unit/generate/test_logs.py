"""Generated log records: they belong to spans, and say what came of them."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.generate import generate_logs, generate_spans
from penstock.generate.spans import BLOCK
from penstock.telemetry import LOGS, StatusCode
from tests.unit.generate.rig import small, whole


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Return 300 records of 5,000 spans."""
    return whole(generate_logs, small(error_rate=0.2))


def test_logs_have_exactly_the_schema(table: pa.Table) -> None:
    """Names, types, order and nullability are those of landed logs, and the values are valid."""
    assert table.schema.equals(LOGS, check_metadata=True)
    table.validate(full=True)
    required = [field.name for field in LOGS if not field.nullable]
    assert [name for name in required if table[name].null_count] == []
    assert table["body"].null_count == 0


def test_equal_settings_make_equal_logs_however_they_are_cut(table: pa.Table) -> None:
    """Another seed makes others."""
    assert whole(generate_logs, small(error_rate=0.2, rows_per_file=77)).equals(table)
    assert not whole(generate_logs, small(error_rate=0.2, seed=2)).equals(table)


def test_records_name_spans_that_exist(table: pa.Table) -> None:
    """Most name their span, are of its service and its time, and are errors if it failed."""
    spans = {
        span["span_id"]: span for span in whole(generate_spans, small(error_rate=0.2)).to_pylist()
    }
    named = [record for record in table.to_pylist() if record["span_id"] is not None]
    assert 0.5 < len(named) / table.num_rows < 0.9
    for record in named:
        span = spans[record["span_id"]]
        assert record["trace_id"] == span["trace_id"]
        assert record["service_name"] == span["service_name"]
        assert span["start_ns"] <= record["time_ns"] <= span["end_ns"]
        is_error = record["severity_text"] == "ERROR"
        assert is_error == (span["status_code"] == StatusCode.ERROR)
        assert (span["status_message"] or "ms") in record["body"]


@pytest.mark.parametrize(("spans", "logs"), [(0, 7), (50, 1_000), (3 * BLOCK, 2), (3 * BLOCK, 100)])
def test_there_are_as_many_records_as_asked_for(spans: int, logs: int) -> None:
    """Also when there are more than spans, fewer than blocks of spans, or no spans at all."""
    table = whole(generate_logs, small(spans=spans, logs=logs))
    assert table.num_rows == logs
    if not spans:
        assert table["span_id"].null_count == logs


def test_records_are_spread_over_all_of_the_time() -> None:
    """They are taken from spans of the beginning, the middle and the end."""
    settings = small(spans=3 * BLOCK, logs=300, late=0.0)
    time = whole(generate_logs, settings)["time_ns"].to_numpy()
    third = (time - settings.start_ns) * 3 // (settings.end_ns - settings.start_ns)
    assert np.bincount(third).tolist() == pytest.approx([100] * 3, abs=15)


def test_no_logs_are_no_tables() -> None:
    """Nothing to make is not an error."""
    assert list(generate_logs(replace(small(), logs=0))) == []
