"""Where metrics are kept: SQLite by default, PostgreSQL when that is outgrown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.clock import wall_time
from penstock.errors import ConfigError
from penstock.store._store import SqlStore
from penstock.store.sqlite import SqliteEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store._engine import Engine
    from penstock.store.contract import MetricStore

__all__ = ["open_store"]

_FORMS = (
    "use sqlite:///relative.db, sqlite:////absolute.db, a plain path, or "
    "postgresql://user:password@host:port/database"
)


def open_store(url: str, *, now: Callable[[], float] = wall_time) -> MetricStore:
    """Return the store at *url*; nothing is connected or created before it is used.

    *now* returns seconds since 1970; leases run out by it. Raises ConfigError for an address of
    no known form and DependencyError if PostgreSQL's driver is not installed.
    """
    return SqlStore(_engine_for(url), now)


def _engine_for(url: str) -> Engine:
    scheme, separator, rest = url.partition("://")
    if not separator:
        return SqliteEngine(_file(url))
    if scheme == "sqlite":
        if not rest.startswith("/"):
            raise ConfigError(f"store: {url!r} needs three slashes, or four: {_FORMS}")
        return SqliteEngine(_file(rest[1:]))
    if scheme in {"postgresql", "postgres"}:
        from penstock.store.postgres import PostgresEngine  # noqa: PLC0415 - an extra

        return PostgresEngine(url)
    # Only the scheme is told: whatever follows may hold a password.
    raise ConfigError(f"store: there is no store of the kind {scheme!r}: {_FORMS}")


def _file(path: str) -> str:
    if not path.strip() or path == ":memory:":
        raise ConfigError(f"store: {path!r} is not a file: {_FORMS}")
    return path
