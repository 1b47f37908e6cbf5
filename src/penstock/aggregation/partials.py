"""What L1 hands on: tables of partial states, and how such tables add up.

Facts and slots are keyed by (metric, entity, bucket); every other column is one part of a
:class:`penstock.metrics.functions.State`. Tables of any two batches, tasks or granularities
combine in any order with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import pyarrow as pa

__all__ = [
    "COUNTS",
    "ENTITIES",
    "FACTS",
    "FILES",
    "KEY",
    "METERS",
    "READINGS",
    "SLOTS",
    "TOPN",
    "Partials",
    "combine_facts",
    "combine_slots",
]

KEY = ("metric", "entity", "bucket")

# bucket: whole minutes (hours, days) since 1970 UTC.
FACTS = pa.schema(
    [
        ("metric", pa.int64()),
        ("entity", pa.int64()),
        ("bucket", pa.int32()),
        ("count", pa.int64()),
        ("total", pa.int64()),
        ("base", pa.int64()),
        ("real", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("last", pa.float64()),
        ("last_at", pa.int64()),
    ]
)

SLOTS = pa.schema(
    [
        ("metric", pa.int64()),
        ("entity", pa.int64()),
        ("bucket", pa.int32()),
        ("slot", pa.string()),
        ("count", pa.int64()),
        ("real", pa.float64()),  # labelAvg's sum; 0 elsewhere
    ]
)

ENTITIES = pa.schema(
    [
        ("entity", pa.int64()),  # stable_id(scope, *parts)
        ("scope", pa.string()),
        ("parts", pa.list_(pa.string())),
    ]
)

# Metrics that were not defined by rules but arrived as metric points.
METERS = pa.schema(
    [
        ("metric", pa.int64()),  # stable_id("metric", name)
        ("name", pa.string()),
        ("function", pa.string()),  # gauge, counter or distribution
        ("unit", pa.string()),
    ]
)

TOPN = pa.schema(
    [
        ("kind", pa.string()),
        ("entity", pa.int64()),
        ("bucket", pa.int32()),  # minutes
        ("latency", pa.int64()),  # milliseconds
        ("span_id", pa.string()),  # hexadecimal, as trace_id
        ("trace_id", pa.string()),
        ("started_ns", pa.int64()),
        ("statement", pa.string()),
    ]
)

# Points of cumulative series, which become deltas where all points of the series are known.
# A histogram is one series per bound ("le" of Prometheus), and its count and sum.
READINGS = pa.schema(
    [
        ("metric", pa.int64()),
        ("entity", pa.int64()),
        ("slot", pa.string()),  # "" for a sum; "count", "sum" or the upper bound for a histogram
        ("time_ns", pa.int64()),
        ("start_ns", pa.int64()),  # 0 where the sender does not say
        ("value", pa.float64()),
    ]
)

FILES = pa.schema(
    [
        ("name", pa.string()),  # below the landing folder: "spans/7f3a.parquet"
        ("rows", pa.int64()),
        ("newest_ns", pa.int64()),  # the newest event in it; null when there is none
        ("error", pa.string()),  # why the file was set aside; null when it was read
    ]
)

COUNTS = pa.schema([("cause", pa.string()), ("rows", pa.int64())])  # rows left out, by cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Partials:
    """All that L1 makes of some telemetry."""

    facts: pa.Table
    slots: pa.Table
    entities: pa.Table
    meters: pa.Table
    topn: pa.Table
    readings: pa.Table
    counts: pa.Table

    @staticmethod
    def concatenated(parts: list[Partials]) -> Partials:
        """Return several partials as one; rows with the same key are added up."""
        tables = {
            field.name: pa.concat_tables([getattr(part, field.name) for part in parts])
            for field in fields(Partials)
        }
        tables["facts"] = combine_facts(tables["facts"])
        tables["slots"] = combine_slots(tables["slots"])
        tables["entities"] = _first_of_each(tables["entities"], "entity")
        tables["meters"] = _first_of_each(tables["meters"], "metric")
        return Partials(**tables)

    def to_bytes(self) -> list[bytes]:
        """Return each table as an Arrow stream, in the order of the fields."""
        return [_to_stream(getattr(self, field.name)) for field in fields(Partials)]

    @staticmethod
    def from_bytes(streams: list[bytes]) -> Partials:
        """Return what :meth:`to_bytes` was called on."""
        names = [field.name for field in fields(Partials)]
        tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
        return Partials(**dict(zip(names, tables, strict=True)))


def combine_facts(facts: pa.Table) -> pa.Table:
    """Add up facts with the same key."""
    sums = [(name, "sum") for name in ("count", "total", "base", "real")]
    extremes = [("low", "min"), ("high", "max")]
    combined = facts.group_by(list(KEY)).aggregate([*sums, *extremes])
    names = [*KEY, *(name for name, _ in (*sums, *extremes))]
    combined = combined.rename_columns(names)
    newest = _newest(facts)
    if newest.num_rows:
        combined = combined.join(newest, list(KEY), join_type="left outer")
    else:
        nothing = pa.nulls(combined.num_rows)
        combined = combined.append_column("last", nothing).append_column("last_at", nothing)
    return combined.select(FACTS.names).cast(FACTS)


def _newest(facts: pa.Table) -> pa.Table:
    """Return key, last and last_at of the facts that have a last value: the newest per key."""
    dated = facts.filter(facts["last_at"].is_valid()).select([*KEY, "last", "last_at"])
    # Of two values at the same time the larger one stands.
    ordered = dated.sort_by([("last_at", "ascending"), ("last", "ascending")])
    newest = ordered.group_by(list(KEY), use_threads=False).aggregate(
        [("last", "last"), ("last_at", "last")]
    )
    return newest.rename_columns([*KEY, "last", "last_at"])


def combine_slots(slots: pa.Table) -> pa.Table:
    """Add up slots with the same key and name."""
    combined = slots.group_by([*KEY, "slot"]).aggregate([("count", "sum"), ("real", "sum")])
    return combined.rename_columns(SLOTS.names).select(SLOTS.names).cast(SLOTS)


def _first_of_each(table: pa.Table, key: str) -> pa.Table:
    position = pa.array(range(table.num_rows), pa.int64())
    numbered = table.select([key]).append_column("position", position)
    first = numbered.group_by(key).aggregate([("position", "min")])
    return table.take(first["position_min"])


def _to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
