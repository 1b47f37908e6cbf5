"""The slowest statements per kind, entity and minute, from all of them sorted."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tests.oracle.buckets import Admitted, Entity, admit
from tests.oracle.conventions import Row, Span, rows

SIZE = 50
STATEMENT = 2_000  # characters that are kept
DATABASES = {"mongodb": 100}
CACHES = {"redis": 10}

TopKey: TypeAlias = tuple[str, Entity, int]  # kind, entity, minute
Slow: TypeAlias = tuple[int, str, str, str]  # latency, span id, trace id, statement


def top(
    spans: Iterable[dict[str, Any]],
    *,
    database_thresholds: Mapping[str, int] = DATABASES,
    database_default: int = 200,
    cache_thresholds: Mapping[str, int] = CACHES,
    cache_default: int = 20,
    admitted: Admitted | None = None,
) -> dict[TopKey, list[Slow]]:
    """Return the top lists of *spans*, rows of a SPANS table; thresholds are in milliseconds."""
    found: dict[TopKey, dict[tuple[str, str], Slow]] = defaultdict(dict)
    for columns in spans:
        for row in rows(Span(columns)):
            system = str(columns["db_system"]).lower()
            is_slow = {
                "DatabaseAccess": database_thresholds.get(system, database_default),
                "CacheAccess": cache_thresholds.get(system, cache_default),
            }
            if row.source not in is_slow or row.span.latency <= is_slow[row.source]:
                continue
            slow = _slow(row.span)
            for kind, scope, entity in _lists(row):
                key = (kind, admit(scope, entity, admitted), row.span.minute)
                # The same span twice is one entry; should they differ, the slower one.
                same = found[key].setdefault(slow[1:3], slow)
                found[key][slow[1:3]] = max(same, slow)
    return {key: sorted(slow.values(), key=_order)[:SIZE] for key, slow in found.items()}


def _order(slow: Slow) -> tuple[int, str, str]:
    latency, span_id, trace_id, _ = slow
    return (-latency, span_id, trace_id)


def _slow(span: Span) -> Slow:
    statement = span.text("db_statement") or span.command or ""
    columns = span.columns
    return (
        span.latency,
        columns["span_id"].hex(),
        columns["trace_id"].hex(),
        statement[:STATEMENT],
    )


def _lists(row: Row) -> Iterator[tuple[str, str, Entity]]:
    """Yield kind, scope and entity of each list that a slow row belongs to."""
    if row.source == "CacheAccess":
        kind = {"Read": "cache_read", "Write": "cache_write"}.get(row.span.cache_operation)
        if kind:
            yield kind, "CacheAccess", row.entity
    elif row.span.text("db_statement"):
        yield "database_statement", "DatabaseAccess", row.entity
        yield "service_database_statement", "Service", (row.span.service,)
