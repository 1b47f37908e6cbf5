"""The command from its start to Ctrl-C, and the next start after it."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.cli.main import main
from penstock.land import LandingFolder
from penstock.metrics import default_rules
from penstock.spark.java import _packaged_java
from penstock.testing import eventually
from tests.oracle.samples import span
from tests.spark.rig import CALLBACKS, DEADLINE, Command, aggregate, totals
from tests.support.spark import land

pytestmark = [pytest.mark.spark, pytest.mark.leaves_threads(CALLBACKS)]

OPTIONS = ("--master", "local[2]", "--interval", "0.2")


def to_the_group(command: Command) -> None:
    """Do as a terminal does at Ctrl-C: all processes of the group get it."""
    os.killpg(command.process.pid, signal.SIGINT)


def to_the_command(command: Command) -> None:
    """Do as a supervisor does."""
    command.process.send_signal(signal.SIGTERM)


def without_java(folder: Path) -> dict[str, str]:
    """Return the surroundings of a machine that has what Spark's scripts need, but no Java."""
    folder.mkdir()
    for program in ("bash", "sh", "env", "dirname", "chmod", "ls", "id", "readlink", "uname", "ps"):
        found = shutil.which(program)
        assert found is not None, program
        (folder / program).symlink_to(found)
    return {"JAVA_HOME": "", "PATH": str(folder)}


def packaged_home() -> Path:
    """Return where the package keeps Java."""
    java = _packaged_java()
    assert java is not None
    return Path(java).resolve().parents[1]


@pytest.mark.parametrize(
    ("stop", "is_packaged"),
    [(to_the_group, True), (to_the_command, False)],
    ids=["Ctrl-C, packaged Java", "SIGTERM"],
)
def test_a_stop_is_clean_and_the_next_start_goes_on(
    tmp_path: Path,
    spark: SparkSession,
    minute: int,
    stop: Callable[[Command], None],
    *,
    is_packaged: bool,
) -> None:
    """Exit code 0, no process left, nothing lost; what lands later is merged next time."""
    landing = LandingFolder(tmp_path / "landing")
    store = str(tmp_path / "store.db")
    land(landing.root, "spans/a.parquet", [span(minute=minute, number=n) for n in range(7)])
    surroundings = without_java(tmp_path / "bin") if is_packaged else {}
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    with Command(tmp_path, *OPTIONS, *checkpoint, **surroundings) as command:
        command.await_that(lambda: "batch 0" in command.err)
        javas = [process.exe() for process in command.relatives() if "java" in process.name()]
        stop(command)
        assert command.end() == 0, command.err
        eventually(lambda: command.relatives() == [], DEADLINE)
    assert command.out.startswith("merged 7 rows")
    assert "Traceback" not in command.err
    assert [java.startswith(str(packaged_home())) for java in javas] == [is_packaged]
    assert totals(store)["service_cpm"] == 7
    land(landing.root, "spans/b.parquet", [span(minute=minute, number=n) for n in range(5)])
    reports = aggregate(spark, tmp_path, default_rules())
    # Spark may have been stopped before it noted the end of batch 0, and brings it again.
    assert [(r.batch, r.rows) for r in reports.reports if not r.was_committed] == [(1, 5)]
    assert totals(store)["service_cpm"] == 12


def test_a_start_with_nothing_new_says_so(
    tmp_path: Path, in_this_process: None, minute: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the very first start and at any later one; what was merged before stays merged."""
    del in_this_process
    landing = tmp_path / "landing"
    landing.mkdir()
    arguments = ["aggregate", "--once", "--landing", str(landing)]
    arguments += ["--store", str(tmp_path / "store.db")]
    assert main(arguments) == 0
    assert capsys.readouterr() == (f"nothing to merge: no new files in {landing}\n", "")
    land(landing, "spans/a.parquet", [span(minute=minute)])
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("merged 1 row")
    assert main(arguments) == 0
    assert capsys.readouterr() == (f"nothing to merge: no new files in {landing}\n", "")
    assert totals(str(tmp_path / "store.db"))["service_cpm"] == 1
