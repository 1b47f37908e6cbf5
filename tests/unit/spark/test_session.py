"""Sessions that do not start, and what they are started with."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.errors import DependencyError
from penstock.spark import session
from penstock.spark.session import SessionSettings, start_session
from tests.unit.rig import PATIENCE, in_background


class Builder:
    """Stands in for Spark's builder: keeps what it is told, and starts nothing."""

    sparkContext = None  # noqa: N815 # Spark's name

    def __init__(self, error: Exception | None = None) -> None:
        self.options: dict[str, str] = {}
        self._error = error

    def master(self, master: str) -> "Builder":
        """Keep the master."""
        self.options["master"] = master
        return self

    def appName(self, name: str) -> "Builder":  # noqa: N802 # Spark's name
        """Keep the name."""
        self.options["name"] = name
        return self

    def config(self, name: str, value: str) -> "Builder":
        """Keep a setting."""
        self.options[name] = value
        return self

    def getOrCreate(self) -> "Builder":  # noqa: N802 # Spark's name
        """Say something where Spark's launcher would, and fail or not."""
        os.write(2, b"what Spark says\n")
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._error is not None:
            raise self._error
        return self


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Put the builder into Spark's place, on a machine that has Java."""
    builder = Builder()
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", builder)
    monkeypatch.setattr(session, "ensure_java", lambda: None)
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    monkeypatch.setattr(logging.getLogger("py4j"), "level", logging.NOTSET)
    monkeypatch.setenv("PYSPARK_PYTHON", "to be restored")
    monkeypatch.delenv("PYSPARK_PYTHON")
    return builder


def test_a_local_session_stays_on_this_machine(builder: Builder) -> None:
    """It listens on loopback only, and has no pages."""
    start_session(SessionSettings(master="local[2]", driver_memory="3g"))
    assert builder.options["master"] == "local[2]"
    assert builder.options["spark.driver.host"] == "127.0.0.1"
    assert builder.options["spark.driver.bindAddress"] == "127.0.0.1"
    assert builder.options["spark.ui.enabled"] == "false"
    assert builder.options["spark.driver.memory"] == "3g"


def test_a_cluster_reaches_the_driver_by_its_own_address(builder: Builder) -> None:
    """Which is for Spark, or the user, to say."""
    start_session(SessionSettings(master="spark://host:7077"))
    assert "spark.driver.host" not in builder.options


def test_settings_of_the_user_stand_over_ours(builder: Builder) -> None:
    """All of Spark's, by their names."""
    start_session(SessionSettings(options={"spark.ui.enabled": "true", "spark.x": "y"}))
    assert builder.options["spark.ui.enabled"] == "true"
    assert builder.options["spark.x"] == "y"


def test_workers_run_this_interpreter(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user has chosen another."""
    start_session(SessionSettings())
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "theirs")
    start_session(SessionSettings())
    assert os.environ["PYSPARK_PYTHON"] == "theirs"
    assert builder.options["name"] == "penstock-aggregate"


def test_what_spark_says_goes_to_a_file(
    builder: Builder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And what we say after it to standard error again."""
    log_file = tmp_path / "new" / "spark.log"
    start_session(SessionSettings(log_file=log_file))
    os.write(2, b"what we say\n")
    assert log_file.read_text("utf-8") == "what Spark says\n"
    assert capfd.readouterr().err == "what we say\n"
    assert "spark.driver.extraJavaOptions" in builder.options


def test_errors_of_batches_are_not_told_a_second_time(
    builder: Builder, caplog: pytest.LogCaptureFixture
) -> None:
    """What a batch raises is told by the job, in one line; py4j would add a stack trace."""
    assert start_session(SessionSettings()) is builder  # type: ignore[comparison-overlap]
    error = ValueError("as a batch does")
    logging.getLogger("py4j.clientserver").error("There was an exception", exc_info=error)
    assert caplog.records == []


def test_without_a_file_it_goes_to_standard_error(
    builder: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where a user of the library looks."""
    start_session(SessionSettings())
    assert capfd.readouterr().err == "what Spark says\n"
    assert builder.options


def test_ctrl_c_stays_what_it_was(builder: Builder) -> None:
    """PySpark puts a handler of its own in its place, which cuts off the batch under way."""
    before = signal.getsignal(signal.SIGINT)
    start_session(SessionSettings())
    assert signal.getsignal(signal.SIGINT) is before
    in_background(lambda: start_session(SessionSettings())).result(PATIENCE)
    assert signal.getsignal(signal.SIGINT) is before
    assert builder.options


def test_a_session_that_does_not_start_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, builder: Builder, tmp_path: Path
) -> None:
    """With the master, the reason, and where more is to be read."""
    del builder
    failing = Builder(RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway exited\n  at line 1"))
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", failing)
    log_file = tmp_path / "spark.log"
    with pytest.raises(DependencyError) as error:
        start_session(SessionSettings(master="local[", log_file=log_file))
    assert str(error.value) == (
        "Spark did not start with --master local[: [JAVA_GATEWAY_EXITED] Java gateway exited; "
        f"see {log_file}"
    )


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "Invalid maximum heap size: -Xmxbanana\nError: Could not create the machine",
            "Invalid maximum heap size: -Xmxbanana",
        ),
        (
            'WARNING: x\nException in thread "main" a.b.SparkException: no such master\n\tat',
            "a.b.SparkException: no such master",
        ),
        (
            "spark ERROR StandaloneBackend: All masters are unresponsive!\n",
            "StandaloneBackend: All masters are unresponsive!",
        ),
        ("Setting default log level\n", "the gateway exited"),
    ],
)
def test_why_spark_did_not_start_is_told(
    monkeypatch: pytest.MonkeyPatch, builder: Builder, tmp_path: Path, log: str, reason: str
) -> None:
    """In the first words that say it, of Java or of Spark; else in those of the gateway."""

    class Failing(Builder):
        def getOrCreate(self) -> Builder:  # noqa: N802 # Spark's name
            os.write(2, log.encode())
            raise RuntimeError("the gateway exited")

    del builder
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", Failing())
    with pytest.raises(DependencyError, match=f"local: {re.escape(reason)}; see "):
        start_session(SessionSettings(master="local", log_file=tmp_path / "spark.log"))


def test_the_reason_of_an_error_is_its_first_cause() -> None:
    """As PySpark keeps them; one without words is told by its name."""
    error, cause = ValueError("Error while instantiating"), ValueError("the value 'banana'\n at")
    error._cause = cause  # type: ignore[attr-defined]
    assert session.reason_of(error) == "the value 'banana'"
    assert session.reason_of(ValueError()) == "ValueError"


def test_what_java_raised_is_told() -> None:
    """What caused it, if that is told; else what follows the name of the call."""
    call = "An error occurred while calling o68.start.\n: a.b.SparkException: no such thing\n\tat c"
    assert session.reason_of(ValueError(call)) == "a.b.SparkException: no such thing"
    caused = f"{call}\nCaused by: a.IOException: one\n\tat d\nCaused by: a.IOException: other\n"
    assert session.reason_of(ValueError(caused)) == "a.IOException: other"


def test_without_pyspark_the_remedy_is_told() -> None:
    """The extra is named."""
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from penstock.spark.session import SessionSettings, start_session\n"
        "from penstock.errors import DependencyError\n"
        "try: start_session(SessionSettings())\n"
        "except DependencyError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "is not installed; run: pip install 'penstock[spark]'" in done.stdout
