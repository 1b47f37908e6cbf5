-- Which migrations have been applied.
CREATE TABLE schema_version (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL
);

-- The catalogue. Ids are stable: the same name has the same id in every store.
CREATE TABLE metric (
    metric BIGINT NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    scope TEXT NOT NULL,
    function TEXT NOT NULL,
    definition TEXT NOT NULL,
    unit TEXT NOT NULL,
    -- As UNIQUE, for names of any length.
    CONSTRAINT metric_name EXCLUDE USING hash (name WITH =)
);

CREATE TABLE entity (
    entity BIGINT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    parts JSON NOT NULL, -- an array of texts
    name TEXT NOT NULL -- the parts, for people
);
CREATE INDEX entity_scope ON entity (scope);

-- States. The key begins with the metric and the bucket, for three reasons: what a batch adds
-- lies together, a metric's recent values are one range, and so is what retention deletes.
-- Most rows of the current hour and day change with every batch, so their pages have room for a
-- second version of each row: it then needs no new entry in the index.
CREATE TABLE metric_minute (
    metric BIGINT NOT NULL,
    bucket INTEGER NOT NULL,
    entity BIGINT NOT NULL,
    count BIGINT NOT NULL,
    total BIGINT NOT NULL,
    base BIGINT NOT NULL,
    real DOUBLE PRECISION NOT NULL DEFAULT 0.0,
    low DOUBLE PRECISION,
    high DOUBLE PRECISION,
    last DOUBLE PRECISION,
    last_at BIGINT,
    slots JSON, -- objects, as sums
    sums JSON,
    PRIMARY KEY (metric, bucket, entity)
) WITH (fillfactor = 70);

CREATE TABLE metric_hour (
    metric BIGINT NOT NULL,
    bucket INTEGER NOT NULL,
    entity BIGINT NOT NULL,
    count BIGINT NOT NULL,
    total BIGINT NOT NULL,
    base BIGINT NOT NULL,
    real DOUBLE PRECISION NOT NULL DEFAULT 0.0,
    low DOUBLE PRECISION,
    high DOUBLE PRECISION,
    last DOUBLE PRECISION,
    last_at BIGINT,
    slots JSON,
    sums JSON,
    PRIMARY KEY (metric, bucket, entity)
) WITH (fillfactor = 45);

CREATE TABLE metric_day (
    metric BIGINT NOT NULL,
    bucket INTEGER NOT NULL,
    entity BIGINT NOT NULL,
    count BIGINT NOT NULL,
    total BIGINT NOT NULL,
    base BIGINT NOT NULL,
    real DOUBLE PRECISION NOT NULL DEFAULT 0.0,
    low DOUBLE PRECISION,
    high DOUBLE PRECISION,
    last DOUBLE PRECISION,
    last_at BIGINT,
    slots JSON,
    sums JSON,
    PRIMARY KEY (metric, bucket, entity)
) WITH (fillfactor = 45);

CREATE TABLE topn (
    kind TEXT COLLATE "C" NOT NULL,
    entity BIGINT NOT NULL,
    bucket INTEGER NOT NULL,
    trace_id TEXT COLLATE "C" NOT NULL,
    span_id TEXT COLLATE "C" NOT NULL,
    latency BIGINT NOT NULL,
    started_ns BIGINT NOT NULL,
    statement TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, entity, bucket, trace_id, span_id)
);
CREATE INDEX topn_bucket ON topn (bucket);

-- Readings of cumulative series. delta is what the reading adds to its minute; follows says that
-- there was an earlier reading when that was computed, which may be gone by now.
CREATE TABLE reading (
    metric BIGINT NOT NULL,
    entity BIGINT NOT NULL,
    slot TEXT COLLATE "C" NOT NULL,
    time_ns BIGINT NOT NULL,
    start_ns BIGINT NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    delta DOUBLE PRECISION NOT NULL,
    follows BOOLEAN NOT NULL,
    PRIMARY KEY (metric, entity, slot, time_ns)
);
CREATE INDEX reading_time ON reading (time_ns);

CREATE TABLE ledger (
    checkpoint TEXT COLLATE "C" NOT NULL,
    batch BIGINT NOT NULL,
    committed_at DOUBLE PRECISION NOT NULL,
    files JSON NOT NULL, -- an array of names
    PRIMARY KEY (checkpoint, batch)
);

CREATE TABLE landed_file (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    checkpoint TEXT COLLATE "C" NOT NULL,
    batch BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);

-- One row, there from the start: taking the lease is then a single conditional update.
CREATE TABLE lease (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    holder TEXT,
    expires_at DOUBLE PRECISION NOT NULL
);
INSERT INTO lease VALUES (1, NULL, 0.0);

CREATE TABLE job (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    job TEXT NOT NULL
);
