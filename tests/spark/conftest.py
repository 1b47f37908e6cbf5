"""One Spark session for all tests that run the job in this process, and telemetry for them."""

import faulthandler
import signal
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from penstock.clock import wall_time
from penstock.generate import GeneratorSettings
from penstock.spark.session import SessionSettings, start_session
from tests.spark.rig import Telemetry

HOUR = 3600.0


@pytest.fixture(autouse=True)
def no_alarm() -> None:
    """Spark takes longer than the minute after which pytest shows where every thread is."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Run a session on two cores of this machine, in this process."""
    faulthandler.cancel_dump_traceback_later()
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start_session(SessionSettings(master="local[2]", log_file=log_file))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return files of all signals, with rows that are hours late, and what they are worth."""
    settings = GeneratorSettings(
        spans=22_000,
        services=8,
        instances=2,
        endpoints=5,
        minutes=5,
        points=300,
        logs=300,
        late=0.03,
        lateness=5 * HOUR,
        rows_per_file=4_000,
        end=wall_time() // 60 * 60,
    )
    return Telemetry.generated(settings, tmp_path_factory.mktemp("telemetry"))


@pytest.fixture(scope="session")
def minute() -> int:
    """Return a minute, since 1970, that lies a little in the past."""
    return int(wall_time() // 60) - 5


@pytest.fixture
def in_this_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the command run on the shared session, and leave that and Ctrl-C as they were."""
    monkeypatch.setattr("penstock.spark.aggregation.start_session", lambda _: spark)
    monkeypatch.setattr("penstock.spark.aggregation.stop_session", lambda _: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
