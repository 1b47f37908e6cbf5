"""L1 and L2 against the oracle, on rows that nobody would write by hand."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.metrics import Metric, default_rules, load_rules
from penstock.telemetry import PROMOTED, SpanKind, StatusCode, Temporality
from tests.oracle.comparing import differences
from tests.oracle.meters import compute_meters
from tests.oracle.oracle import compute
from tests.oracle.reading import read_store, read_top
from tests.oracle.samples import MINUTE, START, point, span
from tests.oracle.topn import top
from tests.unit.aggregation.rig import Pipeline

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "1"))
EVERYTHING = Path(__file__).resolve().parents[2] / "spark" / "everything.oal"
NS = 1_000_000_000

LATENCIES = (0, 1, 8, 9, 10, 11, 20, 21, 100, 101, 200, 201, 500, 2000, 2001, 65_535, 65_536, 10**9)
TEXTS = (
    *("a", "\xe4 \xf6", "x" * 300, 'quo"te\\\\', "a:b", "%", "", "-1", "+7", "3.5", "1e3"),
    *("nan", "0x10", " 5", "900719925474099", "1000000000000000000", "1_000"),
)

# Few values in each column, so that rows meet; None and "" are both absent.
COLUMNS: dict[str, tuple[object, ...]] = {
    "name": ("work", "play", "GET /"),
    "service_name": ("gateway", "cart", "\xe4"),
    "service_instance": ("i-1", "checkout-1", ""),
    "peer_service": (None, None, "cart", "db", ""),
    "peer_instance": (None, "p-1", ""),
    "peer_endpoint": (None, "GET /", ""),
    "server_address": (None, "10.0.0.1", ""),
    "server_port": (None, 80, 0),
    "client_address": (None, "10.0.0.9", ""),
    "http_method": (None, "GET", "POST", ""),
    "http_route": (None, "/", "/a/{id}", ""),
    "http_status_code": (None, 0, 200, 404, 500),
    "rpc_system": (None, None, "grpc", "dubbo", ""),
    "rpc_service": (None, "Cart", ""),
    "rpc_method": (None, "Add", ""),
    "rpc_status_code": (None, 0, 14),
    "db_system": (None, "mysql", "Redis", "MongoDB", "memcached", ""),
    "db_namespace": (None, "shop"),
    "db_operation": (None, "GET", "set", "SELECT", "get one"),
    "db_statement": (None, "get key", "  SET a 1", "SELECT 1", "?", "", "   "),
    "messaging_system": (None, None, "kafka", ""),
    "messaging_destination": (None, "orders", ""),
    "messaging_operation": (None, "send", "receive", "settle", "other", ""),
    "transmission_latency": (None, 0, 17, -3),
}


def made_spans(random: Random, rows: int) -> list[dict[str, Any]]:
    """Make up spans of all kinds."""
    made = []
    for number in range(rows):
        start = START + random.randint(-200 * 60, 9 * 60) * NS + random.randrange(NS)
        latency = random.choice((*LATENCIES, random.randint(0, 3000)))
        attributes = [(key, random.choice((None, *TEXTS))) for key in ("number", "b:c", "http.url")]
        made.append(
            span(random.choice(list(SpanKind)), number=number)
            | {name: random.choice(values) for name, values in COLUMNS.items()}
            | {
                "start_ns": start,
                "end_ns": start + random.choice((0, 999_999, -5, -NS)) + latency * 1_000_000,
                "status_code": int(random.choice(list(StatusCode))),
                "attributes": random.choice((None, attributes[:1], attributes)),
            }
        )
    return made


def made_points(random: Random, rows: int) -> list[dict[str, Any]]:
    """Make up points of a few series of each kind, out of order and some at the same time."""
    made = []
    for _ in range(rows):
        kind = random.choice(("gauge", "sum", "histogram"))
        is_cumulative = kind != "gauge" and random.random() < 0.6
        keys = random.sample(("a", "a.b", "a-b", "A", "z"), random.randint(0, 5))
        attributes = [(key, random.choice(("1", "", "x=y,z"))) for key in keys]
        columns: dict[str, Any] = {
            "service_instance": random.choice(("i-1", "i-2", "")),
            "attributes": random.choice((None, [], attributes)),
            "unit": random.choice((None, "ms", "")),
        }
        if kind != "gauge":
            temporality = Temporality.CUMULATIVE if is_cumulative else Temporality.DELTA
            start = random.choice((None, 0, START, START - 60 * NS, START - 3600 * NS))
            columns |= {"temporality": int(temporality), "start_ns": start}
        columns |= _histogram(random) if kind == "histogram" else {"value": _number(random)}
        name = f"{kind}.{'cumulative' if is_cumulative else 'delta'}"
        made.append(point(name, kind, seconds=random.randint(-400, 400) * 7.5, **columns))
    return made


def _number(random: Random) -> float:
    return random.choice((0.0, 1.0, 1.5, 2.0, 3.0, -4.0, 1e12, random.uniform(0, 100)))


def _histogram(random: Random) -> dict[str, Any]:
    bounds = random.choice(([], [1.0, 5.0], [0.5]))
    counts = [random.randint(0, 9) for _ in range(len(bounds) + 1)]
    return {
        "count": sum(counts),
        "sum": random.choice((None, 0.0, 1.25, 7.5)),
        "min": random.choice((None, 0.25, -1.0)),
        "max": random.choice((None, 9.0)),
        "bounds": bounds,
        "bucket_counts": counts if bounds or random.random() < 0.5 else [],
    }


def without_empty(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return spans without their empty attributes, which are as good as absent."""
    return [
        row
        | {name: row[name] or None for name in PROMOTED.values() if isinstance(row[name], str)}
        | {"attributes": [(key, value) for key, value in row["attributes"] or () if value]}
        for row in rows
    ]


def assert_same(expected: Mapping[Any, object], actual: Mapping[Any, object]) -> None:
    """Fail with the differences, a line each."""
    found = differences(expected, actual)
    assert not found, "\n".join(found)


@contextmanager
def pipeline(metrics: tuple[Metric, ...]) -> Iterator[Pipeline]:
    """Open a pipeline for one example."""
    with tempfile.TemporaryDirectory() as folder:
        opened = Pipeline(Path(folder) / "store.db", metrics)
        try:
            yield opened
        finally:
            opened.store.close()


@pytest.fixture(scope="module")
def metrics() -> tuple[Metric, ...]:
    """Return rules that use all of the language, and the default ones."""
    return (*load_rules([EVERYTHING]), *default_rules())


@pytest.mark.parametrize("seed", range(4 * EXAMPLES))
def test_any_spans_give_what_the_oracle_says(metrics: tuple[Metric, ...], seed: int) -> None:
    """Whatever the columns hold, and wherever the rows are cut into batches."""
    random = Random(seed)
    rows = made_spans(random, 400)
    cut = random.randrange(1, 400)
    with pipeline(metrics) as under_test:
        for batch in (rows[:cut], rows[cut:]):
            under_test.merge(batch)
        rows = without_empty(rows)
        assert_same(compute(metrics, rows), read_store(under_test.store))
        assert_same(top(rows), read_top(under_test.store))


@pytest.mark.parametrize("seed", range(10 * EXAMPLES))
def test_any_points_give_what_the_oracle_says(seed: int) -> None:
    """In any order, of any temporality, however they are cut into batches."""
    random = Random(seed)
    rows = made_points(random, random.choice((30, 300)))
    cuts = sorted({0, len(rows), *(random.randrange(len(rows)) for _ in range(3))})
    with pipeline(()) as under_test:
        for first, end in pairwise(cuts):
            assert under_test.merge(points=rows[first:end]) == {}
        assert_same(compute_meters(rows), read_store(under_test.store))


def test_minutes_before_1970_do_not_disturb(metrics: tuple[Metric, ...]) -> None:
    """They have expired long since; what else is in the batch is merged."""
    rows = [span(minute=-5, number=1), span(minute=MINUTE, number=2)]
    with pipeline(metrics) as under_test:
        left_out = under_test.merge(rows)
        assert left_out == dict.fromkeys(("expired_minute", "expired_hour", "expired_day"), 1)
        assert_same(compute(metrics, rows[1:]), read_store(under_test.store))
