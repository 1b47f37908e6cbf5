-- The lease, the job, the catalogue and the ledger.

-- name: begin_writing
-- Everything a batch does is a walk from a few new rows to their counterparts by key, whatever the
-- planner guesses of tables that have just been created. A commit must be on the disk when it
-- returns; a server that says more than that (remote_apply) is left alone.
SELECT
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('enable_seqscan', 'off', true),
    set_config('jit', 'off', true),
    CASE WHEN current_setting('synchronous_commit') = 'off'
        THEN set_config('synchronous_commit', 'on', true)
    END;

-- name: lease_take
UPDATE lease SET holder = %(holder)s, expires_at = %(expires_at)s
WHERE holder IS NULL OR holder = %(holder)s OR expires_at <= %(now)s;

-- name: lease_renew
UPDATE lease SET expires_at = %(expires_at)s WHERE holder = %(holder)s;

-- name: lease_release
UPDATE lease SET holder = NULL, expires_at = 0.0 WHERE holder = %(holder)s;

-- name: lease_lock
-- Until the transaction ends, nobody else takes the lease or merges.
SELECT holder, expires_at FROM lease FOR UPDATE;

-- name: job_get
SELECT job FROM job;

-- name: job_set
INSERT INTO job (id, job) VALUES (1, %(job)s) ON CONFLICT (id) DO UPDATE SET job = excluded.job;

-- name: metrics
SELECT metric, name, scope, function, definition, unit FROM metric;

-- name: metric_set
INSERT INTO metric (metric, name, scope, function, definition, unit)
VALUES (%(metric)s, %(name)s, %(scope)s, %(function)s, %(definition)s, %(unit)s)
ON CONFLICT (metric) DO UPDATE SET
    name = excluded.name,
    scope = excluded.scope,
    function = excluded.function,
    definition = excluded.definition,
    unit = excluded.unit;

-- name: values_delete
DELETE FROM metric_{granularity} WHERE metric = %(metric)s;

-- name: stage_metric
CREATE TEMP TABLE IF NOT EXISTS stage_metric (
    metric BIGINT, name TEXT, scope TEXT, function TEXT, definition TEXT, unit TEXT
) ON COMMIT DROP;

-- name: metrics_add
INSERT INTO metric (metric, name, scope, function, definition, unit)
SELECT metric, name, scope, function, definition, unit FROM stage_metric
ON CONFLICT DO NOTHING;

-- name: stage_entity
CREATE TEMP TABLE IF NOT EXISTS stage_entity (
    entity BIGINT, scope TEXT, parts TEXT, name TEXT
) ON COMMIT DROP;

-- name: entities_add
INSERT INTO entity (entity, scope, parts, name)
SELECT entity, scope, parts::JSON, name FROM stage_entity
ON CONFLICT DO NOTHING;

-- name: entity_ids
SELECT entity FROM entity WHERE scope = %(scope)s;

-- name: ledger_get
SELECT committed_at, files::TEXT FROM ledger
WHERE checkpoint = %(checkpoint)s AND batch = %(batch)s;

-- name: ledger_add
INSERT INTO ledger (checkpoint, batch, committed_at, files)
VALUES (%(checkpoint)s, %(batch)s, %(committed_at)s, %(files)s::JSON)
ON CONFLICT DO NOTHING;

-- name: files_known
SELECT name FROM landed_file WHERE name = ANY (%(names)s::TEXT[]);

-- name: files_add
INSERT INTO landed_file (name, checkpoint, batch, at)
SELECT name, %(checkpoint)s, %(batch)s, %(at)s FROM unnest(%(names)s::TEXT[]) AS name;
