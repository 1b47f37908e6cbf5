-- Which migrations have been applied.
CREATE TABLE schema_version (
    version INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL
);

-- The catalogue. Ids are stable: the same name has the same id in every store.
CREATE TABLE metric (
    metric INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL,
    function TEXT NOT NULL,
    definition TEXT NOT NULL,
    unit TEXT NOT NULL
);

CREATE TABLE entity (
    entity INTEGER NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    parts TEXT NOT NULL, -- a JSON array
    name TEXT NOT NULL -- the parts, for people
);
CREATE INDEX entity_scope ON entity (scope);

-- States. The key begins with the metric and the bucket, for three reasons: what a batch adds
-- lies together, a metric's recent values are one range, and so is what retention deletes.
CREATE TABLE metric_minute (
    metric INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    count INTEGER NOT NULL,
    total INTEGER NOT NULL,
    base INTEGER NOT NULL,
    real REAL DEFAULT 0.0, -- null is NaN, which SQLite cannot hold
    low REAL,
    high REAL,
    last REAL,
    last_at INTEGER,
    slots TEXT, -- JSON objects, as sums
    sums TEXT,
    PRIMARY KEY (metric, bucket, entity)
) WITHOUT ROWID;

CREATE TABLE metric_hour (
    metric INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    count INTEGER NOT NULL,
    total INTEGER NOT NULL,
    base INTEGER NOT NULL,
    real REAL DEFAULT 0.0,
    low REAL,
    high REAL,
    last REAL,
    last_at INTEGER,
    slots TEXT,
    sums TEXT,
    PRIMARY KEY (metric, bucket, entity)
) WITHOUT ROWID;

CREATE TABLE metric_day (
    metric INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    count INTEGER NOT NULL,
    total INTEGER NOT NULL,
    base INTEGER NOT NULL,
    real REAL DEFAULT 0.0,
    low REAL,
    high REAL,
    last REAL,
    last_at INTEGER,
    slots TEXT,
    sums TEXT,
    PRIMARY KEY (metric, bucket, entity)
) WITHOUT ROWID;

CREATE TABLE topn (
    kind TEXT NOT NULL,
    entity INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    trace_id TEXT NOT NULL,
    span_id TEXT NOT NULL,
    latency INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    statement TEXT NOT NULL,
    PRIMARY KEY (kind, entity, bucket, trace_id, span_id)
);
CREATE INDEX topn_bucket ON topn (bucket);

-- Readings of cumulative series. delta is what the reading adds to its minute; follows says that
-- there was an earlier reading when that was computed, which may be gone by now.
CREATE TABLE reading (
    metric INTEGER NOT NULL,
    entity INTEGER NOT NULL,
    slot TEXT NOT NULL,
    time_ns INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    value REAL NOT NULL,
    delta REAL NOT NULL,
    follows INTEGER NOT NULL,
    PRIMARY KEY (metric, entity, slot, time_ns)
) WITHOUT ROWID;
CREATE INDEX reading_time ON reading (time_ns);

CREATE TABLE ledger (
    checkpoint TEXT NOT NULL,
    batch INTEGER NOT NULL,
    committed_at REAL NOT NULL,
    files TEXT NOT NULL, -- a JSON array
    PRIMARY KEY (checkpoint, batch)
) WITHOUT ROWID;

CREATE TABLE landed_file (
    name TEXT NOT NULL PRIMARY KEY,
    checkpoint TEXT NOT NULL,
    batch INTEGER NOT NULL,
    at REAL NOT NULL
) WITHOUT ROWID;

-- One row, there from the start: taking the lease is then a single conditional update.
CREATE TABLE lease (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    holder TEXT,
    expires_at REAL NOT NULL
);
INSERT INTO lease VALUES (1, NULL, 0.0);

CREATE TABLE job (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    job TEXT NOT NULL
);
