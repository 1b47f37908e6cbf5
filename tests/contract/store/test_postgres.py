"""What is particular to PostgreSQL: rights, restarts, and what is said when it is not there."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.errors import StoreError, StoreUnavailableError
from penstock.metrics.functions import State
from penstock.store import open_store
from penstock.store import postgres as postgres_module
from penstock.store._postgres_errors import Translated
from penstock.store.contract import Granularity, SeriesQuery
from tests.contract.store import rig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.store.contract import MetricStore
    from tests.support.postgres import PostgresServer

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "store.md"
GRANTS = re.compile(r"^## Rights in PostgreSQL.*?^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECRET = "hunter2"  # noqa: S105 - looked for in messages


@pytest.fixture
def remote(postgres: PostgresServer) -> Iterator[MetricStore]:
    """Return a migrated store in PostgreSQL, with its lease held."""
    with closing(open_store(postgres.create_schema())) as store:
        store.migrate()
        store.acquire(rig.HOLDER, 60.0)
        yield store


@pytest.fixture
def restarted(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """Return the server; it runs again after the test."""
    yield postgres
    postgres.stop()
    postgres.start()


def everything_said(error: BaseException) -> str:
    """Return the texts of an error and of all errors behind it."""
    texts = []
    behind: BaseException | None = error
    while behind is not None:
        texts += [str(behind), repr(behind)]
        behind = behind.__cause__ or behind.__context__
    return "\n".join(texts)


# --- connecting -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "database", "said"),
    [
        ({"password": SECRET}, "postgres", "refuses the user or the password: correct the URL"),
        ({"user": "nobody", "password": SECRET}, "postgres", "refuses the user or the password"),
        ({}, "nowhere", "lacks that database or role: create it"),
        ({"port": 1, "password": SECRET}, "postgres", "nobody listens at that port: start it"),
        ({"host": "no host", "password": SECRET}, "postgres", "has no such host: correct the URL"),
    ],
    ids=["password", "user", "database", "port", "host"],
)
def test_a_server_that_lets_nobody_in_is_told_in_one_line(
    postgres: PostgresServer, parts: dict[str, str | int], database: str, said: str
) -> None:
    """The message has the address, the remedy and what the server said, but no password."""
    store = open_store(postgres.url(database, **parts).replace("no host", "no%20host"))
    for use in (store.migrate, store.catalogue):
        with pytest.raises(StoreUnavailableError, match=re.escape(said)) as caught:
            use()
        assert store.address in str(caught.value)
        assert "\n" not in str(caught.value)
        assert SECRET not in everything_said(caught.value)
        assert postgres.password not in everything_said(caught.value)


def test_a_missing_password_is_asked_for(postgres: PostgresServer) -> None:
    """Without a password the message says where it may be given."""
    url = postgres.url().replace(f":{postgres.password}@", "@")
    with pytest.raises(StoreUnavailableError, match="wants a password: add it to the URL"):
        open_store(url).migrate()


def test_an_empty_database_holds_no_metrics_yet(postgres: PostgresServer) -> None:
    """A database without our tables says what is missing."""
    with pytest.raises(StoreError, match="holds no metrics yet: run `penstock store migrate`"):
        open_store(postgres.create_schema()).catalogue()


def test_an_old_server_is_told(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lacks what the statements need is refused before anything is created."""
    monkeypatch.setattr(postgres_module, "_OLDEST", 990_000)
    with pytest.raises(StoreError, match=r"is PostgreSQL \d+: use 99 or newer"):
        open_store(postgres.create_schema()).migrate()


def test_a_database_in_another_encoding_is_told(postgres: PostgresServer) -> None:
    """Names in any script must fit."""
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreError, match=r"encoded in LATIN1.*: create the database with ENCODING"):
        open_store(postgres.url("latin")).migrate()


# --- errors of statements ---------------------------------------------------------------------


def test_a_read_only_server_is_told(postgres: PostgresServer) -> None:
    """A standby, or a server that was switched to read-only, can be read."""
    schema = postgres.create_schema()
    open_store(schema).migrate()
    with closing(open_store(f"{schema}%20-cdefault_transaction_read_only%3Don")) as store:
        with pytest.raises(StoreUnavailableError, match="is read-only: use the primary server"):
            store.acquire("x", 1.0)
        assert store.catalogue() == {}


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (psycopg.errors.DiskFull, StoreUnavailableError, "disk is full: make room there"),
        (psycopg.errors.TooManyConnections, StoreUnavailableError, "takes no more connections"),
        (psycopg.errors.OutOfMemory, StoreUnavailableError, "has run out of something"),
        (psycopg.errors.AdminShutdown, StoreUnavailableError, "is shutting down or starting"),
        (psycopg.errors.DeadlockDetected, StoreUnavailableError, "give way to another transaction"),
        (psycopg.errors.QueryCanceled, StoreUnavailableError, "took too long"),
        (psycopg.errors.IoError, StoreUnavailableError, "has trouble with its disk"),
        (psycopg.errors.UndefinedTable, StoreError, "42P01"),
        (psycopg.OperationalError, StoreUnavailableError, "cannot be reached"),
    ],
)
def test_errors_of_the_server_are_one_line_with_a_remedy(
    error: type[psycopg.Error], kind: type[StoreError], said: str
) -> None:
    """What can pass is unavailable, everything else is an error; secrets are blacked out."""
    text = f"could not write\nHINT:  password={SECRET}"
    with pytest.raises(StoreError, match=said) as caught, Translated("postgresql://db", (SECRET,)):
        raise error(text)
    assert type(caught.value) is kind
    assert "could not write HINT: password=***" in str(caught.value)
    assert caught.value.__suppress_context__


def test_rights_are_granted_as_the_reference_says(postgres: PostgresServer) -> None:
    """The statements in the document are enough for the job and for a reader, and not too much."""
    (grants,) = GRANTS.findall(REFERENCE.read_text("utf-8"))
    database = postgres.create_database()
    with closing(open_store(postgres.url(database))) as owner:
        owner.migrate()
        owner.define([rig.metric("m")])
    postgres.execute(grants.replace("choose one", "1").replace("choose another", "2"), database)
    write_and_read_with_few_rights(postgres, database)


def write_and_read_with_few_rights(postgres: PostgresServer, database: str) -> None:
    """Use everything that a job and a reader use."""
    job = open_store(postgres.url(database, user="penstock_job", password="1"))  # noqa: S106
    with closing(job):
        job.migrate()
        job.acquire(rig.HOLDER, 60.0)
        job.adopt_job("j")
        with job.begin(rig.HOLDER) as transaction:
            transaction.new_entities(rig.entities(["a"]))
            row = (rig.metric("m").metric, rig.entity("a"), 1, State(count=1, slots={"a": 1}))
            for _ in range(2):
                transaction.merge(Granularity.MINUTE, rig.facts([row]))
            transaction.rank(rig.topn(("cache_read", 1, 1, 30, "s", "t", 0, "GET")))
            transaction.read_deltas(rig.readings((1, 1, "", 1, 0, 1.0)))
            transaction.record(rig.entry(1, "f"))
        job.define([rig.metric("m", definition="changed")])
    reader = open_store(postgres.url(database, user="penstock_reader", password="2"))  # noqa: S106
    with closing(reader):
        assert reader.series(SeriesQuery(metric="m")) == []
        with pytest.raises(StoreUnavailableError, match=r"lacks a right: grant it.*lease"):
            reader.acquire("x", 1.0)


# --- restarts ---------------------------------------------------------------------------------


def test_a_restart_between_batches_goes_unnoticed(
    remote: MetricStore, restarted: PostgresServer
) -> None:
    """Connections that were at rest are replaced."""
    restarted.stop()
    restarted.start()
    with remote.begin(rig.HOLDER) as transaction:
        transaction.record(rig.entry(1))
    assert remote.committed("checkpoint", 1) is not None


def test_a_server_that_is_down_is_told_and_found_again(
    remote: MetricStore, restarted: PostgresServer
) -> None:
    """While the server is down every call says so; afterwards all is as before."""
    restarted.stop()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="nobody listens at that port"):
            remote.renew(rig.HOLDER, 60.0)
    restarted.start()
    remote.renew(rig.HOLDER, 60.0)


def merge_while_it_dies(store: MetricStore, server: PostgresServer) -> None:
    """End the server in the middle of a transaction."""
    row = (rig.metric("m").metric, rig.entity("a"), 1, State(count=1))
    with store.begin(rig.HOLDER) as transaction:
        transaction.merge(Granularity.MINUTE, rig.facts([row]))
        server.kill()
        transaction.merge(Granularity.HOUR, rig.facts([row]))


def test_a_server_that_dies_in_the_middle_takes_the_batch_with_it(
    remote: MetricStore, restarted: PostgresServer
) -> None:
    """Nothing of the batch is there afterwards, and it can be repeated."""
    remote.define([rig.metric("m")])
    with pytest.raises(StoreUnavailableError):
        merge_while_it_dies(remote, restarted)
    restarted.start()
    assert rig.states(remote, "m") == {}
    rig.merge(remote, [(rig.metric("m").metric, rig.entity("a"), 1, State(count=1))])


# --- durability -------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "used"), [("off", "on"), ("local", "local"), ("on", "on")])
def test_a_commit_is_on_the_disk_when_it_returns(
    postgres: PostgresServer, setting: str, used: str
) -> None:
    """A server that answers before it has written is told otherwise; other settings stand."""
    schema = f"{postgres.create_schema()}%20-csynchronous_commit%3D{setting}"
    engine = postgres_module.PostgresEngine(schema)
    engine.migrate()
    with engine.writing() as session:
        shown = session._connection.execute("SHOW synchronous_commit").fetchone()
    engine.close()
    assert shown == (used,)
