"""Where a job can be killed: points in the course of a batch, installed from the outside.

Each point wraps a function of penstock so that the process kills itself, as the kernel or a power
switch would: no handler runs, no file is closed, no transaction ends. Or it stands still there
until the test has done something to what it depends on.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from penstock.aggregation.merging import Merger
from penstock.land.folder import LandingFolder
from penstock.spark import identity
from penstock.spark.job import MicroBatches
from penstock.store._batch import SqlTransaction
from penstock.store._store import SqlStore
from penstock.store.contract import Granularity
from penstock.store.postgres import PostgresSession
from penstock.store.sqlite import SqliteSession

__all__ = ["POINTS", "die", "install", "pause_at"]


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # the kernel takes a moment when other threads are running


def pause_at(sign: Path) -> Callable[[], None]:
    """Return what stands still from when it has made the file *sign* until that is removed."""

    def pause() -> None:
        if not paused.is_set():
            paused.set()
            sign.touch()
            while sign.exists():
                never.wait(0.05)

    paused, never = threading.Event(), threading.Event()
    return pause


def install(point: str, batch: int, checkpoint: Path, act: Callable[[], None] = die) -> None:
    """Do *act* at *point* of the micro-batch number *batch*."""
    POINTS[point](_Batch(batch, checkpoint, act))


class _Batch:
    """Knows whether the batch in question is under way."""

    def __init__(self, number: int, checkpoint: Path, act: Callable[[], None]) -> None:
        self.number = number
        self.checkpoint = checkpoint
        self.act = act
        self.is_now = False
        process = MicroBatches._process

        def _process(batches: MicroBatches, frame: Any, batch: int) -> None:  # noqa: ANN401
            self.is_now = batch == number
            process(batches, frame, batch)

        _replace(MicroBatches, "_process", _process)

    def before(self, owner: Any, name: str) -> None:  # noqa: ANN401
        """Act before the function *name* of *owner* is entered."""
        function = getattr(owner, name)

        def acting(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            if self.is_now:
                self.act()
            return function(*arguments, **named)

        _replace(owner, name, acting)

    def after(
        self,
        owner: Any,  # noqa: ANN401
        name: str,
        is_it: Callable[..., bool] = lambda *_, **__: True,
    ) -> None:
        """Act when the function *name* of *owner* has done its work; of the calls that fit."""
        function = getattr(owner, name)

        def acting(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            result = function(*arguments, **named)
            if self.is_now and is_it(*arguments, **named):
                self.act()
            return result

        _replace(owner, name, acting)


def _replace(owner: object, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)


def _die_with_spark() -> None:
    """Kill Spark's own process first: it is the one that writes its logs."""
    _kill_spark()
    die()


def _kill_spark() -> None:
    context = SparkContext._active_spark_context
    assert context is not None
    os.kill(context._gateway.proc.pid, signal.SIGKILL)  # type: ignore[union-attr]


def _is_minutes(_: SqlTransaction, granularity: Granularity, *__: object) -> bool:
    return granularity is Granularity.MINUTE


def _half_retired(batch: _Batch) -> None:
    retire = LandingFolder.retire

    def half(folder: LandingFolder, names: Any, at: float) -> None:  # noqa: ANN401
        every = list(names)
        if batch.is_now:
            assert len(every) > 1, "the batch has too few files for a half"
            every = every[: len(every) // 2]
        retire(folder, every, at)
        if batch.is_now:
            batch.act()

    _replace(LandingFolder, "retire", half)


def _in_identify(_: _Batch) -> None:
    """Both halves end with a call of their own; whichever comes first is followed by death."""
    for owner, name in ((identity, "_write"), (SqlStore, "adopt_job")):
        function = getattr(owner, name)

        def acting(*arguments: Any, function: Any = function) -> None:  # noqa: ANN401
            function(*arguments)
            die()

        _replace(owner, name, acting)


def _in_renewal(batch: _Batch) -> None:
    for session in (SqliteSession, PostgresSession):
        batch.after(session, "run", lambda _, statement, **__: statement == "lease_renew")


def _in_log(folder: str, following: int, act: Callable[[], None]) -> Callable[[_Batch], None]:
    """Act when Spark writes an entry of one of its logs, *following* batches after the one."""

    def install_it(batch: _Batch) -> None:
        name = str(batch.number + following)

        def watch() -> None:
            while not any(name in entry.split(".") for entry in _listed(batch.checkpoint / folder)):
                pass
            act()

        call = MicroBatches.__call__

        def called(batches: MicroBatches, frame: Any, number: int) -> None:  # noqa: ANN401
            call(batches, frame, number)
            if number == batch.number:
                threading.Thread(target=watch, daemon=True).start()

        _replace(MicroBatches, "__call__", called)

    return install_it


def _listed(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from (entry.name for entry in entries)


POINTS: dict[str, Callable[[_Batch], None]] = {
    "before_aggregation": lambda batch: batch.before(MicroBatches, "_aggregated"),
    "after_aggregation": lambda batch: batch.after(MicroBatches, "_aggregated"),
    "in_transaction": lambda batch: batch.after(SqlTransaction, "merge", _is_minutes),
    "before_commit": lambda batch: batch.after(SqlTransaction, "record"),
    "after_commit": lambda batch: batch.after(Merger, "merge"),
    "half_retired": _half_retired,
    "after_retire": lambda batch: batch.after(MicroBatches, "__call__"),
    "in_commit_log": _in_log("commits", 0, _die_with_spark),
    "in_offset_log": _in_log("offsets", 1, _die_with_spark),
    "in_identify": _in_identify,
    "in_renewal": _in_renewal,
    "spark_alone": lambda batch: batch.after(SqlTransaction, "merge", _and_spark),
}


def _and_spark(*_: object) -> bool:
    _kill_spark()
    return False
