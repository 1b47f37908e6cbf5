"""Batches on their way into both kinds of store: all of it or nothing, whatever the numbers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import FilesMergedError, LeaseLostError
from penstock.store.contract import LedgerEntry
from penstock.telemetry import Temporality
from tests.oracle.reading import read_store
from tests.oracle.samples import MINUTE, point, span
from tests.unit.aggregation.rig import NOW, Pipeline

HUGE = 1.7976931348623157e308
METER = ("shop", "shop-1", "")
RULES = """
calls = from(Service.*).count();
mean = from((str->double)Service.tag["x"]).doubleAvg();
"""


@pytest.fixture(params=["sqlite", "postgres"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    """Return a pipeline into either kind of store."""
    url = str(tmp_path / "store.db")
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        url = server.url(server.create_database())
    pipeline = Pipeline(url, RULES)
    yield pipeline
    pipeline.store.close()


def test_the_largest_numbers_do_not_stop_the_job(pipeline: Pipeline) -> None:
    """Their sums would be infinite, which one store keeps and the other one refuses."""
    for second in range(3):
        points = [point("load", value=HUGE, seconds=second + n / 10) for n in range(3)]
        points += [
            point("total", "sum", value=value, seconds=second + n / 10, temporality=int(kind))
            for kind in (Temporality.CUMULATIVE, Temporality.DELTA)
            for n, value in enumerate((HUGE, -HUGE, HUGE))
        ]
        spans = [span(number=3 * second + n, attributes=[("x", "1.7e308")]) for n in range(3)]
        pipeline.merge(spans, points)
    found = read_store(pipeline.store)
    assert found["load", "minute", METER, MINUTE] == HUGE
    mean = found["mean", "day", ("shop",), MINUTE // 1440]
    assert isinstance(mean, float)
    assert 1e299 < mean < HUGE
    assert found["calls", "day", ("shop",), MINUTE // 1440] == 9


def test_a_file_that_is_known_keeps_all_of_its_batch_out(pipeline: Pipeline) -> None:
    """The error names the files; nothing of the batch is there."""
    partials = pipeline.partials([span()])
    first = LedgerEntry("checkpoint", 0, NOW, ("spans/a.parquet",))
    pipeline.merger.merge(partials, first, pipeline.horizon)
    before = read_store(pipeline.store)
    again = LedgerEntry("checkpoint", 1, NOW, ("spans/b.parquet", "spans/a.parquet"))
    with pytest.raises(FilesMergedError) as error:
        pipeline.merger.merge(pipeline.partials([span()]), again, pipeline.horizon)
    assert error.value.files == ("spans/a.parquet",)
    assert read_store(pipeline.store) == before
    assert pipeline.store.committed("checkpoint", 1) is None


def test_without_the_lease_nothing_is_merged(pipeline: Pipeline) -> None:
    """It is looked at in the transaction."""
    pipeline.store.release("me")
    pipeline.store.acquire("somebody else", 1e6)
    with pytest.raises(LeaseLostError):
        pipeline.merge([span()])
    assert read_store(pipeline.store) == {}


def test_a_batch_without_anything_is_in_the_ledger_too(pipeline: Pipeline) -> None:
    """Its files are merged; there was nothing in them."""
    assert pipeline.merge() == {}
    assert pipeline.store.committed("checkpoint", 0) is not None
    assert read_store(pipeline.store) == {}
