"""Tables that go into a store: what the aggregation hands over, column by column.

Facts and slots are keyed by (metric, entity, bucket); every other column is one part of a
:class:`penstock.metrics.functions.State`.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = [
    "COUNTS",
    "ENTITIES",
    "FACTS",
    "FILES",
    "KEY",
    "METERS",
    "METER_ROWS",
    "READINGS",
    "SLOTS",
    "TOPN",
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

# Metrics that were not defined by rules but arrived as metric points. Before they are admitted,
# points of one name may be of several functions, each under an id of its own (meter_id).
METERS = pa.schema(
    [
        ("metric", pa.int64()),  # in the store stable_id("metric", name)
        ("name", pa.string()),
        ("function", pa.string()),  # gauge, counter or distribution
        ("unit", pa.string()),
    ]
)

METER_ROWS = pa.schema([("metric", pa.int64()), ("rows", pa.int64())])  # points by meter

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
