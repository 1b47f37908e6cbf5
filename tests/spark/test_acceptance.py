"""Everything at once: landed telemetry through Spark into both stores, against the oracle."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.land import LandingFolder
from penstock.metrics.functions import FUNCTIONS, METER_FUNCTIONS
from penstock.store import open_store
from penstock.store.contract import Granularity, MetricStore
from tests.oracle.comparing import differences
from tests.oracle.reading import read_store, read_top
from tests.spark.rig import CALLBACKS, CORE, Reports, Telemetry, aggregate, standard_rules

pytestmark = [pytest.mark.spark, pytest.mark.leaves_threads(CALLBACKS)]

# Of rules that no generated span has anything for: numbers in an attribute of that very name, and
# a route that is a number.
EMPTY = {"c_text", "p_long", "p_double", "p_double_max", "p_colon", "p_empty", "p_percent"}


@dataclass
class Merged:
    """A store after the run, and what the run told."""

    store: MetricStore
    landing: Path
    reports: Reports


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def merged(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
    telemetry: Telemetry,
) -> Iterator[Merged]:
    """Merge the telemetry in several micro-batches of several files."""
    folder = tmp_path_factory.mktemp(request.param)
    landing = telemetry.copied_to(folder / "landing")
    url = str(folder / "store.db")
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        url = server.url(server.create_database())
    largest = max(file.size for file in LandingFolder(landing).pending())
    reports = aggregate(spark, folder, telemetry.metrics, url, max_bytes=2 * largest)
    store = open_store(url)
    yield Merged(store, landing, reports)
    store.close()


def test_every_value_is_the_oracles(merged: Merged, telemetry: Telemetry) -> None:
    """Of all metrics and meters, in minutes, hours and days."""
    found = differences(telemetry.values, read_store(merged.store))
    assert not found, "\n".join(found)
    assert {key[1] for key in telemetry.values} == {
        granularity.value for granularity in Granularity
    }


def test_every_top_list_is_the_oracles(merged: Merged, telemetry: Telemetry) -> None:
    """Every entry of it, in its order."""
    found = differences(telemetry.tops, read_top(merged.store))
    assert not found, "\n".join(found)
    assert {key[0] for key in telemetry.tops} == {
        "database_statement",
        "service_database_statement",
        "cache_read",
        "cache_write",
    }


def test_every_metric_has_values(merged: Merged, telemetry: Telemetry) -> None:
    """No rule is agreed with because neither side has anything for it."""
    names = {key[0] for key in read_store(merged.store)}
    assert {metric.name for metric in telemetry.metrics} - names == EMPTY
    assert {metric.call.function for metric in telemetry.metrics} == set(FUNCTIONS) - set(
        METER_FUNCTIONS
    )
    functions = {known.function for known in merged.store.catalogue().values()}
    assert set(METER_FUNCTIONS) <= functions


def test_nothing_was_left_out_or_behind(merged: Merged, telemetry: Telemetry) -> None:
    """All rows of all files came in, in more than one micro-batch of more than one file."""
    assert merged.reports.left_out == {}
    assert sum(report.rejected for report in merged.reports.reports) == 0
    assert [file.name for file in LandingFolder(merged.landing).pending()] == []
    files = LandingFolder(telemetry.folder).pending()
    assert LandingFolder(merged.landing).consumed() == files
    assert sum(report.files for report in merged.reports.reports) == len(files)
    assert len(merged.reports.reports) >= 3
    assert max(report.files for report in merged.reports.reports) >= 2


@pytest.mark.skipif(not CORE.is_file(), reason="the public core file is not here")
def test_all_of_the_public_core_file_is_computed() -> None:
    """Every metric that it defines."""
    assert len(standard_rules()) == 63
