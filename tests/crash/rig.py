"""Jobs to be killed, the telemetry they work on, and what must be in the store in the end."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import psutil

from penstock.clock import SYSTEM_CLOCK, Clock, wall_time
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

__all__ = [
    "Job",
    "Passing",
    "Telemetry",
    "check_store",
    "contents",
    "land_telemetry",
    "local_batches",
    "processes_of",
]

ROOT = Path(__file__).parents[2]
TWO_FILES = 200_000  # bytes per micro-batch: room for two of the files, not for three
PATIENCE = 300.0  # seconds; only a failing test waits this long
# A short life does not pay for the JVM's best compiler.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

T = TypeVar("T")
Key: TypeAlias = tuple[object, ...]
Batches: TypeAlias = Callable[[int, Iterable[str]], None]


@dataclass(frozen=True)
class Telemetry:
    """Landed files, and what a store holds that has them all once."""

    folder: Path
    names: tuple[str, ...]
    expected: Mapping[Key, object]

    def copied_to(self, folder: Path) -> LandingFolder:
        """Return a landing folder with copies of the files."""
        shutil.copytree(self.folder, folder)
        return LandingFolder(folder)


def land_telemetry(
    folder: Path, *, spans: int, minutes: int = 10, rows_per_file: int = 3_000
) -> Telemetry:
    """Make up files of some rows, and merge them undisturbed: in one batch, without Spark."""
    settings = GeneratorSettings(
        spans=spans,
        services=4,
        instances=2,
        endpoints=3,
        minutes=minutes,
        points=rows_per_file // 10,
        logs=0,
        rows_per_file=rows_per_file,
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
        with local_batches(store, LandingFolder(undisturbed / "landing")) as process:
            process(0, names)
        expected = contents(store)
    finally:
        store.close()
    assert expected
    return Telemetry(landing.root, names, expected)


@contextmanager
def local_batches(
    store: MetricStore,
    landing: LandingFolder,
    settings: JobSettings | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Batches]:
    """Lend what processes micro-batches as the job does, given their numbers and their files."""
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
        clock=clock,
    )
    batches = MicroBatches(setting, settings or JobSettings())
    yield lambda number, names: batches(cast("Any", LocalFrame(names)), number)
    store.release("test")


class Passing:
    """A clock by which waiting takes no time; *meanwhile* is what happens in the first waits."""

    def __init__(self, *meanwhile: Callable[[], None]) -> None:
        self._now = 1000.0
        self._meanwhile = list(meanwhile)

    def now(self) -> float:
        """Return the time that has passed by waiting."""
        return self._now

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Let the time pass at once."""
        del condition
        assert timeout is not None
        self._now += timeout
        if self._meanwhile:
            self._meanwhile.pop(0)()
        return False


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


def check_store(store: MetricStore, telemetry: Telemetry) -> None:
    """Fail unless *store* has all of *telemetry* once."""
    lines = differences(telemetry.expected, contents(store))
    assert not lines, "\n".join(lines)
    assert tuple(store.merged_files(telemetry.names)) == telemetry.names


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
    options: tuple[str, ...] = ()  # of the command

    def __post_init__(self) -> None:
        self.landing = self.telemetry.copied_to(self.folder / "landing")
        self.checkpoint = self.folder / "checkpoint"
        self.store = self.store or str(self.folder / "metrics.db")
        self.errors = self.folder / "stderr"

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

    def wait_for(self, process: subprocess.Popen[bytes], condition: Callable[[], T]) -> T:
        """Wait until *condition* holds, and return it; fail if the job ends or takes too long."""
        for _ in range(round(PATIENCE / 0.05)):
            if found := condition():
                return found
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(0.05)
                if found := condition():  # its last words
                    return found
                raise AssertionError(f"ended with {code}: {self.said()}")
        raise AssertionError(f"in vain: {self.said()}")

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
            check_store(store, self.telemetry)
        finally:
            store.close()


def wait_for_session(leader: int) -> None:
    """Wait until all that a job has started is gone: Spark ends when its input does."""
    left = processes_of(leader)
    _, alive = psutil.wait_procs(left, timeout=60)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert not alive, f"Spark outlives the job that was killed: {alive}"


def processes_of(leader: int) -> list[psutil.Process]:
    """Return all that the job whose process is *leader* has started, and itself."""
    return [process for process in psutil.process_iter() if _session(process) == leader]


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None
