-- What people read by SQL: the value of every metric that is a single number. Metrics that are
-- several numbers (percentiles, histograms, labels) have null here and their parts in slots, sums.
-- Products are numeric, as a value that overflowed would fail the whole query.

CREATE VIEW minute_values AS
SELECT
    m.name AS metric,
    e.name AS entity,
    to_timestamp(v.bucket * 60.0) AS time,
    CASE m.function
        WHEN 'longAvg' THEN CASE v.count WHEN 0 THEN 0 ELSE v.total / v.count END
        WHEN 'doubleAvg' THEN CASE v.count WHEN 0 THEN 0.0 ELSE v.real / v.count END
        WHEN 'sum' THEN v.total
        WHEN 'count' THEN v.count
        WHEN 'max' THEN coalesce(trunc(v.high), 0)
        WHEN 'min' THEN coalesce(trunc(v.low), 0)
        WHEN 'maxDouble' THEN coalesce(v.high, 0.0)
        WHEN 'minDouble' THEN coalesce(v.low, 0.0)
        WHEN 'cpm' THEN v.count / 1
        WHEN 'percent' THEN CASE v.count WHEN 0 THEN 0 ELSE div(v.total * 10000.0, v.count) END
        WHEN 'rate' THEN CASE v.base WHEN 0 THEN 0 ELSE div(v.total * 10000.0, v.base) END
        WHEN 'apdex' THEN CASE v.count WHEN 0 THEN 0 ELSE div(v.total * 5000.0, v.count) END
        WHEN 'gauge' THEN coalesce(v.last, 0.0)
        WHEN 'counter' THEN v.real
    END AS value,
    m.scope AS scope,
    e.parts AS parts,
    v.bucket AS bucket,
    v.slots AS slots,
    v.sums AS sums
FROM metric_minute AS v
JOIN metric AS m ON m.metric = v.metric
LEFT JOIN entity AS e ON e.entity = v.entity;

CREATE VIEW hour_values AS
SELECT
    m.name AS metric,
    e.name AS entity,
    to_timestamp(v.bucket * 3600.0) AS time,
    CASE m.function
        WHEN 'longAvg' THEN CASE v.count WHEN 0 THEN 0 ELSE v.total / v.count END
        WHEN 'doubleAvg' THEN CASE v.count WHEN 0 THEN 0.0 ELSE v.real / v.count END
        WHEN 'sum' THEN v.total
        WHEN 'count' THEN v.count
        WHEN 'max' THEN coalesce(trunc(v.high), 0)
        WHEN 'min' THEN coalesce(trunc(v.low), 0)
        WHEN 'maxDouble' THEN coalesce(v.high, 0.0)
        WHEN 'minDouble' THEN coalesce(v.low, 0.0)
        WHEN 'cpm' THEN v.count / 60
        WHEN 'percent' THEN CASE v.count WHEN 0 THEN 0 ELSE div(v.total * 10000.0, v.count) END
        WHEN 'rate' THEN CASE v.base WHEN 0 THEN 0 ELSE div(v.total * 10000.0, v.base) END
        WHEN 'apdex' THEN CASE v.count WHEN 0 THEN 0 ELSE div(v.total * 5000.0, v.count) END
        WHEN 'gauge' THEN coalesce(v.last, 0.0)
        WHEN 'counter' THEN v.real
    END AS value,
    m.scope AS scope,
    e.parts AS parts,
    v.bucket AS bucket,
    v.slots AS slots,
    v.sums AS sums
FROM metric_hour AS v
JOIN metric AS m ON m.metric = v.metric
LEFT JOIN entity AS e ON e.entity = v.entity;

CREATE VIEW day_values AS
SELECT
    m.name AS metric,
    e.name AS entity,
    to_timestamp(v.bucket * 86400.0) AS time,
    CASE m.function
        WHEN 'longAvg' THEN CASE v.count WHEN 0 THEN 0 ELSE v.total / v.count END
        WHEN 'doubleAvg' THEN CASE v.count WHEN 0 THEN 0.0 ELSE v.real / v.count END
        WHEN 'sum' THEN v.total
        WHEN 'count' THEN v.count
        WHEN 'max' THEN coalesce(trunc(v.high), 0)
        WHEN 'min' THEN coalesce(trunc(v.low), 0)
        WHEN 'maxDouble' THEN coalesce(v.high, 0.0)
        WHEN 'minDouble' THEN coalesce(v.low, 0.0)
        WHEN 'cpm' THEN v.count / 1440
        WHEN 'percent' THEN CASE v.count WHEN 0 THEN 0 ELSE div(v.total * 10000.0, v.count) END
        WHEN 'rate' THEN CASE v.base WHEN 0 THEN 0 ELSE div(v.total * 10000.0, v.base) END
        WHEN 'apdex' THEN CASE v.count WHEN 0 THEN 0 ELSE div(v.total * 5000.0, v.count) END
        WHEN 'gauge' THEN coalesce(v.last, 0.0)
        WHEN 'counter' THEN v.real
    END AS value,
    m.scope AS scope,
    e.parts AS parts,
    v.bucket AS bucket,
    v.slots AS slots,
    v.sums AS sums
FROM metric_day AS v
JOIN metric AS m ON m.metric = v.metric
LEFT JOIN entity AS e ON e.entity = v.entity;
