-- Reading, and retention.

-- name: entities
SELECT entity, parts FROM entity WHERE scope = :scope;

-- name: entities_ranked
SELECT entity, parts FROM entity
WHERE entity IN (SELECT entity FROM topn WHERE kind = :kind);

-- name: series
-- Newest first, so that the limit ends the walk along the key.
SELECT
    entity.parts, own.bucket, own.count, own.total, own.base, own.real,
    own.low, own.high, own.last, own.last_at, own.slots, own.sums
FROM metric_{granularity} AS own
CROSS JOIN entity USING (entity)
WHERE own.metric = :metric AND own.bucket >= :since AND own.bucket < :until
ORDER BY own.bucket DESC, own.entity DESC
LIMIT :limit;

-- name: series_of
SELECT
    entity.parts, own.bucket, own.count, own.total, own.base, own.real,
    own.low, own.high, own.last, own.last_at, own.slots, own.sums
FROM metric_{granularity} AS own
CROSS JOIN entity USING (entity)
WHERE own.metric = :metric AND own.bucket >= :since AND own.bucket < :until
    AND own.entity IN (SELECT value FROM json_each(:entities))
ORDER BY own.bucket DESC, own.entity DESC
LIMIT :limit;

-- name: top
SELECT
    entity.parts, topn.bucket, topn.latency, topn.statement,
    topn.trace_id, topn.span_id, topn.started_ns
FROM topn
JOIN entity USING (entity)
WHERE topn.kind = :kind AND topn.bucket >= :since AND topn.bucket < :until
ORDER BY topn.latency DESC, topn.span_id, topn.trace_id, topn.bucket
LIMIT :limit;

-- name: top_of
SELECT
    entity.parts, topn.bucket, topn.latency, topn.statement,
    topn.trace_id, topn.span_id, topn.started_ns
FROM topn
JOIN entity USING (entity)
WHERE topn.kind = :kind AND topn.bucket >= :since AND topn.bucket < :until
    AND topn.entity IN (SELECT value FROM json_each(:entities))
ORDER BY topn.latency DESC, topn.span_id, topn.trace_id, topn.bucket
LIMIT :limit;

-- name: oldest_value
SELECT min(bucket) FROM metric_{granularity} WHERE metric = :metric;

-- name: expire_values
DELETE FROM metric_{granularity} WHERE metric = :metric AND bucket < :before;

-- name: oldest_topn
SELECT min(bucket) FROM topn;

-- name: expire_topn
DELETE FROM topn WHERE bucket < :before;

-- name: oldest_reading
SELECT min(time_ns) FROM reading;

-- name: expire_reading
DELETE FROM reading WHERE time_ns < :before;

-- name: expire_ledger
-- A killed job repeats its last batch whenever it is started again, be it months later.
DELETE FROM ledger
WHERE committed_at < :before AND batch < (
    SELECT max(newest.batch) FROM ledger AS newest WHERE newest.checkpoint = ledger.checkpoint
);

-- name: expire_landed_file
DELETE FROM landed_file
WHERE at < :before AND NOT EXISTS (
    SELECT 1 FROM ledger
    WHERE ledger.checkpoint = landed_file.checkpoint AND ledger.batch = landed_file.batch
);
