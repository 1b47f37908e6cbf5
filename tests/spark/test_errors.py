"""What can be wrong with a job: one line that says what to do, and nothing lost or doubled.

Each test merges some files, meets the error, does what the message says, and looks at the totals.
"""

import re
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.cli.main import main
from penstock.land import LandingFolder
from penstock.metrics import load_rules
from penstock.spark.aggregation import Aggregation, AggregationConfig
from penstock.spark.session import start_session
from penstock.store import open_store
from penstock.telemetry import SpanKind
from penstock.testing import eventually
from tests.oracle.samples import span
from tests.spark.rig import CALLBACKS, Reports, aggregate, totals
from tests.support.postgres import PostgresServer
from tests.support.spark import land
from tests.unit.rig import PATIENCE, in_background

pytestmark = [
    pytest.mark.spark,
    pytest.mark.leaves_threads(CALLBACKS),
    pytest.mark.usefixtures("in_this_process"),
]

RULES = """
calls = from(Service.*).count();
latency = from(Service.latency).sum();
"""


class Place:
    """A landing folder, a checkpoint, rules and a store, and files that come one after another."""

    def __init__(self, folder: Path, spark: SparkSession, minute: int) -> None:
        self.folder = folder
        self.landing = folder / "landing"
        self.checkpoint = folder / "checkpoint"
        self.rules = folder / "rules.oal"
        self.url = str(folder / "store.db")
        self.landed = 0
        self._spark = spark
        self._minute = minute
        self.landing.mkdir()
        self.write_rules(RULES)

    def write_rules(self, text: str) -> None:
        """Write other rules."""
        self.rules.write_text(text, "utf-8")

    def land(self, rows: int = 3) -> None:
        """Land one more file."""
        first = self.landed
        spans = [
            span(SpanKind.SERVER, minute=self._minute, latency=10, number=first + n)
            for n in range(rows)
        ]
        land(self.landing, f"spans/{first:05}.parquet", spans)
        self.landed += rows

    def merge(self, **config: object) -> Reports:
        """Merge what has landed."""
        return aggregate(
            self._spark,
            self.folder,
            load_rules([self.rules]),
            self.url,
            checkpoint=self.checkpoint,
            **config,
        )

    def command(self, *options: str) -> int:
        """Run `penstock aggregate`; return its exit code."""
        arguments = ["aggregate", "--once", "--landing", str(self.landing), "--store", self.url]
        arguments += ["--rules", str(self.rules), "--checkpoint", str(self.checkpoint)]
        return main([*arguments, "--patience", "0.1", *options])

    def check(self) -> None:
        """See that every row is in the store, once, and no file waits."""
        found = totals(self.url)
        assert found["calls"] == self.landed
        assert found["latency"] == self.landed
        assert LandingFolder(self.landing).pending() == []


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession, minute: int) -> Place:
    """Return a place where one file is merged and another one waits."""
    place = Place(tmp_path, spark, minute)
    place.land()
    place.merge()
    place.land(5)
    return place


@pytest.fixture
def on_postgres(
    tmp_path: Path, spark: SparkSession, minute: int, postgres: PostgresServer
) -> Place:
    """Return the same with its store in PostgreSQL."""
    place = Place(tmp_path, spark, minute)
    place.url = postgres.url(postgres.create_database())
    place.land()
    place.merge()
    place.land(5)
    return place


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that was told."""
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("penstock: ")]
    assert len(lines) == 1, err
    return lines[0]


def test_a_server_that_cannot_be_reached(
    on_postgres: Place, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens there. The password is told to nobody either."""
    good = on_postgres.url
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        on_postgres.url = good.replace(f":{postgres.port}/", f":{unused.getsockname()[1]}/")
        assert on_postgres.command() == 1
    line = told(capsys)
    assert "127.0.0.1" in line
    assert postgres.password not in line
    on_postgres.url = good
    on_postgres.merge()
    on_postgres.check()


def test_a_password_that_is_wrong(
    on_postgres: Place, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server's own words, without either password."""
    good = on_postgres.url
    on_postgres.url = good.replace(postgres.password, "open-sesame")
    assert on_postgres.command() == 1
    line = told(capsys)
    assert "password" in line
    assert "open-sesame" not in line
    on_postgres.url = good
    on_postgres.merge()
    on_postgres.check()


def test_a_database_that_may_not_be_written(
    on_postgres: Place, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A standby, or one that somebody has locked."""
    database = on_postgres.url.rpartition("/")[2]
    postgres.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    assert on_postgres.command() == 1
    assert "read-only" in told(capsys)
    postgres.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = off')
    on_postgres.merge()
    on_postgres.check()


def test_a_file_that_may_not_be_written(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """As a store that belongs to somebody else."""
    path = Path(place.url)
    # A later version to write by is how a file tells everybody, also root, to read only.
    content = bytearray(path.read_bytes())
    assert content[18] == 2
    content[18] = 3
    path.write_bytes(content)
    assert place.command() == 1
    assert "is read-only: let this user write the file and its folder" in told(capsys)
    content[18] = 2
    path.write_bytes(content)
    place.merge()
    place.check()


def test_a_batch_that_the_store_refuses(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of the stream: the store's own words, once."""
    with closing(sqlite3.connect(place.url)) as store:
        store.execute(
            "CREATE TRIGGER no BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'x'); END"
        )
    assert place.command() == 1
    assert told(capsys).endswith("store.db: x")
    with closing(sqlite3.connect(place.url)) as store:
        store.execute("DROP TRIGGER no")
    place.merge()
    place.check()


def test_a_checkpoint_that_was_deleted(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """It is missed; with a new one, files that come again are recognised."""
    shutil.rmtree(place.checkpoint)
    assert place.command() == 1
    assert "add --new-checkpoint" in told(capsys)
    for file in LandingFolder(place.landing).consumed():
        shutil.copy(place.landing / "consumed" / file.name, place.landing / file.name)
    place.merge(new_checkpoint=True)
    place.check()
    place.land()
    place.merge()
    place.check()


def test_a_store_that_was_deleted(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """It is missed; to start over, the checkpoint goes and the merged files come back."""
    for path in place.folder.glob("store.db*"):
        path.unlink()
    assert place.command() == 1
    assert "remove the checkpoint: files that are still in 'consumed' can be moved back" in told(
        capsys
    )
    shutil.rmtree(place.checkpoint)
    for file in LandingFolder(place.landing).consumed():
        (place.landing / "consumed" / file.name).rename(place.landing / file.name)
    place.merge()
    place.check()


def test_a_checkpoint_of_another_job(
    place: Place,
    tmp_path: Path,
    spark: SparkSession,
    minute: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The two ids are told."""
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other", spark, minute)
    other.land()
    other.merge()
    own, place.checkpoint = place.checkpoint, other.checkpoint
    assert place.command() == 1
    assert len(set(re.findall(r"\b[0-9a-f]{32}\b", told(capsys)))) == 2
    place.checkpoint = own
    place.merge()
    place.check()
    other.check()


def test_a_second_job_on_the_same_store(
    place: Place, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told who has the store, and the first job goes on undisturbed."""
    reports = Reports()
    config = AggregationConfig(landing=place.landing, checkpoint=place.checkpoint, interval=0.1)
    store = open_store(place.url)
    first = Aggregation(config, store, load_rules([place.rules]), reports)
    running = in_background(lambda: first.run(spark))
    eventually(lambda: reports.reports or running.done(), PATIENCE * 6)
    (tmp_path / "landing-too").mkdir()
    assert place.command("--landing", str(tmp_path / "landing-too")) == 1
    assert "stop that job, or wait until it has ended" in told(capsys)
    place.land(7)
    eventually(lambda: reports.rows == 12 or running.done(), PATIENCE * 6)
    first.stop()
    running.result(PATIENCE * 6)
    store.close()
    place.check()


def test_rules_that_changed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A change is refused, unless it is wanted; new metrics begin, old ones stay."""
    place.write_rules("calls = from(Service.*).cpm(); slowest = from(Service.latency).max();")
    assert place.command() == 1
    assert "calls is stored as from(Service.*).count(), the rules say" in told(capsys)
    assert totals(place.url) == {"calls": 3, "latency": 3}
    place.merge(replace_changed=True)
    assert totals(place.url) == {"calls": 5, "slowest": 5, "latency": 3}
    place.land(2)
    place.merge()
    assert totals(place.url) == {"calls": 7, "slowest": 7, "latency": 3}


def test_rules_with_an_error(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it is, before anything is touched."""
    place.write_rules("calls = from(Servce.*).count();")
    assert place.command() == 1
    assert "the rules have 1 error" in told(capsys)
    place.write_rules(RULES)
    place.merge()
    place.check()


def test_a_landing_folder_that_is_not_there(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not made up silently."""
    assert place.command("--landing", str(place.folder / "nowhere")) == 1
    assert "nowhere is not a folder; create it" in told(capsys)
    assert not (place.folder / "nowhere").exists()
    place.merge()
    place.check()


def test_no_java_anywhere(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is given back, so that the next start finds it free."""
    with monkeypatch.context() as bare:
        bare.setattr("penstock.spark.aggregation.start_session", start_session)
        bare.setenv("JAVA_HOME", "/nowhere")
        bare.setattr("penstock.spark.java._packaged_java", lambda: None)
        assert place.command() == 1
    assert "/nowhere/bin/java cannot be run. Spark needs Java 17" in told(capsys)
    place.merge()
    place.check()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--conf", "spark.ui.enabled"], "--conf 'spark.ui.enabled' must be written NAME=VALUE"),
        (["--conf", "=x"], "--conf '=x' must be written NAME=VALUE"),
        (["--apdex", "shop=fast"], "--apdex 'shop=fast': 'fast' is not a whole number"),
        (["--apdex", "shop=-1"], "apdex['shop']=-1 must be a whole number of milliseconds"),
        (["--slow-caches", "redis"], "--slow-caches 'redis' must be written NAME=VALUE"),
    ],
)
def test_options_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], line: str
) -> None:
    """Before anything is created."""
    arguments = ["aggregate", "--landing", str(tmp_path), "--store", str(tmp_path / "store.db")]
    assert main([*arguments, *options]) == 1
    assert line in told(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "option", [["--interval", "0"], ["--keep-days", "x"], ["--max-bytes", "-1"], ["--patience", ""]]
)
def test_values_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    """Wrong usage has an exit code of its own."""
    with pytest.raises(SystemExit) as end:
        main(["aggregate", "--landing", str(tmp_path), "--store", "x.db", *option])
    assert end.value.code == 2
    assert f"argument {option[0]}" in capsys.readouterr().err
