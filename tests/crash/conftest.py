"""Telemetry for the jobs that are killed."""

import pytest

from tests.crash.rig import Telemetry, land_telemetry


@pytest.fixture(scope="session")
def little(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return six files: three micro-batches."""
    return land_telemetry(tmp_path_factory.mktemp("little"), spans=15_000)


@pytest.fixture(scope="session")
def more(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return ten files: five micro-batches."""
    return land_telemetry(tmp_path_factory.mktemp("more"), spans=24_000, minutes=20)
