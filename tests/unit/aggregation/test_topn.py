"""The slowest statements, of more than are kept."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.telemetry import SpanKind
from tests.oracle.comparing import differences
from tests.oracle.reading import read_top
from tests.oracle.samples import MINUTE, span
from tests.oracle.topn import top
from tests.unit.aggregation.rig import Pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Return a pipeline without rules."""
    pipeline = Pipeline(tmp_path / "store.db", ())
    yield pipeline
    pipeline.store.close()


def query(number: int, latency: int, **columns: object) -> dict[str, Any]:
    """Return a statement."""
    row = span(SpanKind.CLIENT, latency=latency, number=number, db_system="mysql")
    return row | {"db_statement": f"SELECT {number}", "peer_service": "db"} | columns


def test_of_many_statements_the_slowest_are_kept(pipeline: Pipeline) -> None:
    """Of each entity and minute, across batches; of equal ones those with smaller ids."""
    random = Random(5)
    rows = [
        query(
            number,
            random.choice((201, 300, random.randint(190, 500))),
            peer_service=random.choice(("db", "db", "other")),
            start_ns=(MINUTE + random.randint(0, 1)) * 60_000_000_000,
        )
        for number in random.sample(range(100_000), 600)
    ]
    for row in rows:
        row["end_ns"] = row["start_ns"] + (row["end_ns"] - MINUTE * 60_000_000_000)
    for first in range(0, len(rows), 250):
        pipeline.merge(rows[first : first + 250])
    assert len(top(rows)["database_statement", ("db",), MINUTE]) == 50
    assert differences(top(rows), read_top(pipeline.store)) == []


def test_fifty_are_fifty(pipeline: Pipeline) -> None:
    """Of statements that all differ, in one batch."""
    rows = [query(number, 300 + number) for number in range(120)]
    pipeline.merge(rows)
    assert differences(top(rows), read_top(pipeline.store)) == []


def test_a_span_that_comes_often_is_one_entry(pipeline: Pipeline) -> None:
    """However often: it takes one of the places, and the others are for others."""
    rows = [query(1, 900)] * 70 + [query(number, 300 + number) for number in range(2, 80)]
    pipeline.merge(rows)
    assert differences(top(rows), read_top(pipeline.store)) == []
    pipeline.merge(rows[60:])
    assert differences(top(rows), read_top(pipeline.store)) == []


def test_a_statement_is_cut_at_its_length(pipeline: Pipeline) -> None:
    """2,000 characters, whatever they are."""
    rows = [query(1, 900, db_statement="\xe4" * 5000)]
    pipeline.merge(rows)
    ((_, _, _, statement),) = read_top(pipeline.store)["database_statement", ("db",), MINUTE]
    assert statement == "\xe4" * 2000


@pytest.mark.parametrize(
    ("columns", "limit"),
    [
        ({"db_system": "mysql"}, 200),
        ({"db_system": "MongoDB"}, 100),
        ({"db_system": "Redis", "db_operation": "GET"}, 10),
        ({"db_system": "memcached", "db_operation": "set"}, 20),
    ],
)
def test_a_statement_has_to_be_above_its_threshold(
    pipeline: Pipeline, columns: dict[str, object], limit: int
) -> None:
    """By its system, in lower case; exactly at the threshold is not slow."""
    pipeline.merge([query(1, limit, **columns), query(2, limit + 1, **columns)])
    found = {entry[0] for entries in read_top(pipeline.store).values() for entry in entries}
    assert found == {limit + 1}


def test_what_is_neither_read_nor_written_is_in_no_list(pipeline: Pipeline) -> None:
    """Nor is a database's call without a statement."""
    pipeline.merge(
        [
            query(1, 900, db_system="redis", db_operation="PING", db_statement=None),
            query(2, 900, db_statement=None),
            query(3, 900, db_statement=""),
        ]
    )
    assert read_top(pipeline.store) == {}
