"""Running the aggregation: everything from opening the store to the last batch."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.clock import SYSTEM_CLOCK, wall_time
from penstock.errors import JobError, MetricChangedError, PenstockError, StoreError
from penstock.land.folder import LandingFolder
from penstock.spark.identity import identify
from penstock.spark.job import JobSettings, MicroBatches, Setting, as_job_error
from penstock.spark.lease import HeldLease
from penstock.spark.session import (
    SessionSettings,
    has_ended,
    reason_of,
    start_session,
    stop_session,
)
from penstock.store.contract import Catalogued

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.clock import Clock
    from penstock.metrics.definitions import Metric
    from penstock.spark.job import BatchReport
    from penstock.store.contract import MetricStore

__all__ = ["Aggregation", "AggregationConfig", "Watcher", "define_metrics"]

log = logging.getLogger(__name__)

_LOOK_EVERY = 0.1  # seconds between looks at the query
_EXPIRE_EVERY = 600.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationConfig:
    """What one aggregation runs on. ``once`` ends it when all that has landed is merged."""

    landing: Path
    checkpoint: Path
    once: bool = False
    interval: float = 5.0  # seconds between looks into the landing folder
    max_files: int = 1000  # per micro-batch
    max_bytes: int = 96 << 20  # per micro-batch
    new_checkpoint: bool = False
    replace_changed: bool = False
    job: JobSettings = field(default_factory=JobSettings)
    session: SessionSettings = field(default_factory=SessionSettings)
    now: Callable[[], float] = wall_time
    clock: Clock = SYSTEM_CLOCK


class Watcher:
    """Is told how the run goes; does nothing by itself."""

    def batch(self, report: BatchReport) -> None:
        """Take note of a finished micro-batch; called from the query's thread."""

    def tick(self) -> None:
        """Take note that time passes; called several times a second from the main thread."""


class Aggregation:
    """One run of the job. ``run`` returns when it is done or was told to stop."""

    def __init__(
        self,
        config: AggregationConfig,
        store: MetricStore,
        metrics: Sequence[Metric],
        watcher: Watcher | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._metrics = tuple(metrics)
        self._watcher = watcher or Watcher()
        self._now = config.now
        self._clock = config.clock
        self._landing = LandingFolder(config.landing.absolute())
        self._stopped = threading.Event()
        self._holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"

    def stop(self) -> None:
        """Ask the run to end after the batch it is in; may be called from a signal handler."""
        self._stopped.set()

    def run(self, session: SparkSession | None = None) -> None:
        """Run until all is merged (once), until stopped, or until an error that it raises."""
        self._landing.prepare()
        self._store.migrate()
        with HeldLease(self._store, self._holder, self._clock, self._stopped) as lease:
            identity = identify(
                self._config.checkpoint, self._store, adopt=self._config.new_checkpoint
            )
            define_metrics(self._store, self._metrics, may_replace=self._config.replace_changed)
            setting = Setting(
                landing=self._landing,
                store=self._store,
                metrics=self._metrics,
                identity=identity,
                holder=self._holder,
                now=self._now,
                clock=self._clock,
            )
            batches = MicroBatches(setting, self._config.job, self._watcher.batch)
            log_file = self._config.checkpoint / "spark.log"
            spark = session or start_session(replace(self._config.session, log_file=log_file))
            try:
                self._watch(self._started(spark, batches), batches, lease)
                self._expire()
            except Exception as error:
                if has_ended(spark, error):
                    raise JobError(
                        f"Spark has ended, perhaps for want of memory (see {log_file}); start the "
                        "job again: it goes on where it was"
                    ) from error
                raise
            finally:
                if session is None:
                    stop_session(spark)

    def _started(self, spark: SparkSession, batches: MicroBatches) -> StreamingQuery:
        try:
            return self._query(spark, batches)
        except Exception as error:
            raise JobError(f"Spark cannot start the query: {reason_of(error)}") from error

    def _query(self, spark: SparkSession, batches: MicroBatches) -> StreamingQuery:
        from penstock.spark.source import landing_stream  # noqa: PLC0415 # needs pyspark

        config = self._config
        frame = landing_stream(
            spark, config.landing, max_files=config.max_files, max_bytes=config.max_bytes
        )
        writer = (
            frame.writeStream.queryName("penstock")
            .foreachBatch(batches)
            .option("checkpointLocation", str(self._config.checkpoint.absolute()))
        )
        if self._config.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._config.interval} seconds").start()

    def _watch(self, query: StreamingQuery, batches: MicroBatches, lease: HeldLease) -> None:
        try:
            self._look_after(query, lease)
        finally:
            batches.stop()
            query.stop()
        if lease.lost is not None:
            raise lease.lost
        if isinstance(batches.failure, PenstockError):
            raise batches.failure
        if batches.failure is not None:
            raise as_job_error(batches.failure) from batches.failure
        error = query.exception()
        if error is not None and not self._stopped.is_set():
            raise JobError(f"the streaming query failed: {_first_line(str(error))}") from error

    def _look_after(self, query: StreamingQuery, lease: HeldLease) -> None:
        """Return when the query has ended, or has to."""
        expire_at = self._clock.now()
        while query.isActive and not self._stopped.wait(_LOOK_EVERY) and lease.lost is None:
            self._watcher.tick()
            if self._clock.now() >= expire_at:
                expire_at = self._clock.now() + _EXPIRE_EVERY
                self._expire()

    def _expire(self) -> None:
        """Delete what is past its time; what stands in the way is told, and tried again later."""
        now = self._now()
        try:
            rows = self._store.expire(now, self._config.job.retention)
            files = self._landing.prune(now - self._config.job.keep_consumed * 86_400)
        except (StoreError, OSError) as error:
            log.warning("job.not_expired: %s; trying again later", error)
        else:
            log.info("job.expired: files=%d rows=%s", files, dict(rows))


def define_metrics(
    store: MetricStore, metrics: Sequence[Metric], *, may_replace: bool = False
) -> None:
    """Enter *metrics* into the store's catalogue.

    Raises MetricChangedError if one stands for something else there, unless *may_replace*: then
    its old values are deleted.
    """
    known = store.catalogue()
    wanted = [
        Catalogued(metric.id, metric.name, metric.source, metric.call.function, metric.definition)
        for metric in metrics
    ]
    changed = [
        (known[new.name], new)
        for new in wanted
        if new.name in known and known[new.name].definition != new.definition
    ]
    if changed and not may_replace:
        raise MetricChangedError(
            "\n".join(
                f"{new.name} is stored as {old.definition or old.function}, "
                f"the rules say {new.definition}"
                for old, new in changed
            )
            + "\nRename what has changed, or add --replace-changed to delete the values of old"
        )
    fresh = [new for new in wanted if known.get(new.name) != new]
    if fresh:
        store.define(fresh)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
