"""Telemetry for the jobs that are killed."""

import faulthandler

import pytest

from tests.crash.rig import Telemetry, land_telemetry


@pytest.fixture(autouse=True)
def no_alarm() -> None:
    """Jobs take longer than the minute after which pytest shows where every thread is."""
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def little(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return six files: three micro-batches."""
    return land_telemetry(tmp_path_factory.mktemp("little"), spans=15_000)


@pytest.fixture(scope="session")
def more(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return ten files: five micro-batches."""
    return land_telemetry(tmp_path_factory.mktemp("more"), spans=24_000, minutes=20)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return four small files, for batches without Spark."""
    folder = tmp_path_factory.mktemp("tiny")
    return land_telemetry(folder, spans=1_500, minutes=10, rows_per_file=500)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    """Return seven files that keep an executor busy for a while."""
    folder = tmp_path_factory.mktemp("large")
    return land_telemetry(folder, spans=240_000, minutes=10, rows_per_file=40_000)
