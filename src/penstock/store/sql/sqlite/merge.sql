-- Adding states up. Three statements of different width, as most rows use few of the columns and
-- each column that is bound costs as much as the look-up of the row. Slots and sums have been added
-- up with those that are kept already.

-- name: newest_buckets
SELECT value, (SELECT max(bucket) FROM metric_{granularity} WHERE metric = value)
FROM json_each(:metrics);

-- name: kept_slots
SELECT slots, sums FROM metric_{granularity}
WHERE metric = ? AND bucket = ? AND entity = ? AND (slots IS NOT NULL OR sums IS NOT NULL);

-- name: merge_plain
INSERT INTO metric_{granularity} AS kept (metric, bucket, entity, count, total, base)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (metric, bucket, entity) DO UPDATE SET
    count = kept.count + excluded.count,
    total = kept.total + excluded.total,
    base = kept.base + excluded.base;

-- name: merge_slots
INSERT INTO metric_{granularity} AS kept (metric, bucket, entity, count, total, base, slots)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (metric, bucket, entity) DO UPDATE SET
    count = kept.count + excluded.count,
    total = kept.total + excluded.total,
    base = kept.base + excluded.base,
    slots = excluded.slots;

-- name: merge_full
-- min and max of two values are null if one of them is; coalesce then takes the other one.
INSERT INTO metric_{granularity} AS kept
    (metric, bucket, entity, count, total, base, real, low, high, last, last_at, slots, sums)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (metric, bucket, entity) DO UPDATE SET
    count = kept.count + excluded.count,
    total = kept.total + excluded.total,
    base = kept.base + excluded.base,
    real = kept.real + excluded.real,
    low = coalesce(min(kept.low, excluded.low), kept.low, excluded.low),
    high = coalesce(max(kept.high, excluded.high), kept.high, excluded.high),
    last = CASE
        WHEN kept.last_at IS NULL THEN excluded.last
        WHEN (excluded.last_at, excluded.last) > (kept.last_at, kept.last) THEN excluded.last
        ELSE kept.last
    END,
    last_at = CASE
        WHEN kept.last_at IS NULL THEN excluded.last_at
        ELSE coalesce(max(kept.last_at, excluded.last_at), kept.last_at)
    END,
    slots = coalesce(excluded.slots, kept.slots),
    sums = coalesce(excluded.sums, kept.sums);

-- name: stage_topn
CREATE TEMP TABLE IF NOT EXISTS stage_topn (
    kind TEXT, entity INTEGER, bucket INTEGER, trace_id TEXT, span_id TEXT,
    latency INTEGER, started_ns INTEGER, statement TEXT
);

-- name: rank_add
-- The same span again says the same; should it not, the larger row stands in any order.
INSERT INTO topn AS kept
    (kind, entity, bucket, trace_id, span_id, latency, started_ns, statement)
SELECT kind, entity, bucket, trace_id, span_id, latency, started_ns, statement
FROM stage_topn WHERE true
ON CONFLICT (kind, entity, bucket, trace_id, span_id) DO UPDATE SET
    latency = excluded.latency,
    started_ns = excluded.started_ns,
    statement = excluded.statement
WHERE (excluded.latency, excluded.started_ns, excluded.statement)
    > (kept.latency, kept.started_ns, kept.statement);

-- name: rank_trim
DELETE FROM topn
WHERE rowid IN (
    SELECT row FROM (
        SELECT
            topn.rowid AS row,
            row_number() OVER (
                PARTITION BY kind, entity, bucket ORDER BY latency DESC, span_id, trace_id
            ) AS place
        FROM (SELECT DISTINCT kind, entity, bucket FROM stage_topn)
        CROSS JOIN topn USING (kind, entity, bucket)
    )
    WHERE place > :size
);
