-- From readings of cumulative series to what each minute adds. Every reading keeps its own delta,
-- so a batch only looks at the readings it brings and at the one after each of them.

-- name: stage_reading
CREATE TEMP TABLE IF NOT EXISTS stage_reading (
    metric BIGINT, entity BIGINT, slot TEXT COLLATE "C", time_ns BIGINT,
    start_ns BIGINT, value DOUBLE PRECISION
) ON COMMIT DROP;

-- name: stage_change
CREATE TEMP TABLE IF NOT EXISTS stage_change (
    metric BIGINT, entity BIGINT, slot TEXT COLLATE "C", time_ns BIGINT,
    before DOUBLE PRECISION, delta DOUBLE PRECISION, follows BOOLEAN
) ON COMMIT DROP;

-- name: readings_forget
-- Before the oldest reading there were others, which have expired: what lies between cannot be
-- told any more. The increase stays where it was counted.
DELETE FROM stage_reading
WHERE time_ns <= (
    SELECT CASE WHEN oldest.follows THEN oldest.time_ns END
    FROM reading AS oldest
    WHERE oldest.metric = stage_reading.metric
        AND oldest.entity = stage_reading.entity
        AND oldest.slot = stage_reading.slot
    ORDER BY oldest.time_ns
    LIMIT 1
);

-- name: readings_add
INSERT INTO reading AS kept
    (metric, entity, slot, time_ns, start_ns, value, delta, follows)
SELECT DISTINCT ON (metric, entity, slot, time_ns)
    metric, entity, slot, time_ns, start_ns, value, 0.0, false
FROM stage_reading
ORDER BY metric, entity, slot, time_ns, value DESC, start_ns DESC
ON CONFLICT (metric, entity, slot, time_ns) DO UPDATE SET
    start_ns = excluded.start_ns,
    value = excluded.value
WHERE (excluded.value, excluded.start_ns) > (kept.value, kept.start_ns);

-- name: readings_compare
INSERT INTO stage_change (metric, entity, slot, time_ns, before, delta, follows)
WITH affected AS (
    SELECT metric, entity, slot, time_ns FROM stage_reading
    UNION
    SELECT metric, entity, slot, (
        SELECT min(later.time_ns)
        FROM reading AS later
        WHERE later.metric = stage_reading.metric
            AND later.entity = stage_reading.entity
            AND later.slot = stage_reading.slot
            AND later.time_ns > stage_reading.time_ns
    )
    FROM stage_reading
)
SELECT
    own.metric, own.entity, own.slot, own.time_ns, own.delta,
    CASE
        WHEN earlier.time_ns IS NULL THEN
            CASE
                WHEN own.start_ns <> 0 AND own.time_ns - own.start_ns <= %(fresh_ns)s THEN own.value
                ELSE 0.0
            END
        WHEN own.value < earlier.value THEN own.value
        WHEN own.start_ns <> earlier.start_ns AND own.start_ns <> 0 AND earlier.start_ns <> 0
            THEN own.value
        ELSE own.value - earlier.value
    END,
    earlier.time_ns IS NOT NULL
FROM affected
JOIN reading AS own USING (metric, entity, slot, time_ns)
LEFT JOIN LATERAL (
    SELECT nearest.time_ns, nearest.start_ns, nearest.value
    FROM reading AS nearest
    WHERE nearest.metric = own.metric
        AND nearest.entity = own.entity
        AND nearest.slot = own.slot
        AND nearest.time_ns < own.time_ns
    ORDER BY nearest.time_ns DESC
    LIMIT 1
) AS earlier ON true;

-- name: readings_update
UPDATE reading SET delta = stage_change.delta, follows = stage_change.follows
FROM stage_change
WHERE reading.metric = stage_change.metric
    AND reading.entity = stage_change.entity
    AND reading.slot = stage_change.slot
    AND reading.time_ns = stage_change.time_ns;

-- name: readings_changes
SELECT
    metric, entity, (time_ns / 60000000000)::INTEGER AS bucket, slot, sum(delta - before) AS delta
FROM stage_change
GROUP BY metric, entity, bucket, slot
ORDER BY metric, entity, bucket, slot;
