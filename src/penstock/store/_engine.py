"""What a database must offer for :class:`penstock.store._store.SqlStore` to work on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from penstock.store.contract import Granularity

__all__ = ["Engine", "Row", "Session"]

Row: TypeAlias = tuple[Any, ...]


class Session(Protocol):
    """One transaction. Statements are known by their names in the dialect's SQL files.

    All methods raise StoreError or StoreUnavailableError, never the driver's own errors.
    """

    def run(self, statement: str, **values: object) -> int:
        """Execute a statement; return how many rows it changed."""
        ...

    def rows(self, statement: str, **values: object) -> Sequence[Row]:
        """Return what a statement selects."""
        ...

    def listed(self, values: Sequence[object]) -> object:
        """Return *values* in the form in which a statement takes a list."""
        ...

    def stage(self, name: str, table: pa.Table) -> None:
        """Fill the temporary table ``stage_<name>``, and only it, with *table*."""
        ...

    def merge(self, granularity: Granularity, facts: pa.Table) -> None:
        """Merge states (see `Transaction.merge`)."""
        ...


class Engine(Protocol):
    """A database: where it is, and transactions on it. Safe to use from any thread."""

    @property
    def address(self) -> str:
        """Where the database is; never with a password."""
        ...

    def migrate(self) -> None:
        """Bring the schema up to date."""
        ...

    def reading(self) -> AbstractContextManager[Session]:
        """Open a transaction that sees one state of the database."""
        ...

    def writing(self) -> AbstractContextManager[Session]:
        """Open a transaction that commits at the end of the block and rolls back on an error."""
        ...

    def close(self) -> None:
        """Close all connections; one that is in use when its block ends."""
        ...
