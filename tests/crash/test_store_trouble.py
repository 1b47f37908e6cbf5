"""A store that fails while a batch is on its way into it: nothing is lost, nothing counts twice."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from _pytest.mark import ParameterSet

from penstock.aggregation.settings import AggregationSettings
from penstock.clock import wall_time
from penstock.errors import PenstockError, StoreUnavailableError
from penstock.land import LandingFolder
from penstock.metrics.definitions import stable_id
from penstock.spark.job import JobSettings
from penstock.store import open_store
from penstock.store._batch import SqlTransaction
from penstock.store.contract import MetricStore, Transaction
from penstock.store.sqlite import SqliteEngine
from tests.crash.rig import Passing, Telemetry, check_store, contents, local_batches
from tests.crash.servers import ENDINGS
from tests.oracle.samples import span
from tests.support.postgres import PostgresServer
from tests.support.spark import land

FEW = JobSettings(aggregation=AggregationSettings(max_entities=3))
QUICK = {("crash", "merge"), ("stop", "record")}  # in every run of the tests; the others in a soak


def slowly(*values: str) -> ParameterSet:
    """Return parameters of a test that is one of the slow ones."""
    return pytest.param(*values, marks=pytest.mark.slow)


MOMENTS = [
    each if each in QUICK else slowly(*each)
    for each in itertools.product(ENDINGS, ("new_entities", "merge", "record"))
]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Return a server that may be ended: nobody else uses it."""
    with PostgresServer.started() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetricStore]:
    """Return an empty store of either kind."""
    if request.param == "sqlite":
        address = str(tmp_path / "metrics.db")
    else:
        address = request.getfixturevalue("server").create_schema()
    with closing(open_store(address)) as store:
        yield store


@pytest.fixture
def in_postgres(server: PostgresServer) -> Iterator[MetricStore]:
    """Return an empty store in PostgreSQL."""
    with closing(open_store(server.create_schema())) as store:
        yield store


@pytest.fixture
def landing(tmp_path: Path, tiny: Telemetry) -> LandingFolder:
    """Return a landing folder with four files."""
    return tiny.copied_to(tmp_path / "landing")


def do_once(action: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does *action* when it is called first, and nothing later."""
    actions = [action]
    return lambda: actions.pop()() if actions else None


def hook(monkeypatch: pytest.MonkeyPatch, method: str, action: Callable[[], None]) -> None:
    """Have *action* done after a method of a transaction that merges a batch."""
    original = getattr(SqlTransaction, method)

    def hooked(transaction: SqlTransaction, *arguments: object) -> Any:  # noqa: ANN401
        result = original(transaction, *arguments)
        action()
        return result

    monkeypatch.setattr(SqlTransaction, method, hooked)


def lose_answer(store: MetricStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the answer to the next commit get lost, but not the commit."""
    begin = store.begin

    @contextmanager
    def losing(holder: str) -> Iterator[Transaction]:
        with begin(holder) as transaction:
            yield transaction
        monkeypatch.setattr(store, "begin", begin)
        raise StoreUnavailableError("the answer is lost")

    monkeypatch.setattr(store, "begin", losing)


def test_a_commit_whose_answer_is_lost_is_not_merged_twice(
    store: MetricStore,
    landing: LandingFolder,
    tiny: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job asks the ledger before it tries again."""
    with local_batches(store, landing, clock=Passing()) as process:
        for number, name in enumerate(tiny.names):
            lose_answer(store, monkeypatch)
            process(number, [name])
    check_store(store, tiny)
    assert landing.pending() == []


def test_a_connection_that_breaks_after_commit_was_sent(
    in_postgres: MetricStore,
    landing: LandingFolder,
    tiny: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As above, with PostgreSQL's own driver: the server commits and nobody hears of it."""
    execute = psycopg.Connection.execute
    armed: list[bool] = []

    def breaking(connection: Any, query: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        result = execute(connection, query, *arguments, **named)
        if query == "COMMIT" and armed:
            armed.clear()
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return result

    monkeypatch.setattr(psycopg.Connection, "execute", breaking)
    hook(monkeypatch, "record", do_once(lambda: armed.append(True)))
    with local_batches(in_postgres, landing, clock=Passing()) as process:
        process(0, tiny.names)
    assert not armed
    check_store(in_postgres, tiny)


def test_after_a_lost_answer_the_caps_still_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entities of a batch that turned out to be committed count as known."""
    landing = LandingFolder(tmp_path / "landing")
    landing.prepare()
    services = sorted((f"service-{n}" for n in range(6)), key=lambda s: stable_id("Service", s))
    # Those that come later would come first, were those before them not known.
    minute = int(wall_time() // 60) - 5
    for name, chosen in (("spans/a.parquet", services[3:]), ("spans/b.parquet", services[:3])):
        land(landing.root, name, [span(minute=minute, service_name=each) for each in chosen])
    with (
        closing(open_store(str(tmp_path / "metrics.db"))) as store,
        local_batches(store, landing, FEW, Passing()) as process,
    ):
        lose_answer(store, monkeypatch)
        process(0, ["spans/a.parquet"])
        process(1, ["spans/b.parquet"])
        assert {name for (name,) in store.entities("Service")} == {*services[3:], "(other)"}


@pytest.mark.parametrize(("ending", "moment"), MOMENTS)
def test_a_server_that_ends_in_the_middle_of_a_transaction_is_waited_for(
    *,
    ending: str,
    moment: str,
    server: PostgresServer,
    in_postgres: MetricStore,
    landing: LandingFolder,
    tiny: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When it is back, the batch is merged from its beginning."""
    hook(monkeypatch, moment, do_once(lambda: ENDINGS[ending](server)))
    # Not before the second wait: the first attempt to reach it again fails.
    clock = Passing(lambda: None, server.start)
    with local_batches(in_postgres, landing, clock=clock) as process:
        process(0, tiny.names[:2])
        process(1, tiny.names[2:])
    check_store(in_postgres, tiny)
    assert landing.pending() == []


@pytest.mark.parametrize("ending", ["stop", *(slowly(each) for each in ("kill", "crash"))])
def test_a_server_that_is_restarted_between_batches_is_not_even_noticed(
    *,
    ending: str,
    server: PostgresServer,
    in_postgres: MetricStore,
    landing: LandingFolder,
    tiny: Telemetry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Connections at rest are tried before they are used."""
    with local_batches(in_postgres, landing) as process:
        process(0, tiny.names[:2])
        ENDINGS[ending](server)
        server.start()
        process(1, tiny.names[2:])
    check_store(in_postgres, tiny)
    assert "job.store_unavailable" not in caplog.text


def test_patience_has_an_end_and_nothing_is_half_merged(
    server: PostgresServer,
    in_postgres: MetricStore,
    landing: LandingFolder,
    tiny: Telemetry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job ends with the reason; the files are where they were, and the next run has them."""
    with local_batches(in_postgres, landing, clock=Passing()) as process:
        process(0, tiny.names[:2])
        before = contents(in_postgres)
        hook(monkeypatch, "merge", do_once(server.kill))
        with pytest.raises(StoreUnavailableError, match="start it, or correct the URL"):
            process(1, tiny.names[2:])
        server.start()
        assert contents(in_postgres) == before
        assert [file.name for file in landing.pending()] == list(tiny.names[2:])
        process(1, tiny.names[2:])
    check_store(in_postgres, tiny)


class FullDisk:
    """A disk on which a SQLite store cannot grow beyond a number of pages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages = 0  # no limit
        transaction = SqliteEngine._transaction

        def limited(
            engine: SqliteEngine, connection: sqlite3.Connection, begin: str
        ) -> AbstractContextManager[Any]:
            connection.execute(f"PRAGMA max_page_count = {self.pages or 2**30}")
            return transaction(engine, connection, begin)

        monkeypatch.setattr(SqliteEngine, "_transaction", limited)


def test_a_full_disk_is_told_and_goes_on_when_there_is_room(
    tmp_path: Path, landing: LandingFolder, tiny: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the batch is in the store, its files stay; with room it is merged."""
    disk = FullDisk(monkeypatch)
    path = tmp_path / "metrics.db"
    with (
        closing(open_store(str(path))) as store,
        local_batches(store, landing, clock=Passing()) as process,
    ):
        process(0, tiny.names[:1])
        before = contents(store)
        disk.pages = path.stat().st_size // 4096 + 10
        with pytest.raises(PenstockError, match="cannot grow, the disk is full: make room"):
            process(1, tiny.names[1:])
        assert contents(store) == before
        assert [file.name for file in landing.pending()] == list(tiny.names[1:])
        disk.pages = 0
        process(1, tiny.names[1:])
        check_store(store, tiny)


def test_room_that_is_made_while_the_job_waits_is_used(
    tmp_path: Path, landing: LandingFolder, tiny: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is waited for like a server that is away."""
    disk = FullDisk(monkeypatch)
    make_room = Passing(lambda: None, lambda: setattr(disk, "pages", 0))
    with (
        closing(open_store(str(tmp_path / "metrics.db"))) as store,
        local_batches(store, landing, clock=make_room) as process,
    ):
        disk.pages = 120
        process(0, tiny.names)
        check_store(store, tiny)
    assert disk.pages == 0
