"""L1 and L2 without landing folder and Spark: rows in, a SQLite store out."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.aggregation.aggregator import Aggregator, Horizon
from penstock.aggregation.merging import Merger
from penstock.aggregation.partials import Partials
from penstock.aggregation.settings import AggregationSettings
from penstock.metrics import Metric, parse_rules
from penstock.spark.aggregation import define_metrics
from penstock.store import open_store
from penstock.store.contract import LedgerEntry, Retention
from penstock.telemetry import POINTS, SPANS, Signal
from tests.oracle.samples import START

NOW = START / 1e9 + 600.0
RULES = "calls = from(Service.*).count(); latency = from(Service.latency).sum();"

Rows = Sequence[Mapping[str, Any]]


def rules(text: str) -> tuple[Metric, ...]:
    """Return the metrics of *text*, which has no errors."""
    parsed = parse_rules(text)
    assert not parsed.diagnostics, "\n".join(map(str, parsed.diagnostics))
    return parsed.metrics


class Pipeline:
    """A store, and the way of rows into it."""

    def __init__(
        self,
        path: Path | str,
        text: str | tuple[Metric, ...] = RULES,
        settings: AggregationSettings | None = None,
    ) -> None:
        self.metrics = rules(text) if isinstance(text, str) else text
        self.settings = settings or AggregationSettings()
        self.horizon = Horizon.at(NOW, Retention())
        self.store = open_store(str(path), now=lambda: NOW)
        self.store.migrate()
        self.store.acquire("me", 1e6)
        define_metrics(self.store, self.metrics)
        self.restart()
        self._batches = count()

    def restart(self) -> None:
        """Forget what is remembered outside the store."""
        self.merger = Merger(self.store, "me", self.settings.max_entities)

    def partials(self, spans: Rows = (), points: Rows = ()) -> Partials:
        """Aggregate rows, as one task does."""
        aggregator = Aggregator(self.metrics, self.settings, self.horizon)
        for signal, rows, schema in ((Signal.SPANS, spans, SPANS), (Signal.POINTS, points, POINTS)):
            for batch in pa.Table.from_pylist(list(rows), schema=schema).to_batches():
                aggregator.add(signal, batch)
        return Partials.concatenated([aggregator.finish()])

    def merge(self, spans: Rows = (), points: Rows = ()) -> Mapping[str, int]:
        """Merge rows as one batch; return how many were left out, by cause."""
        entry = LedgerEntry("checkpoint", next(self._batches), NOW, ())
        return self.merger.merge(self.partials(spans, points), entry, self.horizon)
