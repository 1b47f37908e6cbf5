"""The summary of the demo, over a store that was filled without Spark."""

from pathlib import Path

import pytest

from penstock.cli._summary import Summary, summarise
from penstock.cli._table import table
from penstock.clock import wall_time
from penstock.land import LandingFolder
from penstock.store import open_store
from penstock.telemetry import SpanKind, StatusCode
from tests.crash.rig import local_batches
from tests.support.spark import land

MS = 1_000_000


def span(number: int, service: str, latency: int, **other: object) -> dict[str, object]:
    """Return a span that took *latency* ms, five minutes ago."""
    start = int((wall_time() // 60 - 5) * 60) * 1000 * MS
    return {
        "trace_id": number.to_bytes(16, "big"),
        "span_id": number.to_bytes(8, "big"),
        "name": "GET /",
        "kind": SpanKind.SERVER,
        "start_ns": start,
        "end_ns": start + latency * MS,
        "status_code": StatusCode.UNSET,
        "service_name": service,
        "service_instance": "one",
        "attributes": [],
        "resource_attributes": [],
        **other,
    }


def query(number: int, latency: int, statement: str) -> dict[str, object]:
    """Return a slow query."""
    asked = {"db_system": "mysql", "server_address": "db", "db_statement": statement}
    return span(number, "shop", latency, kind=SpanKind.CLIENT, **asked)


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Summarise six calls of two services, of which one failed, and five queries."""
    folder = LandingFolder(tmp_path / "landing")
    folder.prepare()
    calls = [span(n, "shop", 100) for n in range(1, 5)]
    calls += [span(5, "bank", 700), span(6, "bank", 700, status_code=StatusCode.ERROR)]
    queries = [query(n, 900 - n, "SELECT 1") for n in range(11, 15)] + [query(20, 400, "SELECT 2")]
    name = land(folder.root, "spans/a.parquet", calls + queries)
    store = open_store(str(tmp_path / "metrics.db"))
    with local_batches(store, folder) as process:
        process(0, [name])
    store.close()
    return summarise(str(tmp_path / "metrics.db"))


def test_each_service_has_a_row_with_the_busiest_first(summary: Summary) -> None:
    """Calls per minute, mean and 99th percentile, share of good ones, Apdex."""
    headings, rows = summary.services()
    assert headings == ("SERVICE", "CPM", "LATENCY ms", "P99 ms", "SLA %", "APDEX")
    shop, bank = rows
    assert shop[0] == "shop"
    assert list(shop[1:3]) == [4.0, 100.0]
    assert shop[3] == pytest.approx(100, rel=0.045)
    assert list(shop[4:]) == [100.0, 1.0]
    assert bank[0] == "bank"
    assert list(bank[1:3]) == [2.0, 700.0]
    assert bank[4] == 50.0
    assert bank[5] == 0.25  # one tolerating, one failed
    assert summary.minutes == 1


def test_a_statement_that_was_slow_again_and_again_is_shown_once(summary: Summary) -> None:
    """Five rows of the same would tell no more than one."""
    _, rows = summary.statements()
    assert [list(row[1:]) for row in rows] == [[889, "SELECT 1"], [400, "SELECT 2"]]


def test_it_can_be_printed_and_dumped(summary: Summary) -> None:
    """As a table for readers, as plain values for programs."""
    assert "shop" in table(*summary.services())
    found = summary.as_dict()
    assert {row["service"] for row in found["services"]} == {"shop", "bank"}
    assert [row["statement"] for row in found["slowest"]] == ["SELECT 1", "SELECT 2"]
