"""The oracle's top lists: thresholds, ties, sizes and entities."""

from typing import Any

import pytest

from penstock.telemetry import SpanKind
from tests.oracle.samples import MINUTE, span
from tests.oracle.topn import top


def access(system: str = "mysql", latency: int = 1000, **columns: object) -> dict[str, Any]:
    """Return a slow access to a database."""
    row = span(SpanKind.CLIENT, latency=latency)
    return row | {"db_system": system, "db_statement": "SELECT 1"} | columns


def identity(number: int) -> str:
    """Return the hexadecimal span id of a number, as *samples* makes it."""
    return f"{number:016x}"


def test_a_slow_statement_is_in_the_lists_of_database_and_service() -> None:
    """Both have the ids in hexadecimal text and the minute of the start."""
    slow = (1000, identity(1), f"{1:032x}", "SELECT 1")
    assert top([access(server_address="db")]) == {
        ("database_statement", ("db",), MINUTE): [slow],
        ("service_database_statement", ("shop",), MINUTE): [slow],
    }


@pytest.mark.parametrize(
    ("system", "threshold"),
    [("mysql", 200), ("MongoDB", 100), ("memcached", 20), ("Redis", 10)],
)
def test_a_row_has_to_be_above_its_threshold(system: str, threshold: int) -> None:
    """Exactly at the threshold is not slow; systems are compared in lower case."""
    at = access(system, threshold, db_operation="GET")
    above = access(system, threshold + 1, db_operation="GET")
    assert top([at]) == {}
    assert {entries[0][0] for entries in top([at, above]).values()} == {threshold + 1}


def test_thresholds_can_be_set() -> None:
    """By system, and for all the others."""
    spans = [access("mysql", 50), access("mongodb", 50), access("redis", 50, db_operation="GET")]
    found = top(
        spans,
        database_thresholds={"mysql": 10},
        database_default=60,
        cache_thresholds={},
        cache_default=60,
    )
    assert {key[:2] for key in found} == {
        ("database_statement", ("mysql",)),
        ("service_database_statement", ("shop",)),
    }


def test_a_database_row_needs_a_statement() -> None:
    """A cache row does not: its command stands in."""
    assert top([access(db_statement="", db_operation="SELECT")]) == {}
    found = top([access("redis", db_statement=None, db_operation="hget")])
    assert [entry[3] for entries in found.values() for entry in entries] == ["HGET"]


def test_caches_are_listed_by_operation() -> None:
    """What neither reads nor writes is in no list, and caches are in no database's."""
    statements = {"GET a": "cache_read", "SET a 1": "cache_write", "EVAL x": None}
    for statement, kind in statements.items():
        found = top([access("redis", db_statement=statement)])
        assert {key[0] for key in found} == ({kind} if kind else set())


def test_the_fifty_slowest_stay_in_order() -> None:
    """The others are gone; each minute has a list of its own."""
    spans = [access(latency=200 + n) for n in range(1, 61)]
    spans += [access() | {"start_ns": (MINUTE + 1) * 60_000_000_000}]
    spans[-1]["end_ns"] = spans[-1]["start_ns"] + 300_000_000
    for number, row in enumerate(spans):
        row["span_id"] = number.to_bytes(8, "big")
    found = top(spans)
    listed = found["database_statement", ("mysql",), MINUTE]
    assert [entry[0] for entry in listed] == list(range(260, 210, -1))
    assert len(found["database_statement", ("mysql",), MINUTE + 1]) == 1


def test_ties_go_by_span_id_then_trace_id() -> None:
    """Also at the end of the list, where one of two equals has to go."""
    pairs = [(n % 30, n) for n in range(60)]
    spans = [
        access(span_id=span_id.to_bytes(8, "big"), trace_id=trace.to_bytes(16, "big"))
        for span_id, trace in pairs
    ]
    expected = [(identity(span_id), f"{trace:032x}") for span_id, trace in sorted(pairs)[:50]]
    for order in (spans, spans[::-1]):
        (listed,) = (v for k, v in top(order).items() if k[0] == "database_statement")
        assert [entry[1:3] for entry in listed] == expected


def test_the_same_span_twice_is_listed_once() -> None:
    """A client that repeats itself does not push others out."""
    spans = [access(latency=900), access(latency=1000), access(latency=900)]
    assert list(top(spans).values()) == [[(1000, identity(1), f"{1:032x}", "SELECT 1")]] * 2


def test_a_long_statement_is_cut() -> None:
    """2,000 characters are kept, not bytes."""
    found = top([access(db_statement="ä" * 2001)])
    assert {entries[0][3] for entries in found.values()} == {"ä" * 2000}


def test_entities_without_room_share_a_list() -> None:
    """The list of a service is limited by the scope Service."""
    spans = [
        access(service_name="a", span_id=b"\0" * 7 + b"\1"),
        access(service_name="b", span_id=b"\0" * 7 + b"\2"),
    ]
    found = top(spans, admitted={"Service": ()})
    assert len(found["service_database_statement", ("(other)",), MINUTE]) == 2
    assert len(found["database_statement", ("mysql",), MINUTE]) == 2
