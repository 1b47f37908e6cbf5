"""Starting, watching and ending a run, with a query that only pretends to be one."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import (
    JobError,
    LeaseLostError,
    MetricChangedError,
    StoreBusyError,
    StoreUnavailableError,
)
from penstock.metrics import Metric, parse_rules
from penstock.metrics.definitions import stable_id
from penstock.spark.aggregation import Aggregation, AggregationConfig, Watcher, define_metrics
from penstock.spark.job import MicroBatches
from penstock.store import open_store
from penstock.store.contract import Catalogued, Granularity, MetricStore, SeriesQuery
from penstock.testing import FakeClock, eventually
from tests.oracle.samples import span
from tests.support.spark import land
from tests.unit.rig import PATIENCE, in_background
from tests.unit.spark.rig import NOW, JobRig, frame

RULES = "calls = from(Service.*).count(); latency = from(Service.latency).sum();"


def rules(text: str) -> tuple[Metric, ...]:
    """Return the metrics of a text."""
    return parse_rules(text).metrics


class Session:
    """Stands in for a session, of which nothing is asked."""

    sparkContext = None  # noqa: N815 # Spark's name


class Query:
    """A streaming query whose batches are started by the test, on a thread of its own.

    As Spark's does, stopping it waits for the batch that is under way.
    """

    def __init__(self, batches: MicroBatches) -> None:
        self._batches = batches
        self.isActive = True  # Spark's name
        self.stopped = threading.Event()
        self.before_stop: Callable[[], None] = lambda: None
        self._running: list[Any] = []
        self.error: Exception | None = None

    def begin(self, batch: int, names: list[str], before: Callable[[], None]) -> None:
        """Begin a batch."""
        self._running.append(in_background(lambda: self._batches(frame(names, before), batch)))

    def stop(self) -> None:
        """Wait for the batch under way, and end."""
        self.before_stop()
        for running in self._running:
            running.exception(PATIENCE)
        self.isActive = False
        self.stopped.set()

    def exception(self) -> Exception | None:
        """Return what the query failed with."""
        return self.error


@dataclass
class Run:
    """A run of the job on a thread of its own, and what it is made of."""

    aggregation: Aggregation
    query: Query
    result: Any

    def end(self) -> None:
        """Wait for its end, and raise what it raised."""
        self.result.result(PATIENCE)


class Runs:
    """Starts runs on one landing folder and one store."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.landing = folder / "landing"
        self.landing.mkdir()
        self.clock = FakeClock()
        self.store = open_store(str(folder / "store.db"), now=lambda: NOW)
        self.config = AggregationConfig(
            landing=self.landing,
            checkpoint=folder / "checkpoint",
            now=lambda: NOW,
            clock=self.clock,
        )
        self._monkeypatch = monkeypatch

    def start(
        self,
        text: str = RULES,
        watcher: Watcher | None = None,
        store: Any = None,  # noqa: ANN401
    ) -> Run:
        """Start a run and wait until its query has begun."""
        queries: list[Query] = []

        def begin(_self: Aggregation, _session: object, batches: MicroBatches) -> Query:
            queries.append(Query(batches))
            return queries[-1]

        self._monkeypatch.setattr(Aggregation, "_started", begin)
        aggregation = Aggregation(self.config, store or self.store, rules(text), watcher)
        result = in_background(lambda: aggregation.run(Session()))  # type: ignore[arg-type]
        eventually(lambda: queries or result.done())
        if result.done():
            result.result()
        return Run(aggregation, queries[0], result)

    def land(self, name: str) -> str:
        """Land one span."""
        return land(self.landing, f"spans/{name}.parquet", [span(latency=10)])

    def calls(self) -> int:
        """Return how many spans are in the store."""
        rows = self.store.series(SeriesQuery(metric="calls"))
        return sum(row.state.count for row in rows)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Return what starts runs."""
    runs = Runs(tmp_path, monkeypatch)
    yield runs
    runs.store.close()


def test_a_stop_waits_for_the_batch_under_way(runs: Runs) -> None:
    """It is merged to its end; then the query is stopped, and the lease is free."""
    run = runs.start()
    name = runs.land("a")
    under_way, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        under_way.set()
        assert go_on.wait(PATIENCE)

    run.query.begin(0, [name], pause)
    assert under_way.wait(PATIENCE)
    run.aggregation.stop()
    assert not run.query.stopped.wait(0.2)
    go_on.set()
    run.end()
    assert run.query.stopped.is_set()
    assert runs.calls() == 1
    runs.store.acquire("somebody else", 1.0)


def test_a_stop_does_not_wait_for_a_batch_that_waits_for_it(runs: Runs) -> None:
    """Spark begins a batch just when it is told to stop, and waits for it in there."""
    run = runs.start()
    name = runs.land("a")
    run.query.before_stop = lambda: run.query.begin(0, [name], lambda: None)
    run.aggregation.stop()
    run.end()
    assert runs.calls() == 0
    assert (runs.landing / name).exists()


def test_a_query_that_ends_by_itself_ends_the_run(runs: Runs) -> None:
    """All that had landed is merged."""
    run = runs.start()
    run.query.isActive = False
    run.end()
    assert run.query.stopped.is_set()


def test_what_went_wrong_in_a_batch_ends_the_run(runs: Runs) -> None:
    """In the words of the batch, not in those of Spark, which only knows that it failed."""
    run = runs.start()

    def fail() -> None:
        raise StoreUnavailableError("the server is away")

    run.query.begin(0, [runs.land("a")], fail)
    run.query.error = RuntimeError("[STREAM_FAILED] see the log\n...")
    run.query.isActive = False
    with pytest.raises(StoreUnavailableError, match="the server is away") as error:
        run.end()
    assert error.value.__cause__ is None


def test_what_is_not_our_own_error_is_told_as_one(runs: Runs) -> None:
    """With the real one as its cause, for developers."""
    run = runs.start()

    def fail() -> None:
        raise ValueError("no such thing\nmore")

    run.query.begin(0, [runs.land("a")], fail)
    run.query.isActive = False
    with pytest.raises(JobError, match=r"^ValueError: no such thing$") as error:
        run.end()
    assert isinstance(error.value.__cause__, ValueError)


def test_a_query_that_failed_by_itself_is_told_in_one_line(runs: Runs) -> None:
    """The first of Spark's many."""
    run = runs.start()
    run.query.error = RuntimeError("[STREAM_FAILED] the checkpoint is damaged\n  at line 1")
    run.query.isActive = False
    with pytest.raises(JobError) as error:
        run.end()
    assert str(error.value) == (
        "the streaming query failed: [STREAM_FAILED] the checkpoint is damaged"
    )


def test_a_query_that_does_not_start_is_told_in_one_line(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason that Spark keeps behind its first words; the lease is free again."""

    def fail(*_: object) -> None:
        error = RuntimeError("Error while instantiating\n  at line 1")
        error._cause = RuntimeError("The value 'banana' is invalid\n  at line 2")  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(Aggregation, "_query", fail)
    aggregation = Aggregation(runs.config, runs.store, rules(RULES))
    with pytest.raises(JobError) as error:
        aggregation.run(Session())  # type: ignore[arg-type]
    assert str(error.value) == "Spark cannot start the query: The value 'banana' is invalid"
    runs.store.acquire("somebody else", 1.0)


def test_a_run_ends_when_it_has_lost_its_lease(runs: Runs) -> None:
    """Another job has the store now."""
    run = runs.start()
    runs.store.release(run.aggregation._holder)
    runs.store.acquire("somebody else", 1e6)
    runs.clock.await_sleepers(1)
    runs.clock.advance(10.0)
    with pytest.raises(LeaseLostError, match="somebody else"):
        run.end()
    assert run.query.stopped.is_set()


def test_a_second_run_on_the_same_store_is_refused(runs: Runs) -> None:
    """At once, as the first one lives on this machine."""
    run = runs.start()
    with pytest.raises(StoreBusyError, match="stop that job, or wait"):
        runs.start()
    run.aggregation.stop()
    run.end()


def test_a_watcher_that_fails_leaves_no_query_behind(runs: Runs) -> None:
    """The run ends with its error, the query is stopped and the lease is free."""

    class Failing(Watcher):
        def tick(self) -> None:
            raise BrokenPipeError

    run = runs.start(watcher=Failing())
    with pytest.raises(BrokenPipeError):
        run.end()
    assert run.query.stopped.is_set()
    runs.store.acquire("somebody else", 1.0)


class Expiring:
    """A store that counts how often it is asked to expire, and cannot."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        self.asked = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._store, name)

    def expire(self, *_: object) -> dict[str, int]:
        """Be away."""
        self.asked += 1
        raise StoreUnavailableError("the server is away")


def test_what_cannot_expire_now_is_tried_again_later(runs: Runs) -> None:
    """A store that is away for a moment ends no job."""
    store = Expiring(runs.store)
    run = runs.start(store=store)
    eventually(lambda: store.asked == 1)
    runs.clock.advance(599.0)
    assert store.asked == 1
    runs.clock.advance(1.0)
    eventually(lambda: store.asked == 2)
    run.aggregation.stop()
    run.end()
    assert store.asked == 3


# --- metrics ---------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricStore]:
    """Return a store with the metrics of RULES."""
    store = open_store(str(tmp_path / "metrics.db"), now=lambda: NOW)
    store.migrate()
    store.acquire("me", 1e6)
    define_metrics(store, rules(RULES))
    yield store
    store.close()


def test_new_metrics_are_added(store: MetricStore) -> None:
    """Those that are there stay, also if no rule names them any more."""
    define_metrics(store, rules("new = from(Service.latency).max();"))
    assert sorted(store.catalogue()) == ["calls", "latency", "new"]


def test_the_same_rules_written_otherwise_are_the_same(store: MetricStore) -> None:
    """Spaces, lines and order are no matter."""
    before = store.catalogue()
    define_metrics(
        store, rules("latency=from( Service.latency )\n.sum();calls=from(Service.*).count();")
    )
    assert store.catalogue() == before


def test_a_metric_that_means_something_else_is_refused(store: MetricStore) -> None:
    """All of them are told, with what they were and what to do; nothing is changed."""
    before = store.catalogue()
    changed = "calls = from(Service.*).cpm(); latency = from(Service.latency).max();"
    with pytest.raises(MetricChangedError) as error:
        define_metrics(store, rules(changed + "new = from(Service.*).count();"))
    message = str(error.value)
    assert (
        "calls is stored as from(Service.*).count(), the rules say from(Service.*).cpm()" in message
    )
    assert "latency is stored as" in message
    assert "--replace-changed" in message
    assert store.catalogue() == before


def test_a_change_may_be_wanted(tmp_path: Path) -> None:
    """The old values go, and only those of what has changed."""
    rig = JobRig(tmp_path)
    rig.job()(frame([rig.land("a", 10, 20)]), 0)
    define_metrics(rig.store, rules("calls = from(Service.*).cpm();"), may_replace=True)
    for granularity in Granularity:
        query = SeriesQuery(metric="calls", granularity=granularity)
        assert rig.store.series(query) == []
        assert len(rig.store.series(replace(query, metric="latency"))) == 1
    assert rig.store.catalogue()["calls"].definition == "from(Service.*).cpm()"
    rig.store.close()


def test_a_rule_under_the_name_of_a_meter_is_a_change(store: MetricStore) -> None:
    """Its points were something else; if that is wanted, the name is the rule's from now on."""
    store.define([Catalogued(stable_id("metric", "load"), "load", "Meter", "gauge", "")])
    rule = rules("load = from(Service.*).count();")
    with pytest.raises(MetricChangedError, match="load is stored as gauge"):
        define_metrics(store, rule)
    define_metrics(store, rule, may_replace=True)
    assert store.catalogue()["load"].scope == "Service"
