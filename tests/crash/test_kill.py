"""A job that is killed somewhere and started again has every file in the store once."""

import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.points import POINTS
from tests.crash.rig import Job, Telemetry

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
