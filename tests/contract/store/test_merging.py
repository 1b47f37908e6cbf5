"""States add up in any order, and a transaction is in the store entirely or not at all."""

import json
import math
import random
from functools import reduce

import pyarrow as pa
import pytest

from penstock.errors import StoreError
from penstock.metrics.functions import State
from penstock.store._store import SqlStore
from penstock.store.contract import Granularity, MetricStore, SeriesQuery, TopQuery
from tests.contract.store import rig

METRIC = rig.metric("service_resp_time")
A, B = rig.entity("a"), rig.entity("b")
Key = tuple[int, int, int]


@pytest.fixture
def known(store: MetricStore) -> MetricStore:
    """Return a store that knows one metric and two entities."""
    store.define([METRIC])
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["a"], ["b"]))
    return store


def random_state(source: random.Random) -> State:
    """Return a state that uses any of its parts; all sums are exact in binary."""

    def some() -> bool:
        return source.random() < 0.4

    is_dated = some()
    return State(
        count=source.randrange(1, 9),
        total=source.randrange(-99, 99),
        base=source.randrange(9) if some() else 0,
        real=source.randrange(-99, 99) / 8 if some() else 0.0,
        low=source.randrange(-99, 99) / 8 if some() else None,
        high=source.randrange(-99, 99) / 8 if some() else None,
        last=source.randrange(9) / 8 if is_dated else None,
        last_at=source.randrange(3) if is_dated else None,
        slots={source.choice("abcdé"): source.randrange(1, 9) for _ in range(3)} if some() else {},
        sums={source.choice("abcdé"): source.randrange(9) / 8 for _ in range(3)} if some() else {},
    )


@pytest.mark.parametrize("seed", range(6))
def test_batches_in_any_order_give_the_combined_states(known: MetricStore, seed: int) -> None:
    """What the store holds is what `State.combine` makes of all rows, late ones included."""
    source = random.Random(seed)
    every: dict[Key, list[State]] = {}
    for _ in range(12):
        keys = {(METRIC.metric, source.choice([A, B]), source.randrange(6)) for _ in range(6)}
        rows = [(*key, random_state(source)) for key in keys]
        rig.merge(known, rows)
        for *key, state in rows:
            metric, entity, bucket = key
            every.setdefault((metric, entity, bucket), []).append(state)
    names = {A: ("a",), B: ("b",)}
    expected = {
        (names[entity], bucket): reduce(State.combine, states)
        for (_, entity, bucket), states in every.items()
    }
    assert rig.states(known, METRIC.name) == expected


def test_several_merges_in_one_transaction_add_up(known: MetricStore) -> None:
    """A transaction sees what it has merged before: a new row, then the same one as a known row."""
    state = State(count=1, total=2, slots={"x": 3}, sums={"y": 0.5})
    with known.begin(rig.HOLDER) as transaction:
        for _ in range(3):
            transaction.merge(Granularity.MINUTE, rig.facts([(METRIC.metric, A, 7, state)]))
    assert rig.states(known, METRIC.name) == {
        (("a",), 7): State(count=3, total=6, slots={"x": 9}, sums={"y": 1.5})
    }


def test_granularities_are_apart(known: MetricStore) -> None:
    """The same bucket number in another granularity is another bucket."""
    for number, granularity in enumerate(Granularity, start=1):
        rig.merge(known, [(METRIC.metric, A, 7, State(count=number))], granularity)
    for number, granularity in enumerate(Granularity, start=1):
        assert rig.states(known, METRIC.name, granularity) == {(("a",), 7): State(count=number)}


def test_rows_of_all_widths_merge_with_each_other(known: MetricStore) -> None:
    """A row with whole sums only meets one with slots and one with everything, in any order."""
    plain = State(count=1, total=10)
    slotted = State(count=1, total=20, slots={"a": 1})
    full = State(count=1, real=0.5, low=1.0, high=2.0, last=3.0, last_at=4, sums={"b": 0.25})
    orders = [(plain, slotted, full), (full, plain, slotted), (slotted, full, plain)]
    for bucket, order in enumerate(orders):
        for state in order:
            rig.merge(known, [(METRIC.metric, A, bucket, state)])
    expected = plain.combine(slotted).combine(full)
    assert rig.states(known, METRIC.name) == {(("a",), b): expected for b in range(3)}


def test_the_last_value_is_the_newest_and_of_equals_the_larger(known: MetricStore) -> None:
    """An older value never replaces a newer one; at the same time the larger value stands."""
    for last, last_at in ((5.0, 100), (9.0, 50), (4.0, 100), (6.0, 100)):
        rig.merge(known, [(METRIC.metric, A, 1, State(count=1, last=last, last_at=last_at))])
    (state,) = rig.states(known, METRIC.name).values()
    assert (state.last, state.last_at) == (6.0, 100)


def test_what_is_not_a_number_is_no_extreme_and_no_last_value(known: MetricStore) -> None:
    """NaN as an extreme or a last value is as good as none; in a sum it shows."""
    nan = math.nan
    not_numbers = State(count=1, real=nan, low=nan, high=nan, last=nan, last_at=9)
    rig.merge(known, [(METRIC.metric, A, 1, not_numbers)])
    rig.merge(known, [(METRIC.metric, A, 1, State(count=1, real=1.0, low=2.0))])
    (state,) = rig.states(known, METRIC.name).values()
    assert (state.count, state.low, state.high, state.last, state.last_at) == (
        *(2, 2.0),
        *(None, None, None),
    )
    assert math.isnan(state.real)


def test_infinite_and_tiny_values_survive(known: MetricStore) -> None:
    """Doubles come back as they were, to the last bit."""
    values = State(count=1, real=0.1 + 0.2, low=-math.inf, high=math.inf, last=5e-324, last_at=1)
    rig.merge(known, [(METRIC.metric, A, 1, values)])
    assert rig.states(known, METRIC.name) == {(("a",), 1): values}


def test_whole_numbers_of_64_bits_survive(known: MetricStore) -> None:
    """Sums and times beyond 2^53 are exact."""
    values = State(count=2**62, total=-(2**62) - 1, last=1.0, last_at=2**62 + 1)
    rig.merge(known, [(METRIC.metric, A, 1, values)])
    assert rig.states(known, METRIC.name) == {(("a",), 1): values}


def test_labels_may_be_any_text(known: MetricStore) -> None:
    """Quotes, commas, line breaks and NUL in a label neither break a row nor join two labels."""
    labels = ('"', ",", "a\nb", "\0", "\\", "{}", "'", "é𝄞", "")
    state = State(count=1, slots=dict.fromkeys(labels, 1))
    for _ in range(2):
        rig.merge(known, [(METRIC.metric, A, 1, state)])
    assert rig.states(known, METRIC.name) == {
        (("a",), 1): State(count=2, slots=dict.fromkeys(labels, 2))
    }


def test_slots_that_become_fewer_are_added_too(known: MetricStore) -> None:
    """A late reading takes counts away from a bucket: additions may be negative."""
    rig.merge(known, [(METRIC.metric, A, 1, State(count=5, slots={"1": 5, "2": 1}))])
    rig.merge(known, [(METRIC.metric, A, 1, State(count=-2, slots={"1": -2}))])
    assert rig.states(known, METRIC.name) == {(("a",), 1): State(count=3, slots={"1": 3, "2": 1})}


def test_two_rows_of_one_key_are_refused(known: MetricStore) -> None:
    """A table with two rows of one key is a mistake of the caller, whatever the database."""
    rows = [(METRIC.metric, A, 1, State(count=1, slots={"a": 1}))] * 2
    with pytest.raises(StoreError, match="two rows have the same metric, entity and bucket"):
        rig.merge(known, rows)
    assert rig.states(known, METRIC.name) == {}


def write_everything_and_fail(store: MetricStore) -> None:
    """Use all of a transaction, then raise in its block."""
    with store.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities(["c"]))
        transaction.new_meters(rig.meters(("cpu", "gauge", "1")))
        for granularity in Granularity:
            transaction.merge(granularity, rig.facts([(METRIC.metric, A, 1, State(count=1))]))
        transaction.rank(rig.topn(("cache_read", A, 1, 30, "s", "t", 0, "GET x")))
        transaction.read_deltas(rig.readings((METRIC.metric, A, "", 1, 0, 1.0)))
        transaction.record(rig.entry(1, "spans/a.parquet"))
        raise ZeroDivisionError


def test_an_error_in_the_block_leaves_nothing_behind(known: MetricStore) -> None:
    """All parts of a transaction that fails are undone."""
    with pytest.raises(ZeroDivisionError):
        write_everything_and_fail(known)
    assert known.top(TopQuery(kind="cache_read")) == []
    assert known.entities(rig.SCOPE) == [("a",), ("b",)]
    assert set(known.catalogue()) == {METRIC.name}
    assert all(rig.states(known, METRIC.name, granularity) == {} for granularity in Granularity)
    assert known.committed("checkpoint", 1) is None
    assert known.merged_files(["spans/a.parquet"]) == []
    with known.begin(rig.HOLDER) as transaction:
        changes = transaction.read_deltas(rig.readings((METRIC.metric, A, "", 2, 0, 9.0)))
    assert changes["delta"].to_pylist() == [0.0]  # the first reading, again


def merge_and_be_refused(store: MetricStore) -> None:
    """Merge something, then hand in a slow statement that is null."""
    nameless = rig.topn(("cache_read", A, 1, 30, "s", "t", 0, "GET x"))
    nameless = nameless.set_column(7, "statement", pa.nulls(1, pa.string()))
    with store.begin(rig.HOLDER) as transaction:
        transaction.merge(Granularity.MINUTE, rig.facts([(METRIC.metric, A, 1, State(count=1))]))
        transaction.rank(nameless)


def test_an_error_of_the_store_leaves_nothing_behind(known: MetricStore) -> None:
    """What the database refuses takes the whole transaction with it; the store goes on."""
    with pytest.raises(StoreError, match="statement"):
        merge_and_be_refused(known)
    assert rig.states(known, METRIC.name) == {}
    rig.merge(known, [(METRIC.metric, A, 1, State(count=1))])
    assert rig.states(known, METRIC.name) == {(("a",), 1): State(count=1)}


def test_a_reader_sees_all_of_a_batch_or_nothing(
    known: MetricStore, open_another: rig.Opener
) -> None:
    """A reader in the middle of a commit is neither kept waiting nor shown half of it."""
    reader = open_another()
    with known.begin(rig.HOLDER) as transaction:
        for granularity in Granularity:
            transaction.merge(granularity, rig.facts([(METRIC.metric, A, 1, State(count=1))]))
            assert rig.states(reader, METRIC.name, granularity) == {}
        transaction.record(rig.entry(1, "f"))
        assert reader.committed("checkpoint", 1) is None
    for granularity in Granularity:
        assert rig.states(reader, METRIC.name, granularity) == {(("a",), 1): State(count=1)}
    assert reader.committed("checkpoint", 1) == rig.entry(1, "f")


def test_a_reader_sees_one_state_from_its_first_statement_to_its_last(store: SqlStore) -> None:
    """What is committed while somebody reads is for the next one to read."""
    with store._engine.reading() as session:
        assert session.rows("metrics") == []
        store.define([METRIC])
        assert session.rows("metrics") == []
    assert set(store.catalogue()) == {METRIC.name}


def test_empty_tables_are_nothing(known: MetricStore) -> None:
    """A batch without rows commits its ledger row alone."""
    with known.begin(rig.HOLDER) as transaction:
        transaction.new_entities(rig.entities())
        transaction.new_meters(rig.meters())
        transaction.merge(Granularity.MINUTE, rig.facts([]))
        transaction.rank(rig.topn())
        assert transaction.read_deltas(rig.readings()).num_rows == 0
        transaction.record(rig.entry(1))
    assert known.committed("checkpoint", 1) == rig.entry(1)


def test_chunked_tables_and_columns_in_another_order_are_welcome(known: MetricStore) -> None:
    """Columns go by name, and a table may consist of pieces."""
    pieces = [rig.facts([(METRIC.metric, A, b, State(count=b, slots={"s": 1}))]) for b in (2, 1)]
    table = pa.concat_tables(pieces)
    with known.begin(rig.HOLDER) as transaction:
        transaction.merge(Granularity.MINUTE, table.select(table.column_names[::-1]))
    assert rig.states(known, METRIC.name) == {
        (("a",), b): State(count=b, slots={"s": 1}) for b in (1, 2)
    }


def test_slots_written_with_spaces_are_read(known: MetricStore) -> None:
    """Any JSON object will do, not just the compact kind."""
    table = rig.facts([(METRIC.metric, A, 1, State(count=1, slots={"a": 1, "b": 2}))])
    spaced = pa.array([json.dumps({"a": 1, "b": 2}, indent=2)])
    table = table.set_column(table.column_names.index("slots"), "slots", spaced)
    for _ in range(2):
        with known.begin(rig.HOLDER) as transaction:
            transaction.merge(Granularity.MINUTE, table)
    (row,) = known.series(SeriesQuery(metric=METRIC.name))
    assert row.state.slots == {"a": 2, "b": 4}
