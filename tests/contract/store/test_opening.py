"""Which addresses are stores, and what is said about those that are not."""

import sys
from pathlib import Path

import pytest

from penstock.errors import ConfigError, DependencyError
from penstock.store import open_store

SECRET = "hunter2"  # noqa: S105 - looked for in messages


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sqlite:///metrics.db", "sqlite:///metrics.db"),
        ("sqlite:////var/metrics.db", "sqlite:////var/metrics.db"),
        ("metrics.db", "sqlite:///metrics.db"),
        ("a folder/50% #1?.db", "sqlite:///a folder/50% #1?.db"),
        (f"postgresql://me:{SECRET}@db:5432/metrics", "postgresql://me@db:5432/metrics"),
        (f"postgres://me:{SECRET}@db/metrics?sslmode=require", "postgresql://me@db/metrics"),
        (f"postgresql:///metrics?host=db&user=me&password={SECRET}", "postgresql://me@db/metrics"),
    ],
)
def test_addresses_are_shown_without_password(url: str, address: str) -> None:
    """What messages name is the address that one can type, less the secret."""
    store = open_store(url)
    assert store.address == address
    assert SECRET not in repr(store)
    assert SECRET not in repr(vars(store))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "  ",
        "sqlite://",
        "sqlite:///",
        "sqlite://metrics.db",
        "sqlite:///:memory:",
        ":memory:",
        f"mysql://me:{SECRET}@db/metrics",
        "://",
        f"postgresql://me:{SECRET}%zz@db/metrics",
        f"postgresql://me:{SECRET}/x@db/metrics",
        f"postgresql://me:1/{SECRET}@db/metrics",
        f"postgresql://me:x@{SECRET}@db/metrics",
        f"postgresql://me:x@db:{SECRET}/metrics",
        f"postgresql://me:x@db/metrics?{SECRET}",
    ],
)
def test_an_address_of_no_known_form_is_told_with_the_known_ones(url: str) -> None:
    """The message says what to write and repeats nothing that may be a password."""
    with pytest.raises(ConfigError, match=r"postgresql://user:password@host") as caught:
        open_store(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_nothing_is_created_before_it_is_used(tmp_path: Path) -> None:
    """Opening a store neither makes a file nor connects anywhere."""
    open_store(f"{tmp_path}/metrics.db")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_driver_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the message says what to install; SQLite needs nothing."""
    for name in ("penstock.store.postgres", "penstock.store._postgres_errors"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DependencyError, match=r"pip install 'penstock\[postgres\]'"):
        open_store(f"postgresql://me:{SECRET}@db/metrics")
    open_store("metrics.db")
