"""Spans and points to write tests with: every column is there, the test names what matters."""

from typing import Any

from penstock.telemetry import POINTS, SPANS, SpanKind, StatusCode, Temporality

MINUTE = 28_000_020  # 2023-03-28T11:00Z: the start of an hour, not of a day
NANOSECONDS = 60 * 1_000_000_000
START = MINUTE * NANOSECONDS


def span(
    kind: SpanKind = SpanKind.SERVER,
    *,
    minute: int = MINUTE,
    latency: int = 0,
    number: int = 1,
    **columns: object,
) -> dict[str, Any]:
    """Return a span of *latency* milliseconds that starts in *minute*; *number* makes its ids."""
    start = minute * NANOSECONDS
    row: dict[str, Any] = dict.fromkeys(SPANS.names)
    row |= {
        "trace_id": number.to_bytes(16, "big"),
        "span_id": number.to_bytes(8, "big"),
        "name": "work",
        "kind": int(kind),
        "start_ns": start,
        "end_ns": start + latency * 1_000_000,
        "status_code": int(StatusCode.UNSET),
        "service_name": "shop",
        "service_instance": "shop-1",
        "attributes": [],
        "resource_attributes": [],
    }
    return _with(row, columns)


def point(
    name: str = "queue.size", kind: str = "gauge", *, seconds: float = 0, **columns: object
) -> dict[str, Any]:
    """Return a metric point *seconds* after START; sums and histograms are delta unless told."""
    row: dict[str, Any] = dict.fromkeys(POINTS.names)
    row |= {
        "metric_name": name,
        "kind": kind,
        "temporality": int(Temporality.UNSPECIFIED if kind == "gauge" else Temporality.DELTA),
        "monotonic": kind == "sum",
        "service_name": "shop",
        "service_instance": "shop-1",
        "attributes": [],
        "resource_attributes": [],
        "time_ns": START + int(seconds * 1_000_000_000),
    }
    return _with(row, columns)


def _with(row: dict[str, Any], columns: dict[str, object]) -> dict[str, Any]:
    unknown = sorted(columns.keys() - row.keys())
    if unknown:
        raise ValueError(f"{unknown} are not columns; those are {sorted(row)}")
    return row | columns
