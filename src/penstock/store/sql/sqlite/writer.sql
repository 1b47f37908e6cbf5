-- The lease, the job, the catalogue and the ledger.

-- name: lease_take
UPDATE lease SET holder = :holder, expires_at = :expires_at
WHERE holder IS NULL OR holder = :holder OR expires_at <= :now;

-- name: lease_renew
UPDATE lease SET expires_at = :expires_at WHERE holder = :holder;

-- name: lease_release
UPDATE lease SET holder = NULL, expires_at = 0.0 WHERE holder = :holder;

-- name: lease_lock
-- BEGIN IMMEDIATE has locked the whole file already.
SELECT holder, expires_at FROM lease;

-- name: job_get
SELECT job FROM job;

-- name: job_set
INSERT INTO job (id, job) VALUES (1, :job) ON CONFLICT (id) DO UPDATE SET job = excluded.job;

-- name: metrics
SELECT metric, name, scope, function, definition, unit FROM metric;

-- name: metric_set
INSERT INTO metric (metric, name, scope, function, definition, unit)
VALUES (:metric, :name, :scope, :function, :definition, :unit)
ON CONFLICT (metric) DO UPDATE SET
    name = excluded.name,
    scope = excluded.scope,
    function = excluded.function,
    definition = excluded.definition,
    unit = excluded.unit;

-- name: values_delete
DELETE FROM metric_{granularity} WHERE metric = :metric;

-- name: stage_metric
CREATE TEMP TABLE IF NOT EXISTS stage_metric (
    metric INTEGER, name TEXT, scope TEXT, function TEXT, definition TEXT, unit TEXT
);

-- name: metrics_add
INSERT INTO metric (metric, name, scope, function, definition, unit)
SELECT metric, name, scope, function, definition, unit FROM stage_metric WHERE true
ON CONFLICT DO NOTHING;

-- name: stage_entity
CREATE TEMP TABLE IF NOT EXISTS stage_entity (
    entity INTEGER, scope TEXT, parts TEXT, name TEXT
);

-- name: entities_add
INSERT INTO entity (entity, scope, parts, name)
SELECT entity, scope, parts, name FROM stage_entity WHERE true
ON CONFLICT DO NOTHING;

-- name: entity_ids
SELECT entity FROM entity WHERE scope = :scope;

-- name: ledger_get
SELECT committed_at, files FROM ledger WHERE checkpoint = :checkpoint AND batch = :batch;

-- name: ledger_add
INSERT INTO ledger (checkpoint, batch, committed_at, files)
VALUES (:checkpoint, :batch, :committed_at, :files)
ON CONFLICT DO NOTHING;

-- name: files_known
SELECT name FROM landed_file WHERE name IN (SELECT value FROM json_each(:names));

-- name: files_add
INSERT INTO landed_file (name, checkpoint, batch, at)
SELECT value, :checkpoint, :batch, :at FROM json_each(:names);
