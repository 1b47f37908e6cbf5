"""What a store knows of each service, in one row: the summary of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store.contract import MetricStore, TopRow

__all__ = ["ServiceRow", "Summary", "summarise"]

_SHOWN = 60  # characters of a statement
_STATEMENTS = 5
_LOOKED_AT = 500  # the same one is often slow more than once


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """One service. Latencies are milliseconds, SLA is a percentage."""

    service: str
    cpm: float
    latency: float
    p99: float
    sla: float
    apdex: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Services and slow statements over so many minutes."""

    minutes: int
    rows: Sequence[ServiceRow]
    slowest: Sequence[TopRow]

    def services(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        """Return headings and rows, the busiest service first."""
        headings = ("SERVICE", "CPM", "LATENCY ms", "P99 ms", "SLA %", "APDEX")
        rows = [
            (r.service, r.cpm, r.latency, r.p99, r.sla, r.apdex)
            for r in sorted(self.rows, key=lambda row: -row.cpm)
        ]
        return headings, rows

    def statements(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        """Return headings and rows, the slowest first."""
        rows = [(" / ".join(r.entity), r.latency, _shortened(r.statement)) for r in self.slowest]
        return ("DATABASE", "MS", "STATEMENT"), rows

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "minutes": self.minutes,
            "services": [
                {name: getattr(row, name) for name in ServiceRow.__slots__} for row in self.rows
            ],
            "slowest": [
                {"database": list(r.entity), "ms": r.latency, "statement": r.statement}
                for r in self.slowest
            ],
        }


def summarise(url: str) -> Summary:
    """Read the store at *url*."""
    from penstock.store import open_store
    from penstock.store.contract import TopQuery

    store = open_store(url)
    try:
        values = {name: _by_service(store, name) for name in _METRICS}
        slowest = _distinct(store.top(TopQuery(kind="database_statement", limit=_LOOKED_AT)))
    finally:
        store.close()
    minutes = max((len(buckets) for buckets, _ in values["service_cpm"].values()), default=0)
    return Summary(minutes, [_row(service, values) for service in values["service_cpm"]], slowest)


def _distinct(rows: Sequence[TopRow]) -> list[TopRow]:
    """Return the slowest statements, each once; *rows* have the slowest first."""
    first: dict[tuple[object, ...], TopRow] = {}
    for row in rows:
        first.setdefault((row.entity, row.statement), row)
    return list(first.values())[:_STATEMENTS]


_METRICS = (
    "service_cpm",
    "service_resp_time",
    "service_percentile",
    "service_sla",
    "service_apdex",
)


def _by_service(store: MetricStore, metric: str) -> dict[str, tuple[set[int], Any]]:
    """Return for each service its minutes, and the metric's value over all of them."""
    from penstock.metrics.functions import FUNCTIONS, State
    from penstock.store.contract import SeriesQuery

    function = FUNCTIONS[store.catalogue()[metric].function]
    states: dict[str, tuple[set[int], State]] = {}
    for row in store.series(SeriesQuery(metric=metric, limit=1_000_000)):
        buckets, state = states.get(row.entity[0], (set(), State()))
        states[row.entity[0]] = (buckets | {row.bucket}, state.combine(row.state))
    return {
        service: (buckets, function.value(state, len(buckets)))
        for service, (buckets, state) in states.items()
    }


def _row(service: str, values: dict[str, dict[str, tuple[set[int], Any]]]) -> ServiceRow:
    cpm, latency, percentiles, sla, apdex = (values[name][service][1] for name in _METRICS)
    return ServiceRow(
        service, float(cpm), float(latency), float(percentiles["p99"]), sla / 100, apdex / 10_000
    )


def _shortened(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
