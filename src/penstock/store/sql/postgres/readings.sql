-- From readings of cumulative series to what each minute adds. Every reading keeps its own delta,
-- so a batch only looks at the readings it brings and at the ones before and after each of them.

-- name: stage_reading
-- One row for each time of a series, sorted.
CREATE TEMP TABLE IF NOT EXISTS stage_reading (
    metric BIGINT, entity BIGINT, slot TEXT COLLATE "C", time_ns BIGINT,
    start_ns BIGINT, value DOUBLE PRECISION
) ON COMMIT DROP;

-- name: stage_change
CREATE TEMP TABLE IF NOT EXISTS stage_change (
    metric BIGINT, entity BIGINT, slot TEXT COLLATE "C", time_ns BIGINT,
    start_ns BIGINT, value DOUBLE PRECISION,
    before DOUBLE PRECISION, delta DOUBLE PRECISION, follows BOOLEAN
) ON COMMIT DROP;

-- name: readings_compare
-- Where the readings before the oldest one have expired (it follows one, but none is there), what
-- comes before it cannot be told any more: the increase stays where it was counted.
INSERT INTO stage_change
    (metric, entity, slot, time_ns, start_ns, value, before, delta, follows)
WITH met AS MATERIALIZED (
    SELECT
        own.metric, own.entity, own.slot, own.time_ns, own.start_ns, own.value,
        same.start_ns AS same_start_ns, same.value AS same_value, same.delta AS same_delta,
        earlier.time_ns AS earlier_ns, earlier.start_ns AS earlier_start_ns,
        earlier.value AS earlier_value,
        later.time_ns AS later_ns, later.start_ns AS later_start_ns,
        later.value AS later_value, later.delta AS later_delta
    FROM stage_reading AS own
    LEFT JOIN reading AS same USING (metric, entity, slot, time_ns)
    LEFT JOIN LATERAL (
        SELECT time_ns, start_ns, value
        FROM reading AS kept
        WHERE kept.metric = own.metric AND kept.entity = own.entity AND kept.slot = own.slot
            AND kept.time_ns < own.time_ns
        ORDER BY kept.time_ns DESC
        LIMIT 1
    ) AS earlier ON true
    LEFT JOIN LATERAL (
        SELECT time_ns, start_ns, value, delta, follows
        FROM reading AS kept
        WHERE kept.metric = own.metric AND kept.entity = own.entity AND kept.slot = own.slot
            AND kept.time_ns > own.time_ns
        ORDER BY kept.time_ns
        LIMIT 1
    ) AS later ON true
    WHERE earlier.time_ns IS NOT NULL OR NOT coalesce(same.follows, later.follows, false)
),
-- The readings of the batch (of two at one time the larger), those after them, those before them.
line AS (
    SELECT
        0 AS role, metric, entity, slot, time_ns,
        CASE WHEN (same_value, same_start_ns) > (value, start_ns)
            THEN same_start_ns ELSE start_ns
        END AS start_ns,
        greatest(same_value, value) AS value,
        coalesce(same_delta, 0.0) AS before
    FROM met
    UNION ALL
    SELECT 1, metric, entity, slot, later_ns, later_start_ns, later_value, later_delta
    FROM met WHERE later_ns IS NOT NULL
    UNION ALL
    SELECT 2, metric, entity, slot, earlier_ns, earlier_start_ns, earlier_value, 0.0
    FROM met WHERE earlier_ns IS NOT NULL
),
single AS (
    SELECT DISTINCT ON (metric, entity, slot, time_ns) *
    FROM line
    ORDER BY metric, entity, slot, time_ns, role
),
ordered AS (
    SELECT
        *,
        lag(time_ns) OVER series AS earlier_ns,
        lag(start_ns) OVER series AS earlier_start_ns,
        lag(value) OVER series AS earlier_value
    FROM single
    WINDOW series AS (PARTITION BY metric, entity, slot ORDER BY time_ns)
)
SELECT
    metric, entity, slot, time_ns, start_ns, value, before,
    CASE
        WHEN earlier_ns IS NULL THEN
            CASE
                WHEN start_ns <> 0 AND time_ns - start_ns <= %(fresh_ns)s THEN value
                ELSE 0.0
            END
        WHEN value < earlier_value THEN value
        WHEN start_ns <> earlier_start_ns AND start_ns <> 0 AND earlier_start_ns <> 0 THEN value
        ELSE value - earlier_value
    END,
    earlier_ns IS NOT NULL
FROM ordered
WHERE role < 2;

-- name: readings_write
INSERT INTO reading (metric, entity, slot, time_ns, start_ns, value, delta, follows)
SELECT metric, entity, slot, time_ns, start_ns, value, delta, follows FROM stage_change
ON CONFLICT (metric, entity, slot, time_ns) DO UPDATE SET
    start_ns = excluded.start_ns,
    value = excluded.value,
    delta = excluded.delta,
    follows = excluded.follows;

-- name: readings_changes
SELECT
    metric, entity, (time_ns / 60000000000)::INTEGER AS bucket, slot, sum(delta - before) AS delta
FROM stage_change
GROUP BY metric, entity, bucket, slot
ORDER BY metric, entity, bucket, slot;
