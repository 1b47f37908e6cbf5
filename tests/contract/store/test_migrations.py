"""The schema: as listed, applied once, in order, and by one at a time."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.errors import StoreError
from penstock.metrics.functions import State
from penstock.store._sql import Migration, migrations, statements
from tests.contract.store import rig

if TYPE_CHECKING:
    from penstock.store.contract import MetricStore

LISTINGS = Path(__file__).parent / "schema"
DIALECTS = ("sqlite", "postgres")

SQLITE_COLUMNS = """
    SELECT t.type || ' ' || t.name || '.' || c.name || ' ' || c.type
        || CASE c."notnull" WHEN 1 THEN ' NOT NULL' ELSE '' END
        || CASE c.pk WHEN 0 THEN '' ELSE ' KEY ' || c.pk END
    FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c
    WHERE t.type IN ('table', 'view') AND t.name NOT LIKE 'sqlite_%'
    UNION ALL
    SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL
    ORDER BY 1
"""
POSTGRES_COLUMNS = """
    SELECT CASE t.table_type WHEN 'VIEW' THEN 'view ' ELSE 'table ' END
        || c.table_name || '.' || c.column_name || ' ' || c.data_type
        || CASE c.is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END
        || coalesce(' COLLATE ' || c.collation_name, '')
    FROM information_schema.columns AS c
    JOIN information_schema.tables AS t USING (table_schema, table_name)
    WHERE c.table_schema = current_schema()
    UNION ALL
    SELECT replace(indexdef, current_schema() || '.', '') FROM pg_indexes
    WHERE schemaname = current_schema()
    ORDER BY 1
"""


@pytest.fixture(params=DIALECTS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/metrics.db"
    address: str = request.getfixturevalue("postgres").create_schema()
    return address


def listing(url: str) -> list[str]:
    """Return tables, views and indexes of a database, one line each."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return [line for (line,) in connection.execute(SQLITE_COLUMNS)]
    with psycopg.connect(url) as connection:
        return sorted(str(line) for (line,) in connection.execute(POSTGRES_COLUMNS))


def execute(url: str, statement: str) -> None:
    """Execute a statement behind the store's back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(statement)
        return
    with psycopg.connect(url) as session:
        session.execute(statement.encode())


def pretend(monkeypatch: pytest.MonkeyPatch, *steps: Migration) -> None:
    """Let both stores know these migrations only."""
    for dialect in DIALECTS:
        monkeypatch.setattr(f"penstock.store.{dialect}.migrations", lambda _: steps)


def first_step(url: str) -> Migration:
    """Return the first migration of the database at *url*."""
    return migrations(url.partition(":")[0].removesuffix("ql"))[0]


def test_the_migrated_schema_is_the_listed_one(store: MetricStore, url: str) -> None:
    """A change of the schema shows in the listing, which is what one reads in a review."""
    assert store.catalogue() == {}
    name = "sqlite" if url.startswith("sqlite") else "postgres"
    expected = (LISTINGS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert listing(url) == expected


def test_migrations_are_numbered_without_gaps_and_alike() -> None:
    """Both databases go through the same steps."""
    steps = {dialect: [(m.version, m.name) for m in migrations(dialect)] for dialect in DIALECTS}
    assert steps["sqlite"] == steps["postgres"]
    assert [version for version, _ in steps["sqlite"]] == list(range(1, len(steps["sqlite"]) + 1))


def test_both_databases_know_the_same_statements() -> None:
    """What the store asks for by name is there; PostgreSQL has a few for its own use."""
    sqlite, postgres = (set(statements(dialect)) for dialect in DIALECTS)
    assert sqlite - postgres == set()
    assert postgres - sqlite == {"begin_writing", "stage_plain", "stage_slots", "stage_full"}


def test_migrating_again_changes_nothing(store: MetricStore, open_another: rig.Opener) -> None:
    """Every start may migrate; what is there stays."""
    store.define([rig.metric("m")])
    rig.merge(store, [(rig.metric("m").metric, rig.entity("a"), 1, State(count=1))])
    open_another().migrate()
    assert store.catalogue() == {"m": rig.metric("m")}


def test_an_older_store_is_brought_up_to_date(
    open_another: rig.Opener, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the missing steps are applied; until then the store says what to do."""
    store = open_another()
    with monkeypatch.context() as patch:
        pretend(patch, first_step(url))
        store.migrate()
    with pytest.raises(StoreError, match=r"older schema 1: run `penstock store migrate`"):
        store.catalogue()
    store.migrate()
    assert store.catalogue() == {}
    assert any(line.startswith("view minute_values") for line in listing(url))


def test_a_newer_store_is_refused(store: MetricStore, url: str, open_another: rig.Opener) -> None:
    """Old code does not touch what it does not know, not even to migrate it."""
    execute(url, "INSERT INTO schema_version VALUES (999, 'from the future')")
    other = open_another()
    newer = r"newer penstock \(its schema is 999, this one knows \d\): upgrade penstock"
    with pytest.raises(StoreError, match=newer) as caught:
        other.catalogue()
    assert store.address in str(caught.value)
    with pytest.raises(StoreError, match=newer):
        other.migrate()


def test_a_step_that_fails_leaves_nothing_behind(
    open_another: rig.Opener, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of an interrupted migration do not stand in the way of the next one."""
    broken = Migration(2, "0002_broken.sql", "CREATE TABLE good (a INTEGER);\nSELECT nonsense;\n")
    store = open_another()
    with monkeypatch.context() as patch:
        pretend(patch, first_step(url), broken)
        with pytest.raises(StoreError, match="nonsense"):
            store.migrate()
    assert listing(url) == []
    store.migrate()
    assert store.catalogue() == {}


def test_several_processes_may_migrate_at_once(open_another: rig.Opener) -> None:
    """All of them succeed, whoever is first."""
    stores = [open_another() for _ in range(6)]
    start = threading.Barrier(len(stores))
    failures: list[BaseException] = []

    def migrate(store: MetricStore) -> None:
        start.wait(30.0)
        try:
            store.migrate()
        except BaseException as failure:  # noqa: BLE001 - told by the main thread
            failures.append(failure)

    threads = [threading.Thread(target=migrate, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert failures == []
    assert [store.catalogue() for store in stores] == [{}] * 6


def test_a_closed_store_says_so(store: MetricStore) -> None:
    """Closing twice is fine, using a closed store is a mistake."""
    store.close()
    store.close()
    with pytest.raises(StoreError, match="was closed here: open it again"):
        store.catalogue()


def test_a_store_that_is_closed_in_the_middle_still_commits(
    store: MetricStore, open_another: rig.Opener
) -> None:
    """Closing takes nothing away from whoever is at work: that connection closes afterwards."""
    with store.begin(rig.HOLDER) as transaction:
        store.close()
        transaction.record(rig.entry(1))
    assert open_another().committed("checkpoint", 1) == rig.entry(1)
    with pytest.raises(StoreError, match="was closed here"):
        store.catalogue()
