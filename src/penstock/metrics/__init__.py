"""The metric language (OAL): definitions as plain values, functions as mergeable states."""

from penstock.metrics.definitions import Metric
from penstock.metrics.diagnostics import Diagnostic
from penstock.metrics.loading import (
    Rules,
    default_rules,
    load_rules,
    parse_files,
    parse_rules,
)

__all__ = [
    "Diagnostic",
    "Metric",
    "Rules",
    "default_rules",
    "load_rules",
    "parse_files",
    "parse_rules",
]
