"""How fast telemetry becomes metrics: into both stores, beside the engine alone and DuckDB.

Session start and one warm-up batch are excluded; everything else that `penstock aggregate` does
is in: Spark's planning and logs, the transaction per batch with its ledger, moving the files.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.bench import _duckdb
from penstock.bench._harness import Goal, Outcome, Progress, alternate, medians
from penstock.bench._memory import PeakMemory
from penstock.bench._pipeline import FILES, Data, Run, more_rules, run_noop, run_pipeline
from penstock.bench._postgres import PostgresServer
from penstock.scheduling import available_cores
from penstock.spark.session import SessionSettings, start_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["run"]

# A server as it would run: durable, and with the memory of a small machine.
_DURABLE = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    spans: int = 4_000_000
    sizes: tuple[int, ...] = (1_000_000, 4_000_000, 16_000_000)
    metrics: tuple[int, ...] = (10, 63, 640)
    metric_spans: int = 2_000_000
    rounds: int = 3


QUICK = Size(20_000, (10_000, 20_000), (10, 63), 20_000, 1)


def run(progress: Progress, *, quick: bool = False) -> Outcome:
    """Measure throughput, its shape over spans and metrics, and memory."""
    size = QUICK if quick else Size()
    progress.expect(2 + 4 * size.rounds + len(size.sizes) + 2 * len(size.metrics))
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        progress.step("starting PostgreSQL and Spark")
        server = stack.enter_context(PostgresServer.started(**_DURABLE))
        spark = start_session(SessionSettings(log_file=folder / "spark.log"))
        stack.callback(spark.stop)
        bench = _Bench(spark, server, Data(folder, size.spans), folder)
        progress.step("generating")
        bench.data.sample(size.spans)
        outcome = _throughput(bench, size, progress)
        outcome.join(_shape(bench, size, progress))
        outcome.join(_definitions(bench, size, progress))
    return outcome


@dataclass(slots=True)
class _Bench:
    spark: SparkSession
    server: PostgresServer
    data: Data
    folder: Path
    runs: int = 0

    def postgres(self, spans: int, metrics: int | None = None) -> Run:
        url = self.server.url(self.server.create_database())
        return run_pipeline(self.spark, self.data.landing(spans), url, more_rules(metrics))

    def sqlite(self, spans: int, metrics: int | None = None) -> Run:
        self.runs += 1
        store = self.folder / f"{self.runs}.db"
        try:
            landing = self.data.landing(spans)
            return run_pipeline(self.spark, landing, str(store), more_rules(metrics))
        finally:
            for file in self.folder.glob(f"{self.runs}.db*"):
                file.unlink()

    def noop(self, spans: int, metrics: int | None = None) -> Run:
        return run_noop(self.spark, self.data.landing(spans), more_rules(metrics))


def _throughput(bench: _Bench, size: Size, progress: Progress) -> Outcome:
    sample = bench.data.sample(size.spans)
    contenders: dict[str, Callable[[], float]] = {
        "postgres": lambda: bench.postgres(size.spans).rate,
        "sqlite": lambda: bench.sqlite(size.spans).rate,
        "engine": lambda: bench.noop(size.spans).rate,
        "duckdb": lambda: size.spans / _duckdb.aggregate(sample, available_cores(), FILES),
    }
    rates = medians(alternate(contenders, size.rounds, progress))
    ratios = {
        f"{store}_vs_{peer}": rates[store] / rates[peer]
        for store in ("postgres", "sqlite")
        for peer in ("engine", "duckdb")
    }
    goals = [
        Goal.at_least(f"{store}: share of the engine's rate", ratios[f"{store}_vs_engine"], 1 / 3)
        for store in ("postgres", "sqlite")
    ]
    figures = {f"{name}_spans_per_second": rate for name, rate in rates.items()}
    return Outcome({"spans": size.spans, **figures}, ratios, goals)


def _shape(bench: _Bench, size: Size, progress: Progress) -> Outcome:
    """Measure cost per span and peak memory as the input grows."""
    cost: dict[int, float] = {}
    memory: dict[int, dict[str, float]] = {}
    for spans in size.sizes:
        progress.step(f"{spans:,} spans into PostgreSQL")
        bench.data.sample(spans)
        with PeakMemory() as peak:
            cost[spans] = bench.postgres(spans).nanoseconds
        memory[spans] = peak.peaks
        bench.data.forget(spans)
    spread = max(cost.values()) / min(cost.values()) - 1
    sizes = list(size.sizes)
    growth = sum(memory[sizes[-1]].values()) / sum(memory[sizes[-2]].values())
    figures = {
        **{f"ns_per_span_at_{spans}": value for spans, value in cost.items()},
        **{
            f"peak_{role}_mb_at_{spans}": value
            for spans, peaks in memory.items()
            for role, value in peaks.items()
        },
    }
    goals = [
        Goal.at_most("cost per span: spread over the sizes", spread, 0.2),
        Goal.at_most("peak memory: largest input beside the one before", growth, 1.25),
    ]
    return Outcome(figures, {"memory_growth": growth}, goals)


def _definitions(bench: _Bench, size: Size, progress: Progress) -> Outcome:
    """Measure cost per span as the number of metrics grows."""
    figures: dict[str, float] = {}
    for metrics in size.metrics:
        progress.step(f"{metrics} metrics, engine alone")
        figures[f"engine_ns_per_span_with_{metrics}_metrics"] = bench.noop(
            size.metric_spans, metrics
        ).nanoseconds
        progress.step(f"{metrics} metrics into PostgreSQL")
        figures[f"postgres_ns_per_span_with_{metrics}_metrics"] = bench.postgres(
            size.metric_spans, metrics
        ).nanoseconds
    least, most = size.metrics[0], size.metrics[-1]
    ratios = {
        f"{name}_cost_{most}_vs_{least}_metrics": figures[f"{name}_ns_per_span_with_{most}_metrics"]
        / figures[f"{name}_ns_per_span_with_{least}_metrics"]
        for name in ("engine", "postgres")
    }
    goals = [
        Goal.at_most(
            f"{name}: cost growth beside the growth of metrics",
            ratios[f"{name}_cost_{most}_vs_{least}_metrics"] / (most / least),
            0.5,
        )
        for name in ("engine", "postgres")
    ]
    return Outcome(dict(figures), ratios, goals)
