"""What is particular to SQLite: durability, and what is said when the file is no good."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import DependencyError, StoreError, StoreUnavailableError
from penstock.metrics.functions import State
from penstock.store import open_store, sqlite
from penstock.store.contract import MetricStore
from tests.contract.store import rig

# Runs with the rights of somebody who may read the file and its folder, but not write to them.
AS_A_STRANGER = """
import os, sys
from penstock.errors import StoreError
from penstock.store import open_store
from penstock.store.contract import SeriesQuery
warm = open_store(sys.argv[2]); warm.migrate(); warm.acquire("x", 1); warm.catalogue(); warm.close()
if os.getuid() == 0:
    os.setuid(65534)
store = open_store(sys.argv[1])
for name, call in (
    ("migrate", store.migrate),
    ("acquire", lambda: store.acquire("x", 1.0)),
    ("catalogue", store.catalogue),
):
    try:
        print(name, call())
    except StoreError as error:
        print(name, type(error).__name__, error)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a store may be."""
    return tmp_path / "metrics.db"


@pytest.fixture
def local(file: Path) -> MetricStore:
    """Return a migrated store in a file, with its lease held."""
    store = open_store(str(file))
    store.migrate()
    store.acquire(rig.HOLDER, 60.0)
    return store


def test_a_commit_is_on_the_disk_when_it_returns(local: MetricStore, file: Path) -> None:
    """Landed files are moved away after it, so a power cut must not take it back."""
    engine = sqlite.SqliteEngine(str(file))
    with engine.writing() as session:
        assert session._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert session._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    engine.close()
    local.close()


def test_a_store_that_does_not_exist_is_not_created_by_reading(file: Path) -> None:
    """Whoever mistypes a path is told, and finds no new file there."""
    with pytest.raises(StoreUnavailableError, match="does not exist: run `penstock store migrate`"):
        open_store(str(file)).catalogue()
    assert not file.exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The folder is not created: it may be a disk that is not mounted."""
    store = open_store(f"{tmp_path}/no/metrics.db")
    with pytest.raises(StoreUnavailableError, match=r"no folder .*/no: create it"):
        store.migrate()
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        store.catalogue()


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    """A folder cannot be opened as a file."""
    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        open_store(str(tmp_path)).migrate()


def test_another_kind_of_file_is_left_alone(file: Path) -> None:
    """A file that is not SQLite's is not overwritten."""
    text = "not a database, but somebody's file\n" * 50
    file.write_text(text, encoding="ascii")
    store = open_store(str(file))
    for use in (store.migrate, store.catalogue):
        with pytest.raises(StoreError, match="is not a SQLite database: choose another file"):
            use()
    assert file.read_text(encoding="ascii") == text


def test_an_empty_database_holds_no_metrics_yet(file: Path) -> None:
    """A database without our tables says what is missing."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("VACUUM")
    with pytest.raises(StoreError, match="holds no metrics yet: run `penstock store migrate`"):
        open_store(str(file)).catalogue()


def test_a_damaged_file_is_told(local: MetricStore, file: Path) -> None:
    """Damage is an error with a remedy, not a wrong number."""
    local.define([rig.metric(f"m{number}") for number in range(500)])
    local.close()
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged: restore it from a copy"):
        open_store(str(file)).catalogue()


def test_a_full_disk_is_told_and_takes_nothing_of_the_batch(
    local: MetricStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch can be repeated when there is room again."""
    local.define([rig.metric("m")])
    local.close()
    rows = [(rig.metric("m").metric, entity, 1, State(count=1)) for entity in range(20_000)]
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*sqlite._PRAGMAS, "PRAGMA max_page_count = 60"))
    store = open_store(str(file))
    with pytest.raises(StoreUnavailableError, match="the disk is full: make room"):
        rig.merge(store, rows)
    assert rig.states(store, "m") == {}
    store.close()


def test_a_store_that_one_may_not_write_can_still_be_read(
    local: MetricStore, file: Path, tmp_path: Path
) -> None:
    """Writing says which right is missing; reading works, and migrating what is up to date."""
    local.define([rig.metric("m")])
    for path in (file, *tmp_path.glob("metrics.db-*")):
        path.chmod(0o444)
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    warm = tmp_path.parent / f"{tmp_path.name}-warm.db"
    ran = subprocess.run(
        [sys.executable, "-c", AS_A_STRANGER, str(file), str(warm)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    tmp_path.chmod(0o755)
    local.close()
    migrate, acquire, catalogue = ran.stdout.splitlines()
    assert migrate == "migrate None"
    assert "StoreUnavailableError" in acquire
    assert "is read-only: let this user write the file and its folder" in acquire
    assert catalogue.startswith("catalogue {'m': Catalogued(")


def test_an_old_sqlite_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python with an old SQLite cannot run the statements."""
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 31, 1))
    with pytest.raises(DependencyError, match=r"too old for penstock: .* 3\.35\.0 or newer"):
        open_store("metrics.db")
