"""Jobs to be killed, the telemetry they work on, and what must be in the store in the end."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil

from penstock.clock import wall_time
from penstock.generate import GeneratorSettings, write_landing
from penstock.land import LandingFolder
from penstock.metrics import default_rules
from penstock.spark.aggregation import define_metrics
from penstock.spark.identity import Identity
from penstock.spark.job import JobSettings, MicroBatches, Setting
from penstock.store import open_store
from penstock.store.contract import Granularity, MetricStore, SeriesQuery
from tests.oracle.comparing import differences
from tests.oracle.reading import ALL, read_top
from tests.support.spark import LocalFrame

__all__ = ["ROOT", "Job", "Telemetry", "contents", "land_telemetry"]

ROOT = Path(__file__).parents[2]
TWO_FILES = 200_000  # bytes per micro-batch: room for two of the files, not for three
PATIENCE = 240.0  # seconds; only a failing test waits this long
# A short life does not pay for the JVM's best compiler.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

Key = tuple[object, ...]


@dataclass(frozen=True)
class Telemetry:
    """Landed files, and what a store holds that has them all once."""

    folder: Path
    names: tuple[str, ...]
    expected: Mapping[Key, object]


def land_telemetry(folder: Path, *, spans: int, minutes: int = 10) -> Telemetry:
    """Make up files of 3,000 rows, and merge them undisturbed: in one batch, without Spark."""
    settings = GeneratorSettings(
        spans=spans,
        services=4,
        instances=2,
        endpoints=3,
        minutes=minutes,
        points=300,
        logs=0,
        rows_per_file=3_000,
        late=0.05,
    )
    landing = LandingFolder(folder / "landing")
    landing.prepare()
    write_landing(settings, landing.root)
    names = tuple(file.name for file in landing.pending())
    undisturbed = folder / "undisturbed"
    shutil.copytree(landing.root, undisturbed / "landing")
    store = open_store(str(undisturbed / "metrics.db"))
    try:
        merge_locally(store, LandingFolder(undisturbed / "landing"), [names])
        expected = contents(store)
    finally:
        store.close()
    assert expected
    return Telemetry(landing.root, names, expected)


def merge_locally(
    store: MetricStore, landing: LandingFolder, batches: list[tuple[str, ...]]
) -> None:
    """Merge landed files in this process, as the job does."""
    with local_batches(store, landing) as process:
        for number, names in enumerate(batches):
            process(cast("Any", LocalFrame(names)), number)


@contextmanager
def local_batches(store: MetricStore, landing: LandingFolder) -> Iterator[MicroBatches]:
    """Return what processes micro-batches, without Spark; frames are LocalFrames."""
    metrics = default_rules()
    store.migrate()
    store.acquire("test", 600.0)
    define_metrics(store, metrics)
    setting = Setting(
        landing=landing,
        store=store,
        metrics=tuple(metrics),
        identity=Identity("job", "checkpoint"),
        holder="test",
        now=wall_time,
    )
    yield MicroBatches(setting, JobSettings())
    store.release("test")


def contents(store: MetricStore) -> dict[Key, object]:
    """Return everything that a store tells: states with all their figures, lists, names."""
    found: dict[Key, object] = {}
    scopes = set()
    for name, metric in store.catalogue().items():
        scopes.add(metric.scope)
        found["catalogue", name] = repr(metric)
        for granularity in Granularity:
            query = SeriesQuery(metric=name, granularity=granularity, limit=ALL)
            for row in store.series(query):
                key = (name, granularity.value, row.entity, row.bucket)
                for figure, value in vars_of(row.state).items():
                    found[*key, figure] = value
    for scope in scopes:
        found["entities", scope] = list(store.entities(scope))
    return found | {("top", *key): entries for key, entries in read_top(store).items()}


def vars_of(state: object) -> dict[str, object]:
    """Return the fields of a state, but for those that hold nothing."""
    fields = type(state).__dataclass_fields__  # type: ignore[attr-defined]
    values = {name: getattr(state, name) for name in fields}
    return {name: value for name, value in values.items() if value is not None}


@dataclass
class Job:
    """`penstock aggregate --once` over a copy of some telemetry; started as often as needed."""

    folder: Path
    telemetry: Telemetry
    store: str = ""
    options: tuple[str, ...] = ()
    before: dict[str, Any] = field(default_factory=dict)  # arguments of Popen

    def __post_init__(self) -> None:
        self.landing = LandingFolder(self.folder / "landing")
        self.checkpoint = self.folder / "checkpoint"
        self.store = self.store or str(self.folder / "metrics.db")
        self.errors = self.folder / "stderr"
        shutil.copytree(self.telemetry.folder, self.landing.root)

    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the job for the block; what is left of it at the end is killed and waited for."""
        command = [sys.executable, "-m", "tests.crash.program", *options]
        command += ["--checkpoint", str(self.checkpoint), "--", "--once", "--master", "local[2]"]
        command += ["--landing", str(self.landing.root), "--store", self.store]
        command += ["--max-bytes", str(TWO_FILES), *self.options]
        environment = {**os.environ, "JDK_JAVA_OPTIONS": JAVA}
        with self.errors.open("ab") as errors:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                **self.before,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            wait_for_session(process.pid)

    def run(self, *options: str) -> int:
        """Run the job to its end, however that comes; return its exit code."""
        with self.started(*options) as process:
            return process.wait(PATIENCE)

    def said(self) -> str:
        """Return what all runs had to say."""
        return self.errors.read_text("utf-8")

    def check(self) -> None:
        """Fail unless the store has every file once, and none is left."""
        assert self.landing.pending() == [], self.said()
        consumed = tuple(file.name for file in self.landing.consumed())
        assert consumed == self.telemetry.names
        assert self.landing.rejected() == []
        store = open_store(self.store)
        try:
            lines = differences(self.telemetry.expected, contents(store))
            merged = store.merged_files(self.telemetry.names)
        finally:
            store.close()
        assert not lines, "\n".join(lines)
        assert tuple(merged) == self.telemetry.names


def wait_for_session(leader: int) -> None:
    """Wait until all that a job has started is gone: Spark ends when its input does."""
    left = [process for process in psutil.process_iter() if _session(process) == leader]
    _, alive = psutil.wait_procs(left, timeout=60)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert not alive, f"Spark outlives the job that was killed: {alive}"


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None
