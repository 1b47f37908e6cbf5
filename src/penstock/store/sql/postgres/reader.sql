-- Reading, and retention.

-- name: entities
SELECT entity, parts::TEXT FROM entity WHERE scope = %(scope)s;

-- name: entities_ranked
SELECT entity, parts::TEXT FROM entity
WHERE entity IN (SELECT entity FROM topn WHERE kind = %(kind)s);

-- name: series
-- Newest first, so that the limit ends the walk along the key.
SELECT
    entity.parts::TEXT, own.bucket, own.count, own.total, own.base, own.real,
    own.low, own.high, own.last, own.last_at, own.slots::TEXT, own.sums::TEXT
FROM metric_{granularity} AS own
JOIN entity USING (entity)
WHERE own.metric = %(metric)s AND own.bucket >= %(since)s AND own.bucket < %(until)s
ORDER BY own.bucket DESC, own.entity DESC
LIMIT %(limit)s;

-- name: series_of
SELECT
    entity.parts::TEXT, own.bucket, own.count, own.total, own.base, own.real,
    own.low, own.high, own.last, own.last_at, own.slots::TEXT, own.sums::TEXT
FROM metric_{granularity} AS own
JOIN entity USING (entity)
WHERE own.metric = %(metric)s AND own.bucket >= %(since)s AND own.bucket < %(until)s
    AND own.entity = ANY (%(entities)s::BIGINT[])
ORDER BY own.bucket DESC, own.entity DESC
LIMIT %(limit)s;

-- name: top
SELECT
    entity.parts::TEXT, topn.bucket, topn.latency, topn.statement,
    topn.trace_id, topn.span_id, topn.started_ns
FROM topn
JOIN entity USING (entity)
WHERE topn.kind = %(kind)s AND topn.bucket >= %(since)s AND topn.bucket < %(until)s
ORDER BY topn.latency DESC, topn.span_id, topn.trace_id, topn.bucket
LIMIT %(limit)s;

-- name: top_of
SELECT
    entity.parts::TEXT, topn.bucket, topn.latency, topn.statement,
    topn.trace_id, topn.span_id, topn.started_ns
FROM topn
JOIN entity USING (entity)
WHERE topn.kind = %(kind)s AND topn.bucket >= %(since)s AND topn.bucket < %(until)s
    AND topn.entity = ANY (%(entities)s::BIGINT[])
ORDER BY topn.latency DESC, topn.span_id, topn.trace_id, topn.bucket
LIMIT %(limit)s;

-- name: oldest_value
SELECT min(bucket) FROM metric_{granularity} WHERE metric = %(metric)s;

-- name: expire_values
DELETE FROM metric_{granularity} WHERE metric = %(metric)s AND bucket < %(before)s;

-- name: oldest_topn
SELECT min(bucket) FROM topn;

-- name: expire_topn
DELETE FROM topn WHERE bucket < %(before)s;

-- name: oldest_reading
SELECT min(time_ns) FROM reading;

-- name: expire_reading
DELETE FROM reading WHERE time_ns < %(before)s;

-- name: expire_ledger
-- A killed job repeats its last batch whenever it is started again, be it months later.
DELETE FROM ledger
WHERE committed_at < %(before)s AND batch < (
    SELECT max(newest.batch) FROM ledger AS newest WHERE newest.checkpoint = ledger.checkpoint
);

-- name: expire_landed_file
DELETE FROM landed_file
WHERE at < %(before)s AND NOT EXISTS (
    SELECT 1 FROM ledger
    WHERE ledger.checkpoint = landed_file.checkpoint AND ledger.batch = landed_file.batch
);
