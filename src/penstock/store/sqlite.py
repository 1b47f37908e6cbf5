"""A store in one SQLite file: nothing to install, one writer, readers beside it (WAL)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from penstock.errors import DependencyError, StoreError, StoreUnavailableError
from penstock.store._pool import Pool
from penstock.store._sql import check_version, migrations, statements
from penstock.store._tables import is_newer, split_facts, with_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.store._engine import Row
    from penstock.store.contract import Granularity

__all__ = ["SqliteEngine"]

_DIALECT = "sqlite"
_OLDEST = (3, 35, 0)  # UPDATE ... FROM, upsert, window functions
# A commit of a large batch takes seconds, and the heartbeat waits for it.
_BUSY_TIMEOUT = 60.0

# FULL: when COMMIT returns, the ledger's row is on the disk; the landed files are moved after it.
_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA cache_size = -65536",  # KiB
    "PRAGMA temp_store = MEMORY",
    "PRAGMA secure_delete = OFF",
    "PRAGMA journal_size_limit = 67108864",
)

_REMEDIES = {
    sqlite3.SQLITE_BUSY: f"another process has locked it for {_BUSY_TIMEOUT:.0f} s: stop that one",
    sqlite3.SQLITE_READONLY: "is read-only: let this user write the file and its folder",
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full: make room",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: let this user read and write the file and its "
    "folder",
    sqlite3.SQLITE_IOERR: "cannot be read or written: look after the disk",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a copy, or delete it to begin anew",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: choose another file",
}
_REFUSALS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # trying again does not help


class SqliteEngine:
    """Transactions on a SQLite file."""

    def __init__(self, path: str) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise DependencyError(
                f"SQLite {sqlite3.sqlite_version} is too old for penstock: use a Python with "
                f"SQLite {'.'.join(map(str, _OLDEST))} or newer"
            )
        self._path = Path(path)
        self.address = f"sqlite:///{path}"
        self._pool = Pool(
            self.address, self._open, sqlite3.Connection.close, is_usable=lambda _: True
        )

    def __repr__(self) -> str:
        return f"<SqliteEngine {self.address}>"

    def migrate(self) -> None:
        """Create the file and the tables, or bring an older schema up to date."""
        connection = self._connect("rwc")
        try:
            with self._translated():
                connection.execute("PRAGMA journal_mode = WAL")
            with self._transaction(connection, "BEGIN IMMEDIATE") as session:
                session.migrate()
        finally:
            connection.close()

    @contextmanager
    def reading(self) -> Iterator[SqliteSession]:
        """Open a transaction that sees one state of the database."""
        with (
            self._pool.lend() as connection,
            self._transaction(connection, "BEGIN") as session,
        ):
            yield session

    @contextmanager
    def writing(self) -> Iterator[SqliteSession]:
        """Open the one transaction that writes; others wait for it."""
        with (
            self._pool.lend() as connection,
            self._transaction(connection, "BEGIN IMMEDIATE") as session,
        ):
            yield session

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection, begin: str) -> Iterator[SqliteSession]:
        with self._translated():
            connection.execute(begin)
        try:
            yield SqliteSession(connection, self.address)
            with self._translated():
                connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        if not self._path.exists():
            raise StoreUnavailableError(
                f"{self.address} does not exist: run `penstock store migrate` to create it"
            )
        connection = self._connect("rw")
        try:
            with self._translated():
                version = _version(connection)
            check_version(self.address, version, _newest(), migrating=False)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        if not self._path.absolute().parent.is_dir():
            raise StoreUnavailableError(
                f"{self.address}: there is no folder {self._path.parent}: create it, or choose "
                "another path"
            )
        with self._translated():
            # Lent to one thread at a time, by the pool.
            connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=_BUSY_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        try:
            with self._translated():
                for pragma in _PRAGMAS:
                    connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection

    def _translated(self) -> Translated:
        return Translated(self.address)


class SqliteSession:
    """One transaction on a SQLite connection."""

    def __init__(self, connection: sqlite3.Connection, address: str) -> None:
        self._connection = connection
        self._address = address

    def run(self, statement: str, **values: object) -> int:
        """Execute a statement; return how many rows it changed."""
        with Translated(self._address):
            return self._connection.execute(statements(_DIALECT)[statement], values).rowcount

    def rows(self, statement: str, **values: object) -> Sequence[Row]:
        """Return what a statement selects."""
        with Translated(self._address):
            return self._connection.execute(statements(_DIALECT)[statement], values).fetchall()

    def listed(self, values: Sequence[object]) -> object:
        """Return *values* as JSON: a parameter of SQLite cannot be a list."""
        return json.dumps(list(values))

    def stage(self, name: str, table: pa.Table) -> None:
        """Fill the temporary table ``stage_<name>``, and only it, with *table*."""
        marks = ", ".join("?" * table.num_columns)
        columns = ", ".join(table.column_names)
        with Translated(self._address):
            self._connection.execute(statements(_DIALECT)[f"stage_{name}"])
            self._connection.execute(f"DELETE FROM stage_{name}")  # noqa: S608 - our own names
            if table.num_rows:
                self._connection.executemany(
                    f"INSERT INTO stage_{name} ({columns}) VALUES ({marks})",  # noqa: S608 - too
                    _tuples(table),
                )

    def merge(self, granularity: Granularity, facts: pa.Table) -> None:
        """Merge states, row by row, each in the narrowest statement that fits it."""
        # Asked before anything is merged: rows of one metric may be in several groups.
        metrics = self.listed(pc.unique(facts["metric"]).to_pylist())
        newest = self.rows(f"newest_buckets.{granularity}", metrics=metrics)
        for statement, rows in split_facts(facts):
            if "slots" in rows.column_names:
                known = pc.invert(is_newer(rows, newest))
                kept = self._kept_slots(granularity, rows, known.to_pylist())
                rows = with_kept(rows, kept)  # noqa: PLW2901 - the same rows, with more in them
            with Translated(self._address):
                self._connection.executemany(
                    statements(_DIALECT)[f"{statement}.{granularity}"], _tuples(rows)
                )

    def _kept_slots(
        self, granularity: Granularity, rows: pa.Table, known: list[bool]
    ) -> Sequence[Row]:
        select = statements(_DIALECT)[f"kept_slots.{granularity}"]
        keys = _tuples(rows.select(["metric", "bucket", "entity"]))
        with Translated(self._address):
            return [
                (place, *found)
                for place, (key, is_known) in enumerate(zip(keys, known, strict=True))
                if is_known
                and (found := self._connection.execute(select, key).fetchone()) is not None
            ]

    def migrate(self) -> None:
        """Apply the migrations that are missing, in this transaction."""
        with Translated(self._address):
            version = _version(self._connection)
            check_version(self._address, version, _newest(), migrating=True)
            for migration in migrations(_DIALECT):
                if migration.version > (version or 0):
                    for statement in _split(migration.text):
                        self._connection.execute(statement)
                    self._connection.execute(
                        "INSERT INTO schema_version (version, name) VALUES (?, ?)",
                        (migration.version, migration.name),
                    )


class Translated:
    """Turns errors of SQLite into one line that says what to do."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise a StoreError in place of SQLite's error."""
        if not isinstance(error, sqlite3.Error):
            return
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the extended code says more
        if code not in _REMEDIES:
            raise StoreError(f"{self._address}: {error}") from error
        kind_of_error = StoreError if code in _REFUSALS else StoreUnavailableError
        raise kind_of_error(f"{self._address} {_REMEDIES[code]} ({error})") from error


def _newest() -> int:
    return migrations(_DIALECT)[-1].version


def _version(connection: sqlite3.Connection) -> int | None:
    """Return the version of the schema, None where there is none."""
    table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
    if connection.execute(table).fetchone() is None:
        return None
    newest: int | None = connection.execute("SELECT max(version) FROM schema_version").fetchone()[0]
    return newest


def _split(script: str) -> Iterator[str]:
    """Yield the statements of a script; `executescript` would commit before it begins."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _tuples(table: pa.Table) -> Iterator[Row]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
