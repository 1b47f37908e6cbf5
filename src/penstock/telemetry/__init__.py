"""Telemetry as it lies on disk: one Arrow schema for spans, metric points and logs each."""

from penstock.telemetry.schema import (
    LOGS,
    POINTS,
    PROMOTED,
    SIGNALS,
    SPANS,
    Signal,
    SpanKind,
    StatusCode,
    Temporality,
)

__all__ = [
    "LOGS",
    "POINTS",
    "PROMOTED",
    "SIGNALS",
    "SPANS",
    "Signal",
    "SpanKind",
    "StatusCode",
    "Temporality",
]
