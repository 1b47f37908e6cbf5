"""A Spark session with the settings that matter for this job."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from penstock.errors import DependencyError
from penstock.spark.java import ensure_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["SessionSettings", "has_ended", "reason_of", "start_session", "stop_session"]

# How the lines begin in which Java and Spark say why they do not start.
_TELLING = re.compile(r'Exception in thread "[^"]*" |spark (?:ERROR|FATAL) |Error: |(?=Invalid )')
_LAST_BREATH = 5.0  # seconds from a connection that breaks to the end of the process behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Where Spark runs and with how much memory; *options* are any of Spark's own settings."""

    master: str = "local[*]"
    driver_memory: str = "1g"
    log_file: Path | None = None  # what Spark itself has to say; None: standard error
    options: Mapping[str, str] = field(default_factory=dict)


def start_session(settings: SessionSettings) -> SparkSession:
    """Start a session. Raises DependencyError if PySpark or Java is missing."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 # an extra
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"{error.name} is not installed; run: pip install 'penstock[spark]'"
        ) from error
    ensure_java()
    # Workers run this interpreter; `python3` from PATH may be another version, or have no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(settings.master).appName("penstock-aggregate")
    for name, value in {**_defaults(settings), **settings.options}.items():
        builder = builder.config(name, value)
    with _stderr_in(settings.log_file), _own_interrupt():
        try:
            with _no_process_left():
                session: SparkSession = builder.getOrCreate()
        except Exception as error:
            hint = f"; see {settings.log_file}" if settings.log_file else ""
            reason = _from_log(settings.log_file) or reason_of(error)
            raise DependencyError(
                f"Spark did not start with --master {settings.master}: {reason}{hint}"
            ) from error
    _quieten(session)
    return session


def stop_session(session: SparkSession) -> None:
    """Stop a session, also one whose Spark has ended by itself."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415 # an extra

    with suppress(Py4JError, OSError):
        session.stop()


def has_ended(session: SparkSession, error: BaseException) -> bool:
    """Return whether *error* came about because Spark's process is no more."""
    gateway = getattr(session.sparkContext, "_gateway", None)
    process = getattr(gateway, "proc", None)  # None: it was not started from here
    if process is None or not _is_broken_connection(error):
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_BREATH)
        return True
    return False


def _is_broken_connection(error: BaseException | None) -> bool:
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 # an extra

    if error is None or isinstance(error, Py4JJavaError):  # that one is an answer
        return False
    is_broken = isinstance(error, (Py4JError, OSError, EOFError))
    return is_broken or _is_broken_connection(error.__cause__)


def _quieten(session: SparkSession) -> None:
    """Keep PySpark from telling in stack traces of its own what the job tells in one line."""
    # py4j speaks through the root logger when Spark's process ends, and through its own when a
    # batch raises what the job tells anyway.
    logging.getLogger().addFilter(_is_not_py4j)
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return record.module not in {"java_gateway", "clientserver"}


def reason_of(error: BaseException) -> str:
    """Return in one line what an error of Spark's was caused by, as far as it tells."""
    cause = getattr(error, "_cause", None)
    if isinstance(cause, BaseException):
        return reason_of(cause)
    lines = str(error).strip().splitlines()
    # What Java raised comes after the call, and what caused it further down.
    quoted = [line[2:] for line in lines if line.startswith(": ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return next(iter([*causes[-1:], *quoted, *lines]), type(error).__name__)


def _from_log(path: Path | None) -> str | None:
    """Return what Java or Spark said first when it did not start."""
    if path is None or not path.exists():
        return None
    for line in path.read_text("utf-8", "replace").splitlines():
        found = _TELLING.match(line)
        if found:
            return line[found.end() :].strip()
    return None


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep what Ctrl-C does: PySpark would have it cancel all work and raise from anywhere."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _no_process_left() -> Iterator[None]:
    """End Spark's process if its start is cut short: it would wait for ever for who started it."""
    from pyspark import SparkContext  # noqa: PLC0415 # an extra

    gateway: Any = import_module("pyspark.java_gateway")
    started: list[subprocess.Popen[bytes]] = []

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 # Popen's
        started.append(subprocess.Popen(*arguments, **options))  # noqa: S603 # PySpark's own
        return started[-1]

    before, gateway.Popen = gateway.Popen, popen  # it keeps to itself what it starts
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:  # noqa: SLF001 # connected, it ends with this process
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        gateway.Popen = before


@contextmanager
def _stderr_in(path: Path | None) -> Iterator[None]:
    """Let processes that are started inside the block write their standard error to *path*."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _defaults(settings: SessionSettings) -> dict[str, str]:
    log_settings = f"-Dlog4j2.configurationFile={files('penstock.spark') / 'log4j2.properties'}"
    options = {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": log_settings,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        # Offsets name the files of a batch: a few are kept for a look, not hundreds.
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.pollingDelay": "50ms",
        # One task's partial states travel as one row, of a few megabytes.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    }
    if settings.master.startswith("local"):
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return options
