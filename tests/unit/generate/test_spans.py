"""Generated spans: their form, their repeatability, and what a real system would show too."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.generate import GeneratorSettings, generate_spans
from penstock.generate.spans import BLOCK, SpanBlocks
from penstock.metrics import default_rules
from penstock.telemetry import SPANS, SpanKind, StatusCode
from tests.oracle.conventions import Span, rows
from tests.oracle.oracle import compute
from tests.unit.generate.rig import MINUTE_NS, small, whole


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Return 20,000 spans of the default system."""
    return whole(generate_spans, small(spans=20_000))


def counts(table: pa.Table, column: str) -> dict[Any, int]:
    """Return how often each value of a column occurs."""
    return {entry["values"]: entry["counts"] for entry in table[column].value_counts().to_pylist()}


def latencies(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the whole milliseconds that each span took."""
    taken = pc.subtract(table["end_ns"], table["start_ns"]).to_numpy()
    found: np.ndarray[Any, np.dtype[np.int64]] = taken // 1_000_000
    return found


def test_spans_have_exactly_the_schema(table: pa.Table) -> None:
    """Names, types, order and nullability are those of landed spans, and the values are valid."""
    assert table.schema.equals(SPANS, check_metadata=True)
    table.validate(full=True)
    required = [field.name for field in SPANS if not field.nullable]
    assert [name for name in required if table[name].null_count] == []


def test_equal_settings_make_equal_spans(table: pa.Table) -> None:
    """A measurement can be repeated on another machine."""
    assert whole(generate_spans, small(spans=20_000)).equals(table)


def test_another_seed_makes_other_spans(table: pa.Table) -> None:
    """Neither the traffic nor the ids are those of the first seed."""
    other = whole(generate_spans, small(spans=20_000, seed=2))
    assert not set(other["span_id"].to_pylist()) & set(table["span_id"].to_pylist())
    assert other["name"] != table["name"]


def test_where_files_are_cut_does_not_change_the_spans() -> None:
    """Tables have the length asked for, the last one the rest, and the rows are the same."""
    settings = small(spans=BLOCK + 5_000)
    pieces = list(generate_spans(replace(settings, rows_per_file=12_345)))
    assert [piece.num_rows for piece in pieces] == [12_345] * 3 + [BLOCK + 5_000 - 3 * 12_345]
    assert pa.concat_tables(pieces).combine_chunks().equals(whole(generate_spans, settings))


def test_a_block_does_not_depend_on_those_before_it() -> None:
    """Blocks may be made in any order, so also side by side."""
    settings = small(spans=2 * BLOCK)
    second = SpanBlocks(settings).make(1)
    assert whole(generate_spans, settings).slice(BLOCK).to_batches()[0].equals(second)


@pytest.mark.parametrize(
    "settings",
    [small(), small(spans=3_000, services=2, instances=1, endpoints=1, minutes=1)],
    ids=["default", "smallest"],
)
def test_every_metric_gets_values(settings: GeneratorSettings) -> None:
    """A few thousand spans feed every metric, and none with zeros only."""
    metrics = default_rules()
    found = compute(metrics, whole(generate_spans, settings).to_pylist())
    fed = {key[0] for key, value in found.items() if value}
    assert [metric.name for metric in metrics if metric.name not in fed] == []


def test_services_endpoints_and_statements_are_skewed(table: pa.Table) -> None:
    """A few take most of the traffic, as everywhere."""
    served = table.filter(pc.equal(table["kind"], int(SpanKind.SERVER)))
    inner = served.filter(pc.not_equal(served["service_name"], "gateway"))
    one = served.filter(pc.equal(served["service_name"], "checkout"))
    for rows_of, column in ((inner, "service_name"), (one, "name"), (table, "db_statement")):
        found = [count for value, count in counts(rows_of, column).items() if value is not None]
        assert max(found) > 4 * np.median(found), column


def test_all_kinds_have_sensible_shares(table: pa.Table) -> None:
    """Services ask more than they are asked; messages are the smaller part."""
    share = {SpanKind(kind): n / table.num_rows for kind, n in counts(table, "kind").items()}
    assert set(share) == set(SpanKind) - {SpanKind.UNSPECIFIED}
    assert share[SpanKind.CLIENT] > share[SpanKind.SERVER] > 0.2
    assert 0.01 < share[SpanKind.PRODUCER] < 0.1
    assert 0.01 < share[SpanKind.CONSUMER] < 0.1
    assert 0.02 < share[SpanKind.INTERNAL] < 0.15


def test_every_technology_occurs(table: pa.Table) -> None:
    """HTTP, RPC of two kinds, three databases, two caches and two brokers."""
    databases = {"postgresql", "mysql", "mongodb", "redis", "memcached"}
    assert set(counts(table, "db_system")) - {None} == databases
    assert set(counts(table, "messaging_system")) - {None} == {"kafka", "rabbitmq"}
    assert set(counts(table, "rpc_system")) - {None} == {"grpc", "apache_dubbo"}
    assert table["http_method"].null_count < table.num_rows


def test_optional_parts_are_missing_here_and_there(table: pa.Table) -> None:
    """Instances, routes, callers, addresses, operations and statements are not always named."""
    assert 0 < counts(table, "service_instance")[""] < 0.03 * table.num_rows
    by_kind = {kind: table.filter(pc.equal(table["kind"], int(kind))) for kind in SpanKind}
    served, asked = by_kind[SpanKind.SERVER], by_kind[SpanKind.CLIENT]
    stored = asked.filter(pc.is_valid(asked["db_system"]))
    received = by_kind[SpanKind.CONSUMER]
    for rows_of, column in (
        *((served, column) for column in ("http_route", "peer_service", "peer_endpoint")),
        *((served, column) for column in ("peer_instance", "client_address", "attributes")),
        *((asked, column) for column in ("peer_service", "peer_instance", "server_port")),
        *((stored, column) for column in ("db_statement", "db_operation", "server_address")),
        (received, "transmission_latency"),
    ):
        assert 0 < rows_of[column].null_count < rows_of.num_rows, column


def test_spans_have_attributes_beyond_the_conventions(table: pa.Table) -> None:
    """Rules that read tags have something to read."""
    keys = {key for pairs in table["attributes"].to_pylist() if pairs for key, _ in pairs}
    assert {"user.tier", "region"} <= keys


@pytest.mark.parametrize("rate", [0.0, 0.05, 1.0])
def test_the_error_rate_is_met(rate: float) -> None:
    """The share of failed spans is the one asked for; a failed HTTP call says 5xx."""
    table = whole(generate_spans, small(spans=20_000, error_rate=rate))
    failed = pc.equal(table["status_code"], int(StatusCode.ERROR))
    assert pc.mean(failed).as_py() == pytest.approx(rate, abs=0.01)
    assert pc.all(pc.equal(failed, pc.is_valid(table["status_message"]))).as_py()
    is_5xx = pc.greater_equal(table["http_status_code"], 500)
    assert pc.all(pc.equal(is_5xx, failed)).as_py()  # null without HTTP


def test_latencies_are_skewed_with_ties_and_zeros(table: pa.Table) -> None:
    """A long tail, spans of no time at all, and slow statements that take equally long."""
    asked = table.filter(pc.is_valid(table["db_statement"]))
    taken = latencies(asked)
    assert np.mean(taken) > 3 * np.median(taken)
    slow = Counter(taken[taken > 200].tolist())
    assert slow.most_common(1)[0][1] > 10
    assert pc.any(pc.equal(table["start_ns"], table["end_ns"])).as_py()
    assert latencies(table).min() == 0


def test_each_top_list_has_slow_statements(table: pa.Table) -> None:
    """Some statements of every database and cache are above the threshold of the top lists."""
    thresholds = {"postgresql": 200, "mysql": 200, "mongodb": 100, "redis": 10, "memcached": 20}
    for system, threshold in thresholds.items():
        taken = latencies(table.filter(pc.equal(table["db_system"], system)))
        slow = taken[taken > threshold]
        assert len(slow) < 0.3 * len(taken), system
        assert len(set(slow.tolist())) > 5, system  # not only those that ran into a timeout


def test_spans_of_a_trace_belong_together() -> None:
    """Each parent is an earlier span of the same trace; a call lies within its caller.

    Both ends of a call come to the same end.
    """
    table = whole(generate_spans, small(error_rate=0.3))
    seen: dict[bytes, dict[str, Any]] = {}
    children = 0
    for span in table.to_pylist():
        parent = seen.get(span["parent_span_id"] or b"")
        if span["parent_span_id"] is not None:
            assert parent is not None
            assert parent["trace_id"] == span["trace_id"]
            assert parent["start_ns"] <= span["start_ns"]
            children += 1
            if span["kind"] != SpanKind.CONSUMER:
                assert span["end_ns"] <= parent["end_ns"]
            if span["kind"] == SpanKind.SERVER:
                assert span["status_code"] == parent["status_code"]
        seen[span["span_id"]] = span
    assert children > 0.8 * table.num_rows


def test_late_spans_are_late_within_bounds() -> None:
    """About the share asked for comes after spans that are a minute newer; none is too old."""
    settings = small(spans=50_000, late=0.05, lateness=3_600.0)
    start = whole(generate_spans, settings)["start_ns"].to_numpy()
    newest = np.maximum.accumulate(start)
    assert np.mean(start < newest - MINUTE_NS) == pytest.approx(0.05, abs=0.01)
    assert start.min() >= settings.start_ns - 3_600 * 10**9
    assert start.min() < settings.start_ns - 1_800 * 10**9
    assert start.max() < settings.end_ns


def test_without_late_spans_rows_follow_time() -> None:
    """Minutes advance through the files; a row lies near its place."""
    settings = small(spans=50_000, late=0.0)
    start = whole(generate_spans, settings)["start_ns"].to_numpy()
    place = settings.start_ns + np.arange(50_000) * 10 * MINUTE_NS // 50_000
    assert np.abs(start - place).max() < MINUTE_NS
    assert set(start // MINUTE_NS) == set(
        range(settings.start_ns // MINUTE_NS, settings.end_ns // MINUTE_NS)
    )


def test_late_spans_can_be_kept_inside_the_window() -> None:
    """Then they add no minutes, so the number of groups is the same however many are late."""
    settings = small(spans=20_000, late=0.2, late_inside=True)
    start = whole(generate_spans, settings)["start_ns"].to_numpy()
    assert start.min() >= settings.start_ns
    assert np.any(start < np.maximum.accumulate(start) - MINUTE_NS)


def test_the_benchmark_has_the_same_groups_in_every_minute() -> None:
    """So the number of groups follows from the minutes, whatever the number of spans is."""
    settings = GeneratorSettings.benchmark(1_000_000)
    minute = SpanBlocks(settings).make(12).slice(0, 1_000_000 // settings.minutes)
    groups = {(row.source, row.entity) for span in minute.to_pylist() for row in rows(Span(span))}
    assert len(groups) * settings.minutes == pytest.approx(50_000, rel=0.05)


def test_no_spans_are_no_tables() -> None:
    """Nothing to make is not an error."""
    assert list(generate_spans(small(spans=0))) == []
