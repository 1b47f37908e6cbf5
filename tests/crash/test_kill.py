"""A job that is killed somewhere and started again has every file in the store once."""

import random
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.points import POINTS
from tests.crash.rig import Job, Telemetry
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.spark


def test_killed_in_the_transaction_then_after_the_commit(tmp_path: Path, little: Telemetry) -> None:
    """The two nastiest: minutes merged but not the rest; all committed but no file moved."""
    job = Job(tmp_path, little)
    assert job.run("--kill", "in_transaction:0") == -signal.SIGKILL
    assert len(job.landing.pending()) == len(little.names)
    assert job.run("--kill", "after_commit:1") == -signal.SIGKILL
    assert len(job.landing.consumed()) == 2
    assert job.run() == 0, job.said()
    job.check()


@pytest.mark.slow
@pytest.mark.parametrize("point", sorted(POINTS.keys() - {"in_renewal", "spark_alone"}))
def test_killed_at_any_point_nothing_is_lost_or_doubled(
    point: str, tmp_path: Path, more: Telemetry
) -> None:
    """Wherever it was, the next run goes on from there."""
    job = Job(tmp_path, more)
    assert job.run("--kill", f"{point}:2") == -signal.SIGKILL, job.said()
    assert job.run() == 0, job.said()
    job.check()


@pytest.mark.slow
def test_killed_while_the_lease_is_renewed(tmp_path: Path, more: Telemetry) -> None:
    """A lease that is being written when its job dies is in nobody's way."""
    job = Job(tmp_path, more)
    assert job.run("--kill", "in_renewal:0", "--lease", "0.3") == -signal.SIGKILL, job.said()
    assert job.run() == 0, job.said()
    job.check()


@pytest.mark.slow
def test_killed_at_the_same_point_of_every_batch(tmp_path: Path, little: Telemetry) -> None:
    """A machine that cannot keep a job alive for longer than a batch gets to the end as well."""
    job = Job(tmp_path, little)
    for batch in range(3):
        assert job.run("--kill", f"after_commit:{batch}") == -signal.SIGKILL, job.said()
    assert job.run() == 0, job.said()
    job.check()


@pytest.mark.slow
def test_when_spark_alone_is_killed_the_job_says_so_and_can_be_started_again(
    tmp_path: Path, little: Telemetry
) -> None:
    """Spark's process may be the one that the kernel chooses: one line, no stack trace."""
    job = Job(tmp_path, little)
    assert job.run("--kill", "spark_alone:1") == 1, job.said()
    assert "Traceback" not in job.said()
    assert "penstock: Spark has ended" in job.said()
    assert job.run() == 0, job.said()
    job.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_times(seed: int, tmp_path: Path, more: Telemetry) -> None:
    """Killed up to four times, whatever it is doing: in a batch or between two, of ten."""
    chance = random.Random(seed)
    job = Job(tmp_path, more, options=("--max-bytes", "1"))
    for _ in range(4):
        with job.started() as process:
            wait_for_a_batch(job, process)
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.0, 2.0))
    assert job.run() == 0, job.said()
    job.check()


def wait_for_a_batch(job: Job, process: subprocess.Popen[bytes]) -> None:
    """Wait until a run has told of a batch, or has ended because there was none left."""
    before = batches_told(job)
    job.wait_for(process, lambda: batches_told(job) > before or process.poll() == 0)


def batches_told(job: Job) -> int:
    """Return how many batches the job has reported so far, in all its runs."""
    return len(re.findall(r"(?m)^batch \d+ ", job.said())) if job.errors.exists() else 0


@pytest.mark.slow
def test_killed_with_its_metrics_in_postgres(tmp_path: Path, little: Telemetry) -> None:
    """The server rolls back what a dead job has begun, and keeps what it has committed."""
    with PostgresServer.started() as server:
        job = Job(tmp_path, little, server.create_schema())
        for point in ("in_transaction:0", "before_commit:1", "after_commit:2"):
            assert job.run("--kill", point) == -signal.SIGKILL, job.said()
        assert job.run() == 0, job.said()
        job.check()
