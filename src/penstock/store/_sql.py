"""The SQL files of a dialect: statements by name, and migrations in their order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.store.contract import Granularity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

__all__ = ["Migration", "check_version", "migrations", "statements"]

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema: applied once, in the order of the versions."""

    version: int
    name: str
    text: str


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """Return the statements of a dialect by name.

    One that speaks of ``{granularity}`` is three: ``merge.minute``, ``merge.hour``, ``merge.day``.
    """
    found: dict[str, str] = {}
    for file in _files(dialect, "."):
        _, *pieces = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(pieces[::2], pieces[1::2], strict=True):
            assert name not in found, f"two statements are named {name}"
            found.update(_expanded(name, text.strip()))
    return found


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return the migrations of a dialect, oldest first."""
    return tuple(
        Migration(int(match[1]), file.name, file.read_text(encoding="utf-8"))
        for file in _files(dialect, "migrations")
        if (match := _MIGRATION.fullmatch(file.name)) is not None
    )


def check_version(address: str, version: int | None, newest: int, *, migrating: bool) -> None:
    """Refuse a store that this code cannot use; *version* is None where there are no tables."""
    if version is not None and version > newest:
        raise StoreError(
            f"{address} was made by a newer penstock (its schema is {version}, this one knows "
            f"{newest}): upgrade penstock"
        )
    if migrating or version == newest:
        return
    state = "holds no metrics yet" if version is None else f"has the older schema {version}"
    raise StoreError(f"{address} {state}: run `penstock store migrate` on it first")


def _files(dialect: str, folder: str) -> list[Traversable]:
    root = files("penstock.store").joinpath("sql", dialect)
    found = (root if folder == "." else root.joinpath(folder)).iterdir()
    return sorted((file for file in found if file.name.endswith(".sql")), key=lambda f: f.name)


def _expanded(name: str, text: str) -> dict[str, str]:
    if "{granularity}" not in text:
        return {name: text}
    return {f"{name}.{g}": text.replace("{granularity}", g) for g in Granularity}
