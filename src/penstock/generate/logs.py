"""Log records of the spans: each belongs to a span that is made too, and says what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.generate._tables import cut
from penstock.generate.spans import BLOCK, SpanBlocks
from penstock.telemetry import LOGS, StatusCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.generate.settings import GeneratorSettings

__all__ = ["generate_logs"]

# Spans are made once more for their logs; a sample of the blocks will do.
_MOST_BLOCKS = 16
_ALONE = 0.3  # share of records that do not name their span
_UNTIMED = 0.1  # share that nobody has noted the arrival of
_ERROR = 17
_SEVERITIES = np.array([5, 9, 9, 9, 9, 9, 9, 13], dtype=np.int8)  # of what did not fail
_TEXTS = pa.array([{5: "DEBUG", 9: "INFO", 13: "WARN", _ERROR: "ERROR"}.get(n) for n in range(25)])
_COPIED = ("service_name", "service_instance", "scope_name", "attributes", "resource_attributes")


def generate_logs(settings: GeneratorSettings) -> Iterator[pa.Table]:
    """Yield tables of log records (:data:`penstock.telemetry.LOGS`), one for each file."""
    return cut(_parts(settings), settings.rows_per_file)


def _parts(settings: GeneratorSettings) -> Iterator[pa.RecordBatch]:
    """Yield the records in parts, each from one block of spans."""
    if not settings.logs:
        return
    # Without spans the records are of spans that nobody will see, and do not name them.
    blocks = SpanBlocks(settings if settings.spans else replace(settings, spans=BLOCK))
    parts = max(-(-settings.logs // BLOCK), min(len(blocks), _MOST_BLOCKS, settings.logs))
    for number in range(parts):
        count = settings.logs * (number + 1) // parts - settings.logs * number // parts
        rng = np.random.Generator(np.random.SFC64([settings.seed, 4, number]))
        spans = blocks.make(number * len(blocks) // parts)
        rows = np.sort(rng.integers(0, spans.num_rows, count))
        yield _records(rng, settings, spans.take(pa.array(rows)))


def _records(
    rng: np.random.Generator, settings: GeneratorSettings, spans: pa.RecordBatch
) -> pa.RecordBatch:
    """Return one record for each of *spans*."""
    count = spans.num_rows
    start, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    time = start + ((end - start) * rng.random(count)).astype(np.int64)
    np.minimum(time, settings.end_ns - 1, out=time)
    failed = spans["status_code"].to_numpy() == StatusCode.ERROR
    severity = _SEVERITIES[rng.integers(0, len(_SEVERITIES), count)]
    severity[failed] = _ERROR
    unseen = rng.random(count) < _ALONE if settings.spans else np.ones(count, dtype=np.bool_)
    index = pa.array(np.arange(count), mask=unseen)
    columns = {
        "time_ns": pa.array(time),
        "observed_ns": pa.array(time + 5_000_000, mask=rng.random(count) < _UNTIMED),
        "severity_number": pa.array(severity),
        "severity_text": _TEXTS.take(pa.array(severity)),
        "body": _bodies(spans),
        "trace_id": spans["trace_id"].take(index),
        "span_id": spans["span_id"].take(index),
        **{name: spans[name] for name in _COPIED},
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in LOGS.names], schema=LOGS)


def _bodies(spans: pa.RecordBatch) -> pa.Array:
    taken = pc.divide(pc.subtract(spans["end_ns"], spans["start_ns"]), 1_000_000)
    done = pc.binary_join_element_wise(
        spans["name"], "took", pc.cast(taken, pa.string()), "ms", " "
    )
    failed = pc.binary_join_element_wise(spans["name"], spans["status_message"], ": ")
    return pc.coalesce(failed, done)  # without a message, failed is null
