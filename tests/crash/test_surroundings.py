"""What a running job depends on goes away under it: the server, the executors, the disk."""

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.crash.rig import PATIENCE, Job, Telemetry, processes_of
from tests.crash.servers import ENDINGS
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ON_A_CLUSTER = ("--master", "local-cluster[2,1,1024]", "--max-bytes", str(8 << 20))


@pytest.mark.parametrize(
    ("ending", "moment"),
    list(itertools.product(("stop", "crash"), ("before_commit", "after_retire"))),
)
def test_a_running_job_waits_for_its_server(
    ending: str, moment: str, tmp_path: Path, little: Telemetry
) -> None:
    """In the middle of a commit or between batches: it says so, waits, and goes on."""
    sign = tmp_path / "paused"
    with PostgresServer.started() as server:
        job = Job(tmp_path, little, server.create_schema())
        with job.started("--pause", f"{moment}:1", "--sign", str(sign)) as process:
            job.wait_for(process, sign.exists)
            ENDINGS[ending](server)
            sign.unlink()
            job.wait_for(process, lambda: "job.store_unavailable" in job.said())
            server.start()
            assert process.wait(PATIENCE) == 0, job.said()
        assert "Traceback" not in job.said()
        job.check()


def test_executors_that_are_killed_in_the_middle_of_a_batch_change_nothing(
    tmp_path: Path, large: Telemetry
) -> None:
    """Spark gives their files to others, and the states of the dead are never seen."""
    job = Job(tmp_path, large, options=ON_A_CLUSTER)
    killed: list[psutil.Process] = []
    with job.started() as process:
        for _ in range(3):
            busy = job.wait_for(process, lambda: busy_executors(process, killed))
            busy[0].kill()
            killed.append(busy[0])
        assert process.wait(PATIENCE) == 0, job.said()
    # Spark has noticed: they had something to do.
    assert (job.checkpoint / "spark.log").read_text("utf-8").count("exited with code 137") == 3
    job.check()


def busy_executors(
    job: subprocess.Popen[bytes], killed: list[psutil.Process]
) -> list[psutil.Process]:
    """Return the executors that run a task for the first time: they have started Python."""
    return [
        process
        for process in processes_of(job.pid)
        if process not in killed
        and "CoarseGrainedExecutorBackend" in command_of(process)
        and any("pyspark" in command_of(child) for child in children_of(process))
    ]


def command_of(process: psutil.Process) -> str:
    """Return the command line of a process, if it is still there."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the children of a process, if it is still there."""
    try:
        return list(process.children())
    except psutil.NoSuchProcess:
        return []


def test_a_store_that_cannot_grow_ends_the_job_and_goes_on_with_room(
    tmp_path: Path, little: Telemetry
) -> None:
    """A limit on the size of files: clear words, nothing half merged, all there in the end."""
    job = Job(tmp_path, little, options=("--patience", "1"))
    assert job.run("--largest-file", "600000") == 1, job.said()
    assert "cannot be read or written: look after the disk" in job.said()
    assert "Traceback" not in job.said()
    assert job.landing.pending()
    assert job.run() == 0, job.said()
    job.check()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "size=2m")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def mount(folder: Path, *options: str) -> None:
    """Mount a disk in memory, or change it; skip the test where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user cannot mount a disk")


def test_a_disk_that_runs_full_ends_the_job_and_goes_on_with_room(
    disk: Path, tmp_path: Path, little: Telemetry
) -> None:
    """All that a job has is on one disk: files, checkpoint and store."""
    job = Job(disk / "job", little, options=("--patience", "1"))
    job.errors = tmp_path / "stderr"
    assert job.run() == 1, job.said()
    assert "the disk is full: make room" in job.said()
    assert "Traceback" not in job.said()
    mount(disk, "remount", "size=64m")
    assert job.run() == 0, job.said()
    job.check()


def test_a_checkpoint_without_room_ends_the_job_and_goes_on_with_room(
    disk: Path, tmp_path: Path, little: Telemetry
) -> None:
    """Spark cannot write its log: one line that says why."""
    job = Job(tmp_path, little)
    job.checkpoint = disk / "checkpoint"
    filler = disk / "filler"
    with job.started("--pause", "after_retire:0", "--sign", str(tmp_path / "paused")) as process:
        job.wait_for(process, (tmp_path / "paused").exists)
        fill(filler)
        (tmp_path / "paused").unlink()
        assert process.wait(PATIENCE) == 1, job.said()
    assert "No space left on device" in job.said()
    assert "Traceback" not in job.said()
    filler.unlink()
    assert job.run() == 0, job.said()
    job.check()


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4_096):
            try:
                while True:
                    file.write(b"0" * size)
            except OSError:
                continue
