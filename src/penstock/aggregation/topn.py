"""The slowest statements of databases and caches, per entity and minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.columns import Numbers, Texts
from penstock.aggregation.grouping import entity_codes
from penstock.aggregation.partials import TOPN
from penstock.aggregation.selections import select
from penstock.aggregation.settings import threshold
from penstock.aggregation.spans import first_present

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.aggregation.accumulator import Accumulator
    from penstock.aggregation.columns import Flags, Rows
    from penstock.aggregation.settings import AggregationSettings
    from penstock.aggregation.spans import Selection, SpanFrame

__all__ = ["STATEMENT_LENGTH", "add_slowest", "keep_slowest"]

STATEMENT_LENGTH = 2000
TOP_SIZE = 50


def add_slowest(frame: SpanFrame, into: Accumulator, settings: AggregationSettings) -> None:
    """Add the slowest statements among the spans of *frame*, of all kinds."""
    for rows in select(frame, "DatabaseAccess"):
        has_statement = frame.text("db_statement").is_valid()[rows.rows]
        slow = _above(rows, "databaseType", settings.slow_databases) & has_statement
        _add(rows, slow, ("database_statement", "DatabaseAccess", "name"), into)
        _add(rows, slow, ("service_database_statement", "Service", "serviceName"), into)
    for rows in select(frame, "CacheAccess"):
        slow = _above(rows, "cacheType", settings.slow_caches)
        operation = rows.attribute("operation")
        assert isinstance(operation, Texts)
        reads, writes = (operation.where(name.__eq__) for name in ("Read", "Write"))
        _add(rows, slow & reads, ("cache_read", "CacheAccess", "name"), into)
        _add(rows, slow & writes, ("cache_write", "CacheAccess", "name"), into)


def keep_slowest(table: pa.Table, size: int = TOP_SIZE) -> pa.Table:
    """Return the *size* slowest rows of each (kind, entity, bucket), each statement once."""
    if not table.num_rows:
        return table
    ordered = table.sort_by(
        [
            *((name, "ascending") for name in ("kind", "entity", "bucket")),
            ("latency", "descending"),
            ("span_id", "ascending"),
            ("trace_id", "ascending"),
        ]
    ).combine_chunks()
    group = _changes(ordered, ("kind", "entity", "bucket"))
    new = group | _changes(ordered, ("latency", "span_id", "trace_id"))
    ordered, group = ordered.filter(pa.array(new)), group[new]
    start = np.maximum.accumulate(np.where(group, np.arange(len(group)), 0))
    return ordered.filter(pa.array(np.arange(len(group)) - start < size))


def _changes(table: pa.Table, names: tuple[str, ...]) -> Flags:
    """Return for each row whether it differs from the one before it in any of the columns."""
    changed = np.zeros(table.num_rows, dtype=np.bool_)
    changed[0] = True
    for name in names:
        column = table[name]
        differs = pc.not_equal(column.slice(1), column.slice(0, table.num_rows - 1))
        changed[1:] |= differs.to_numpy()
    return changed


def _above(rows: Selection, system: str, thresholds: Mapping[str, int]) -> Flags:
    systems, latency = rows.attribute(system), rows.attribute("latency")
    assert isinstance(systems, Texts)
    assert isinstance(latency, Numbers)
    limits = np.array([threshold(thresholds, name.lower()) for name in (*systems.values, "")])
    return np.asarray(latency.values > limits[systems.codes])


def _add(rows: Selection, slow: Flags, what: tuple[str, str, str], into: Accumulator) -> None:
    kind, scope, name = what
    chosen = np.flatnonzero(slow)
    if not len(chosen):
        return
    chosen = _slow_enough(rows, chosen, name)
    frame, spans = rows.frame, rows.rows[chosen]
    entity = rows.attribute(name)
    latency = rows.attribute("latency")
    assert isinstance(entity, Texts)
    assert isinstance(latency, Numbers)
    codes, ids = entity_codes([entity.take(chosen)], scope, into)
    # Only caches have a command; a database's statement is always there.
    texts = frame.text("db_statement").take(spans)
    if scope == "CacheAccess":
        texts = first_present(texts, frame.command.take(spans))
    columns: dict[str, Any] = {
        "kind": pa.array([kind] * len(chosen)),
        "entity": ids[codes],
        "bucket": rows.minute[chosen].astype(np.int32),
        "latency": latency.values[chosen],
        "span_id": _hexadecimal(frame.array("span_id"), spans),
        "trace_id": _hexadecimal(frame.array("trace_id"), spans),
        "started_ns": frame.number("start_ns").values[spans],
        "statement": [texts.values[code][:STATEMENT_LENGTH] for code in texts.codes.tolist()],
    }
    into.tops(keep_slowest(pa.table(columns, schema=TOPN)))


def _slow_enough(rows: Selection, chosen: Rows, name: str) -> Rows:
    """Leave out what cannot be among the slowest of its entity and minute, ties aside."""
    spans = rows.frame.array("span_id").take(pa.array(rows.rows[chosen]))
    if len(spans.unique()) < len(spans):
        # Some spans came twice. Each takes one place, which can only be told by their ids.
        return chosen
    entity, latency = rows.attribute(name), rows.attribute("latency")
    assert isinstance(entity, Texts)
    assert isinstance(latency, Numbers)
    slowness = -latency.values[chosen]
    order = np.lexsort((slowness, rows.minute[chosen], entity.codes[chosen]))
    groups = np.stack([entity.codes[chosen][order], rows.minute[chosen][order]])
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = (groups[:, 1:] != groups[:, :-1]).any(axis=0)
    start = np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))
    ordered = slowness[order]
    # The last one of the group that is kept: all that are as slow as it stay.
    last = np.minimum(start + TOP_SIZE - 1, len(order) - 1)
    is_same_group = start[last] == start
    return np.sort(chosen[order][~is_same_group | (ordered <= ordered[last])])


def _hexadecimal(ids: pa.Array, rows: np.ndarray) -> list[str]:
    return [value.hex() for value in ids.take(pa.array(rows)).to_pylist()]
