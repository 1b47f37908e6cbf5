"""A real standalone cluster on this machine: a master and two workers, each a process."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from penstock.spark.java import ensure_java
from penstock.testing import eventually
from tests.spark.rig import DEADLINE, QUICK_JAVA

SPARK_HOME = Path(pyspark.__file__).parent
LAUNCHER = SPARK_HOME / "bin" / "spark-class"


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Run a cluster for the block; yield its address."""
    ensure_java()
    with ExitStack() as stack:
        master = folder / "master.log"
        # Port 0 is one that is free; the log tells which.
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(_service("master.Master", master, *arguments))
        eventually(lambda: _address(master), DEADLINE)
        address = _address(master)
        assert address is not None
        for number in range(workers):
            place = folder / f"worker-{number}"
            arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
            arguments += ["--webui-port", "0", "--work-dir", str(place), address]
            stack.enter_context(_service("worker.Worker", Path(f"{place}.log"), *arguments))
        eventually(
            lambda: master.read_text("utf-8").count("Registering worker") == workers, DEADLINE
        )
        yield address


def _address(log: Path) -> str | None:
    for line in log.read_text("utf-8").splitlines():
        _, found, address = line.partition("Starting Spark master at ")
        if found:
            return address.strip()
    return None


@contextmanager
def _service(name: str, log: Path, *arguments: str) -> Iterator[None]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
        # The master tells its address as information.
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={_log_settings(log)}",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [LAUNCHER, f"org.apache.spark.deploy.{name}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30.0)


def _log_settings(log: Path) -> Path:
    path = log.with_suffix(".properties")
    path.write_text(
        "rootLogger.level = info\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %m%n\n",
        "utf-8",
    )
    return path
