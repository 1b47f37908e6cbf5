-- Adding states up. Rows that are certainly new are copied into the tables; the others are copied
-- into a temporary table and merged from there, with slots and sums that are added up already.

-- name: newest_buckets
SELECT metric, (SELECT max(bucket) FROM metric_{granularity} AS kept WHERE kept.metric = own.metric)
FROM unnest(%(metrics)s::BIGINT[]) AS own (metric);

-- name: kept_slots
SELECT own.place, kept.slots::TEXT, kept.sums::TEXT
FROM unnest(%(metrics)s::BIGINT[], %(buckets)s::INTEGER[], %(entities)s::BIGINT[])
    WITH ORDINALITY AS own (metric, bucket, entity, place)
JOIN metric_{granularity} AS kept
    ON kept.metric = own.metric AND kept.bucket = own.bucket AND kept.entity = own.entity
WHERE kept.slots IS NOT NULL OR kept.sums IS NOT NULL;

-- name: stage_plain
CREATE TEMP TABLE IF NOT EXISTS stage_plain (
    metric BIGINT, bucket INTEGER, entity BIGINT, count BIGINT, total BIGINT, base BIGINT
) ON COMMIT DROP;

-- name: merge_plain
INSERT INTO metric_{granularity} AS kept (metric, bucket, entity, count, total, base)
SELECT metric, bucket, entity, count, total, base FROM stage_plain
ON CONFLICT (metric, bucket, entity) DO UPDATE SET
    count = kept.count + excluded.count,
    total = kept.total + excluded.total,
    base = kept.base + excluded.base;

-- name: stage_slots
CREATE TEMP TABLE IF NOT EXISTS stage_slots (
    metric BIGINT, bucket INTEGER, entity BIGINT, count BIGINT, total BIGINT, base BIGINT,
    slots TEXT
) ON COMMIT DROP;

-- name: merge_slots
INSERT INTO metric_{granularity} AS kept (metric, bucket, entity, count, total, base, slots)
SELECT metric, bucket, entity, count, total, base, slots::JSON FROM stage_slots
ON CONFLICT (metric, bucket, entity) DO UPDATE SET
    count = kept.count + excluded.count,
    total = kept.total + excluded.total,
    base = kept.base + excluded.base,
    slots = excluded.slots;

-- name: stage_full
CREATE TEMP TABLE IF NOT EXISTS stage_full (
    metric BIGINT, bucket INTEGER, entity BIGINT, count BIGINT, total BIGINT, base BIGINT,
    real DOUBLE PRECISION, low DOUBLE PRECISION, high DOUBLE PRECISION,
    last DOUBLE PRECISION, last_at BIGINT, slots TEXT, sums TEXT
) ON COMMIT DROP;

-- name: merge_full
-- least and greatest leave nulls out.
INSERT INTO metric_{granularity} AS kept
    (metric, bucket, entity, count, total, base, real, low, high, last, last_at, slots, sums)
SELECT
    metric, bucket, entity, count, total, base, real, low, high, last, last_at,
    slots::JSON, sums::JSON
FROM stage_full
ON CONFLICT (metric, bucket, entity) DO UPDATE SET
    count = kept.count + excluded.count,
    total = kept.total + excluded.total,
    base = kept.base + excluded.base,
    real = kept.real + excluded.real,
    low = least(kept.low, excluded.low),
    high = greatest(kept.high, excluded.high),
    last = CASE
        WHEN kept.last_at IS NULL THEN excluded.last
        WHEN (excluded.last_at, excluded.last) > (kept.last_at, kept.last) THEN excluded.last
        ELSE kept.last
    END,
    last_at = greatest(kept.last_at, excluded.last_at),
    slots = coalesce(excluded.slots, kept.slots),
    sums = coalesce(excluded.sums, kept.sums);

-- name: stage_topn
CREATE TEMP TABLE IF NOT EXISTS stage_topn (
    kind TEXT COLLATE "C", entity BIGINT, bucket INTEGER,
    trace_id TEXT COLLATE "C", span_id TEXT COLLATE "C",
    latency BIGINT, started_ns BIGINT, statement TEXT COLLATE "C"
) ON COMMIT DROP;

-- name: rank_add
-- The same span again says the same; should it not, the larger row stands in any order.
INSERT INTO topn AS kept
    (kind, entity, bucket, trace_id, span_id, latency, started_ns, statement)
SELECT DISTINCT ON (kind, entity, bucket, trace_id, span_id)
    kind, entity, bucket, trace_id, span_id, latency, started_ns, statement
FROM stage_topn
ORDER BY
    kind, entity, bucket, trace_id, span_id, latency DESC, started_ns DESC, statement DESC
ON CONFLICT (kind, entity, bucket, trace_id, span_id) DO UPDATE SET
    latency = excluded.latency,
    started_ns = excluded.started_ns,
    statement = excluded.statement
WHERE (excluded.latency, excluded.started_ns, excluded.statement)
    > (kept.latency, kept.started_ns, kept.statement);

-- name: rank_trim
DELETE FROM topn
USING (
    SELECT
        kept.kind, kept.entity, kept.bucket, kept.trace_id, kept.span_id,
        row_number() OVER (
            PARTITION BY kept.kind, kept.entity, kept.bucket
            ORDER BY kept.latency DESC, kept.span_id, kept.trace_id
        ) AS place
    FROM (SELECT DISTINCT kind, entity, bucket FROM stage_topn) AS own
    JOIN topn AS kept USING (kind, entity, bucket)
) AS ranked
WHERE ranked.place > %(size)s
    AND topn.kind = ranked.kind
    AND topn.entity = ranked.entity
    AND topn.bucket = ranked.bucket
    AND topn.trace_id = ranked.trace_id
    AND topn.span_id = ranked.span_id;
