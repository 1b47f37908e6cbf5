"""Top lists: the slowest statements of each kind, entity and minute."""

import random

import pytest

from penstock.errors import StoreError
from penstock.store.contract import TOP_SIZE, MetricStore, TopQuery, TopRow
from tests.contract.store import rig

KIND = "database_statement"
Row = tuple[str, int, int, int, str, str, int, str]


@pytest.fixture(autouse=True)
def databases(store: MetricStore) -> None:
    """Let the store know two databases."""
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["orders"], ["users"], scope="DatabaseAccess"))


def row(
    latency: int, span: str = "s", trace: str = "t", *, bucket: int = 1, name: str = "orders"
) -> Row:
    """Return a slow statement."""
    entity = rig.entity(name, scope="DatabaseAccess")
    return (KIND, entity, bucket, latency, span, trace, 5, f"SELECT {latency}")


def rank(store: MetricStore, *rows: Row) -> None:
    """Merge slow statements in a transaction of their own."""
    with store.begin(rig.HOLDER) as transaction:
        transaction.rank(rig.topn(*rows))


def test_the_slowest_come_first(store: MetricStore) -> None:
    """Rows come back whole, ordered by latency, then span id, then trace id."""
    rank(store, row(300, "b"), row(300, "a", "z"), row(300, "a", "y"), row(400, "c"))
    found = store.top(TopQuery(kind=KIND))
    assert [(one.latency, one.span_id, one.trace_id) for one in found] == [
        *((400, "c", "t"), (300, "a", "y")),
        *((300, "a", "z"), (300, "b", "t")),
    ]
    assert found[0] == TopRow(("orders",), 1, 400, "SELECT 400", "t", "c", 5)


def test_ids_are_compared_as_text_of_bytes(store: MetricStore) -> None:
    """No locale decides which span id is smaller."""
    rank(store, *(row(300, span) for span in ("a", "B", "0", "_")))
    assert [one.span_id for one in store.top(TopQuery(kind=KIND))] == ["0", "B", "_", "a"]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_rows_stay_in_any_order(store: MetricStore, seed: int) -> None:
    """Of many rows with many equal latencies, the first TOP_SIZE by rank stay in each list."""
    source = random.Random(seed)
    rows = [
        row(source.randrange(5), f"{number:04x}", f"{999 - number}", bucket=bucket, name=name)
        for number in range(120)
        for bucket in (1, 2)
        for name in ("orders", "users")
    ]
    source.shuffle(rows)
    while rows:
        size = source.randrange(1, 100)
        rank(store, *rows[:size], *rows[:3])  # some of them twice, in one table
        rank(store, *rows[: source.randrange(3)])  # and again, as a replay would
        rows = rows[size:]
    query = TopQuery(kind=KIND, limit=10_000)
    source = random.Random(seed)
    latencies = [source.randrange(5) for _ in range(480)]
    for offset, (bucket, name) in enumerate(
        ((1, "orders"), (1, "users"), (2, "orders"), (2, "users"))
    ):
        every = [(-latencies[n * 4 + offset], f"{n:04x}") for n in range(120)]
        found = [
            (-one.latency, one.span_id)
            for one in store.top(query)
            if one.bucket == bucket and one.entity == (name,)
        ]
        assert found == sorted(every)[:TOP_SIZE]


def test_lists_are_read_by_time_entity_and_number(store: MetricStore) -> None:
    """A query cuts out minutes, entities by pattern, and the first few."""
    rank(store, *(row(100 + bucket, bucket=bucket) for bucket in range(5)))
    rank(store, row(900, bucket=2, name="users"))
    every = TopQuery(kind=KIND)
    assert len(store.top(every)) == 6
    assert [one.bucket for one in store.top(TopQuery(kind=KIND, since=1, until=3))] == [2, 2, 1]
    assert [one.latency for one in store.top(TopQuery(kind=KIND, entity=("us*",)))] == [900]
    assert store.top(TopQuery(kind=KIND, entity=("nobody",))) == []
    assert [one.latency for one in store.top(TopQuery(kind=KIND, limit=1))] == [900]
    assert store.top(TopQuery(kind="cache_read")) == []


def test_an_unknown_kind_is_told_with_the_known_ones(store: MetricStore) -> None:
    """A kind that cannot have rows is a mistake, not an empty list."""
    with pytest.raises(StoreError, match="no top list 'slow': use database_statement"):
        store.top(TopQuery(kind="slow"))
