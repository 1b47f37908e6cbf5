"""Every test that asks for `store` runs twice: on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.store import rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.store.contract import MetricStore


@pytest.fixture
def wall() -> rig.Wall:
    """Return the wall clock by which leases run out."""
    return rig.Wall()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/metrics.db"
    address: str = request.getfixturevalue("postgres").create_schema()
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
