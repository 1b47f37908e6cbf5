"""Entities of rows, from the texts that make them up."""

import pyarrow as pa

from penstock.aggregation.accumulator import Accumulator
from penstock.aggregation.columns import Texts
from penstock.aggregation.grouping import entity_codes
from penstock.metrics.definitions import stable_id


def texts(*values: str | None) -> Texts:
    """Return a column of texts."""
    return Texts.of(pa.array(values, pa.string()))


def test_equal_names_are_one_entity() -> None:
    """The id is that of the scope and the names, and the entity is remembered."""
    into = Accumulator()
    codes, ids = entity_codes(
        [texts("shop", "shop", "bank", "shop"), texts("a", "b", "a", "a")], "Endpoint", into
    )
    assert ids[codes].tolist() == [
        stable_id("Endpoint", "shop", "a"),
        stable_id("Endpoint", "shop", "b"),
        stable_id("Endpoint", "bank", "a"),
        stable_id("Endpoint", "shop", "a"),
    ]
    entities = into.finish().entities.to_pylist()
    assert sorted(entity["parts"] for entity in entities) == [
        ["bank", "a"],
        ["shop", "a"],
        ["shop", "b"],
    ]
    assert {entity["scope"] for entity in entities} == {"Endpoint"}


def test_a_name_that_is_null_is_empty() -> None:
    """An entity has all its parts."""
    into = Accumulator()
    codes, ids = entity_codes([texts("shop", None), texts(None, "a")], "Endpoint", into)
    assert ids[codes].tolist() == [
        stable_id("Endpoint", "shop", ""),
        stable_id("Endpoint", "", "a"),
    ]


def test_names_do_not_run_into_each_other() -> None:
    """("ab", "c") is not ("a", "bc")."""
    _, ids = entity_codes([texts("ab", "a"), texts("c", "bc")], "Endpoint", Accumulator())
    assert len(set(ids.tolist())) == 2


def test_scopes_are_apart() -> None:
    """The same name in two scopes is two entities."""
    into = Accumulator()
    _, services = entity_codes([texts("shop")], "Service", into)
    _, databases = entity_codes([texts("shop")], "DatabaseAccess", into)
    assert services.tolist() != databases.tolist()
    assert into.finish().entities.num_rows == 2


def test_many_parts_of_many_names_do_not_overflow() -> None:
    """Four columns of 100,000 names have 10**20 combinations, of which the rows have few."""
    rows = 100_000
    columns = [texts(*(f"{part}{row}" for row in range(rows))) for part in "abcd"]
    codes, ids = entity_codes(columns, "ServiceInstanceRelation", Accumulator())
    assert len(set(ids[codes].tolist())) == rows
