"""Arrow tables on their way into a store, in the form in which both databases take them."""

from __future__ import annotations

import io
import json
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.errors import StoreError
from penstock.metrics.sources import METER
from penstock.store.schemas import ENTITIES, FACTS, METERS, READINGS, TOPN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.store._engine import Row

__all__ = [
    "CHANGES",
    "as_csv",
    "as_json",
    "entity_rows",
    "is_newer",
    "meter_rows",
    "reading_rows",
    "split_facts",
    "topn_rows",
    "with_kept",
]

CHANGES = pa.schema(
    [
        ("metric", pa.int64()),
        ("entity", pa.int64()),
        ("bucket", pa.int32()),
        ("slot", pa.string()),
        ("delta", pa.float64()),
    ]
)

# The parts of an entity as one text. They stay apart in the column beside it.
_BETWEEN_PARTS = " | "

_WIDE = pa.schema([*FACTS, ("slots", pa.string()), ("sums", pa.string())])
_PLAIN = ("metric", "bucket", "entity", "count", "total", "base")
_REST = ("real", "low", "high", "last", "last_at", "slots", "sums")
_ORDER = [("metric", "ascending"), ("bucket", "ascending"), ("entity", "ascending")]


def split_facts(facts: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of *facts* by the columns they use, with the name of their statement.

    Most rows have whole sums only; the others have slots too, or anything.
    """
    facts = _conform(facts, _WIDE)
    full = _is_full(facts)
    slotted = pc.and_not(pc.is_valid(facts["slots"]), full)
    plain = pc.and_not(pc.is_null(facts["slots"]), full)
    for statement, mask, columns in (
        ("merge_plain", plain, _PLAIN),
        ("merge_slots", slotted, (*_PLAIN, "slots")),
        ("merge_full", full, (*_PLAIN, *_REST)),
    ):
        rows = facts.select(columns).filter(mask)
        if rows.num_rows:
            if statement == "merge_full":
                rows = _without_nan(rows)
            # Neighbours in the key lie on the same page.
            rows = rows.sort_by(_ORDER)
            _refuse_doubles(rows)
            yield statement, rows


def _is_full(facts: pa.Table) -> pa.ChunkedArray:
    mask = pc.fill_null(pc.not_equal(facts["real"], 0.0), fill_value=False)
    for name in ("low", "high", "last", "last_at", "sums"):
        if facts[name].null_count < facts.num_rows:
            mask = pc.or_(mask, pc.is_valid(facts[name]))
    return mask


def is_newer(rows: pa.Table, newest: Sequence[tuple[int, int | None]]) -> pa.ChunkedArray:
    """Say of each row whether its bucket lies after all kept buckets of its metric.

    *newest* are the metrics and the newest bucket of each.
    """
    metrics = pa.array((metric for metric, _ in newest), pa.int64())
    buckets = pa.array((bucket for _, bucket in newest), pa.int32())
    known = buckets.take(pc.index_in(rows["metric"], value_set=metrics).combine_chunks())
    return pc.fill_null(pc.greater(rows["bucket"], known), fill_value=True)


def _refuse_doubles(rows: pa.Table) -> None:
    """Raise if two neighbours have the same key: databases differ in what becomes of them."""
    if pc.any(_is_as_next(rows, ["metric", "bucket", "entity"])).as_py():
        raise StoreError(
            "facts: two rows have the same metric, entity and bucket: combine them first"
        )


def _is_as_next(rows: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """Say of each row of a sorted table whether the next one has the same key."""
    rows = rows.select(key)
    own, following = rows.slice(0, max(rows.num_rows - 1, 0)), rows.slice(1)
    same = reduce(pc.and_, (pc.equal(own[name], following[name]) for name in key))
    last = [False] if rows.num_rows else []
    return pa.chunked_array([*same.chunks, pa.array(last, pa.bool_())], pa.bool_())


def _without_nan(facts: pa.Table) -> pa.Table:
    """Make extremes and last values null that are not a number: nothing compares with them."""
    for name in ("low", "high", "last"):
        column = facts[name]
        number = pc.if_else(pc.is_nan(column), None, column)
        facts = _replaced(facts, name, number)
    is_last = pc.and_(pc.is_valid(facts["last"]), pc.is_valid(facts["last_at"]))
    for name in ("last", "last_at"):
        facts = _replaced(facts, name, pc.if_else(is_last, facts[name], None))
    return facts


def entity_rows(entities: pa.Table) -> pa.Table:
    """Return entity, scope, parts as JSON, and the name for people."""
    entities = _conform(entities, ENTITIES)
    parts = entities["parts"].to_pylist()
    return pa.table(
        {
            "entity": entities["entity"],
            "scope": entities["scope"],
            "parts": pa.array((as_json(part) for part in parts), pa.string()),
            "name": pa.array((_BETWEEN_PARTS.join(part) for part in parts), pa.string()),
        }
    )


def meter_rows(meters: pa.Table) -> pa.Table:
    """Return meters as rows of the catalogue."""
    meters = _conform(meters, METERS)
    return pa.table(
        {
            "metric": meters["metric"],
            "name": meters["name"],
            "scope": pa.array([METER] * meters.num_rows, pa.string()),
            "function": meters["function"],
            "definition": pa.array([""] * meters.num_rows, pa.string()),
            "unit": pc.fill_null(meters["unit"], ""),
        }
    )


def topn_rows(topn: pa.Table) -> pa.Table:
    """Return slow statements, key first."""
    columns = ("kind", "entity", "bucket", "trace_id", "span_id")
    return _conform(topn, TOPN).select([*columns, "latency", "started_ns", "statement"])


def reading_rows(readings: pa.Table) -> pa.Table:
    """Return readings sorted, of two at the same time the larger; only those that are numbers."""
    readings = _conform(readings, READINGS)
    readings = readings.filter(pc.invert(pc.is_nan(readings["value"])))
    columns = ["metric", "entity", "slot", "time_ns", "value", "start_ns"]
    readings = readings.sort_by([(name, "ascending") for name in columns])
    is_outdone = _is_as_next(readings, columns[:4])
    return readings.filter(pc.invert(is_outdone))


def as_json(value: object) -> str:
    """Return *value* as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def with_kept(rows: pa.Table, kept: Sequence[Row]) -> pa.Table:
    """Return *rows* with the slots and sums added that the store has for them.

    *kept* are the numbers of rows, from 0, and the slots and sums under their keys.
    """
    for column, name in enumerate(("slots", "sums"), start=1):
        if name in rows.column_names:
            texts = rows[name].to_pylist()
            both = [row for row in kept if row[column] is not None and texts[row[0]] is not None]
            ones, others = [row[column] for row in both], [texts[row[0]] for row in both]
            for row, text in zip(both, add_objects(ones, others), strict=True):
                texts[row[0]] = text
            rows = _replaced(rows, name, pa.array(texts, pa.string()))
    return rows


def add_objects(ones: Sequence[str], others: Sequence[str]) -> list[str]:
    """Add JSON objects up pair by pair, key by key; decoded all at once, which is faster."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    added = []
    for one, other in zip(_decoded(ones), _decoded(others), strict=True):
        known = one.get
        for key, value in other.items():
            one[key] = known(key, 0) + value
        added.append(encode(one))
    return added


def _decoded(objects: Sequence[str]) -> list[dict[str, float]]:
    decoded: list[dict[str, float]] = json.loads(f"[{','.join(objects)}]")
    return decoded


def as_csv(table: pa.Table) -> memoryview:
    """Return *table* as CSV: texts in quotes, null is nothing; no text has the character NUL."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            text = pc.replace_substring(table.column(index), "\0", "\ufffd")
            table = table.set_column(index, field, text)
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(table, buffer, pyarrow.csv.WriteOptions(include_header=False))
    return buffer.getbuffer()


def _replaced(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)
