"""Reading from a store: the catalogue, entities by shell patterns, series and top lists."""

from __future__ import annotations

import json
import math
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.metrics.functions import State
from penstock.store.contract import TOP_KINDS, Catalogued, SeriesRow, TopRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.store._engine import Row, Session
    from penstock.store.contract import SeriesQuery, TopQuery

__all__ = ["catalogue", "entities", "series", "top"]


def catalogue(session: Session) -> dict[str, Catalogued]:
    """Return all known metrics by name."""
    return {metric.name: metric for metric in (Catalogued(*row) for row in session.rows("metrics"))}


def entities(
    session: Session, statement: str, **values: object
) -> list[tuple[int, tuple[str, ...]]]:
    """Return the ids and parts of the entities that a statement selects."""
    rows = session.rows(statement, **values)
    every = json.loads(f"[{','.join(parts for _, parts in rows)}]")  # at once: many times faster
    return [(row[0], tuple(parts)) for row, parts in zip(rows, every, strict=True)]


def series(session: Session, query: SeriesQuery, address: str) -> list[SeriesRow]:
    """Return states in the order of (bucket, entity)."""
    known = catalogue(session)
    if query.metric not in known:
        raise _unknown_metric(query.metric, list(known), address)
    metric = known[query.metric]
    statement = f"series.{query.granularity}"
    values: dict[str, object] = {
        "metric": metric.metric,
        "since": query.since,
        "until": query.until,
        "limit": query.limit,
    }
    if query.entity:
        every = entities(session, "entities", scope=metric.scope)
        statement = f"series_of.{query.granularity}"
        values["entities"] = session.listed(_matching(every, query.entity))
    found = [_series_row(row) for row in session.rows(statement, **values)]
    return sorted(found, key=lambda row: (row.bucket, row.entity))


def top(session: Session, query: TopQuery) -> list[TopRow]:
    """Return slow statements, the slowest first."""
    if query.kind not in TOP_KINDS:
        raise StoreError(f"kind: there is no top list {query.kind!r}: use {', '.join(TOP_KINDS)}")
    statement = "top"
    values: dict[str, object] = {
        "kind": query.kind,
        "since": query.since,
        "until": query.until,
        "limit": query.limit,
    }
    if query.entity:
        every = entities(session, "entities_ranked", kind=query.kind)
        statement = "top_of"
        values["entities"] = session.listed(_matching(every, query.entity))
    return [TopRow(_parts(parts), *rest) for parts, *rest in session.rows(statement, **values)]


def _matching(every: Sequence[tuple[int, tuple[str, ...]]], patterns: Sequence[str]) -> list[int]:
    """Return the ids of the entities whose first parts fit the patterns."""
    return [
        entity
        for entity, parts in every
        if len(parts) >= len(patterns)
        and all(fnmatchcase(part, pattern) for part, pattern in zip(parts, patterns, strict=False))
    ]


def _unknown_metric(name: str, known: list[str], address: str) -> StoreError:
    if not known:
        return StoreError(f"{address} has no metric {name!r}: it holds no metrics yet")
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"it has {len(known)} others"
    return StoreError(f"{address} has no metric {name!r}: {hint}")


def _series_row(row: Row) -> SeriesRow:
    parts, bucket, count, total, base, real, low, high, last, last_at, slots, sums = row
    state = State(
        count=count,
        total=total,
        base=base,
        real=math.nan if real is None else real,
        low=low,
        high=high,
        last=last,
        last_at=last_at,
        slots={} if slots is None else json.loads(slots),
        sums={} if sums is None else json.loads(sums),
    )
    return SeriesRow(_parts(parts), bucket, state)


def _parts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
