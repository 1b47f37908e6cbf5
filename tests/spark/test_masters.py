"""The same input on one machine, on many executors and on a real cluster: the same tables."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.clock import wall_time
from penstock.generate import GeneratorSettings, write_landing
from penstock.metrics import load_rules
from tests.spark.cluster import standalone_cluster
from tests.spark.rig import CALLBACKS, EVERYTHING, Command, aggregate
from tests.support.spark import Tables, dump, same_tables

pytestmark = [pytest.mark.spark, pytest.mark.leaves_threads(CALLBACKS)]

ONCE = ("--once", "--rules", str(EVERYTHING), "--max-bytes", "200000", "--driver-memory", "512m")
# Executors find the driver on this machine only.
NEAR = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Land four files of spans, and points."""
    folder = tmp_path_factory.mktemp("masters") / "landing"
    settings = GeneratorSettings(
        spans=6_000,
        services=4,
        instances=2,
        endpoints=3,
        minutes=3,
        points=100,
        logs=0,
        rows_per_file=1_500,
        end=wall_time() // 60 * 60,
    )
    write_landing(settings, folder)
    return folder


@pytest.fixture(scope="module")
def expected(
    landing: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Tables:
    """Return the tables that local[2] makes of them."""
    folder = tmp_path_factory.mktemp("local")
    copy(landing, folder)
    reports = aggregate(spark, folder, load_rules([EVERYTHING]), max_bytes=200_000)
    assert len(reports.reports) >= 2
    return dump(folder / "store.db")


def copy(landing: Path, folder: Path) -> None:
    """Land the same files in another place."""
    for path in landing.rglob("*.parquet"):
        target = folder / "landing" / path.relative_to(landing)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.hardlink_to(path)


def check(folder: Path, landing: Path, expected: Tables, *options: str) -> None:
    """Merge the files with the command, and compare every table."""
    copy(landing, folder)
    with Command(folder, *ONCE, *options) as command:
        assert command.end() == 0, command.err
        assert "rejected" not in command.err
    found = dump(folder / "store.db")
    assert {table: len(rows) for table, rows in found.items()} == {
        table: len(rows) for table, rows in expected.items()
    }
    assert same_tables(found, expected)


def test_executors_of_their_own_give_the_same_tables(
    tmp_path: Path, landing: Path, expected: Tables
) -> None:
    """The driver does not share a process with them; all that they need travels to them."""
    check(tmp_path, landing, expected, "--master", "local-cluster[2,1,1024]")


@pytest.mark.slow
def test_a_cluster_gives_the_same_tables(tmp_path: Path, landing: Path, expected: Tables) -> None:
    """A master and two workers, as `penstock aggregate --master spark://...` meets them."""
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    with standalone_cluster(cluster) as address:
        memory = ("--conf", "spark.executor.memory=512m")
        check(tmp_path, landing, expected, "--master", address, *NEAR, *memory)
