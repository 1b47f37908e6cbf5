"""Which benches there are. A new one joins with one line."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.bench import _harness

if TYPE_CHECKING:
    from penstock.bench._harness import Outcome, Progress

__all__ = ["BENCHES", "Bench", "measure"]


@dataclass(frozen=True, slots=True)
class Bench:
    """A module with ``run(quick, progress) -> Outcome``, imported when it is asked for."""

    module: str
    summary: str

    def run(self, progress: Progress, *, quick: bool) -> Outcome:
        """Import the module and run it."""
        run = importlib.import_module(self.module).run
        outcome: Outcome = run(progress, quick=quick)
        return outcome


BENCHES = {
    "queue": Bench("penstock.bench.queue", "throughput beside the standard library's queues"),
    "rebalance": Bench("penstock.bench.rebalance", "what moving partitions gains on a skewed load"),
    "batcher": Bench("penstock.bench.batcher", "futures for single items beside other batchers"),
    "pipeline": Bench("penstock.bench.pipeline", "telemetry to metrics, beside the engine alone"),
    "receive": Bench("penstock.bench.receive", "OTLP acknowledged durably, beside no disk at all"),
    "idle": Bench("penstock.bench.idle", "what queues cost that have nothing to do"),
}


def measure(name: str, progress: Progress, *, quick: bool = False) -> dict[str, Any]:
    """Run the bench called *name*; return the object that ``--json`` prints."""
    # Benches shut queues down under load, on purpose: no need to warn of what was refused.
    logging.getLogger("penstock").setLevel(logging.ERROR)
    machine = _harness.machine()  # before the run, or the load average would be our own
    outcome = BENCHES[name].run(progress, quick=quick)
    progress.clear()
    return {
        "bench": name,
        "machine": machine,
        "commit": _harness.commit(),
        **outcome.as_dict(),
    }
