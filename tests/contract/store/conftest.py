"""Every test that asks for `store` runs twice: on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store import open_store, sqlite
from tests.contract.store import rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.store.contract import MetricStore
    from tests.support.postgres import PostgresServer

TABLES = (
    *("metric", "entity", "metric_minute", "metric_hour", "metric_day", "topn", "reading"),
    *("ledger", "landed_file", "job"),
)


@pytest.fixture
def wall() -> rig.Wall:
    """Return the wall clock by which leases run out."""
    return rig.Wall()


@pytest.fixture(scope="session")
def schema(postgres: PostgresServer) -> str:
    """Return the address of a schema in PostgreSQL that is migrated once, for many tests."""
    address = postgres.create_schema()
    store = open_store(address)
    store.migrate()
    store.close()
    return address


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of a database with nothing in it."""
    if request.param == "sqlite":
        # No test pulls the plug, and waiting for the disk would take most of the time.
        hasty = [pragma.replace("FULL", "OFF") for pragma in sqlite._PRAGMAS]
        monkeypatch.setattr(sqlite, "_PRAGMAS", hasty)
        return f"sqlite:///{tmp_path}/metrics.db"
    address: str = request.getfixturevalue("schema")
    name = address.rpartition("%3D")[2]
    clear = [f"DELETE FROM {name}.{table}" for table in TABLES]  # noqa: S608 - our own names
    clear.append(f"UPDATE {name}.lease SET holder = NULL")  # noqa: S608 - as above
    request.getfixturevalue("postgres").execute(";".join(clear))
    return address


@pytest.fixture
def open_another(url: str, wall: rig.Wall) -> Iterator[rig.Opener]:
    """Return a function that opens stores on the database, as other processes would."""
    opener = rig.Opener(url, wall)
    yield opener
    opener.close()


@pytest.fixture
def store(open_another: rig.Opener) -> MetricStore:
    """Return a migrated store whose lease is held by `rig.HOLDER`."""
    store = open_another()
    store.migrate()
    store.acquire(rig.HOLDER, 60.0)
    return store
