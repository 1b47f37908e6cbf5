"""Spans in blocks: journeys are drawn, cut into rows, and every column is looked up at once.

Each block has random numbers of its own, so its rows depend on its number and on nothing else: not
on where files are cut, nor on which blocks were made before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.generate._catalogue import Catalogue, Flags, Floats, Integers, build_catalogue
from penstock.generate._steps import NOWHERE
from penstock.generate._tables import cut
from penstock.telemetry import SPANS, StatusCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.generate.settings import GeneratorSettings

__all__ = ["BLOCK", "SpanBlocks", "generate_spans"]

BLOCK = 32_768  # rows; larger ones leave the processor's caches and take longer for each row
_EVERY = 4  # one journey in so many is taken in turn, so that rare ones come up in every minute
_STALLS = 0.01  # share of steps that take exactly as long as their timeout
_LONGEST_NS = 5_000_000_000.0
_MINUTE_NS = 60_000_000_000
_MESSAGES = pa.array(["deadline exceeded", "connection reset by peer", "internal error"])
_EVENTS = pa.array(
    [
        '[{"name":"exception","attributes":[{"key":"exception.type",'
        f'"value":{{"stringValue":"{name}"}}}}]}}]'
        for name in ("TimeoutError", "ConnectionResetError", "RuntimeError")
    ]
)
_HTTP_FAILED = np.array([504, 502, 500], dtype=np.int32)
_GRPC_FAILED = np.array([4, 14, 13], dtype=np.int32)
_HTTP_DONE = np.array([200] * 12 + [201, 204, 302, 404], dtype=np.int32)

Bytes: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Which step each row is of, and where its journey lies in the block."""

    step: Integers
    journey: Integers  # number within the block
    first: Integers  # the first row of each journey
    lane: Integers  # which instance of every service the journey passes through


def generate_spans(settings: GeneratorSettings) -> Iterator[pa.Table]:
    """Yield tables of spans (:data:`penstock.telemetry.SPANS`), one for each file."""
    blocks = SpanBlocks(settings)
    return cut(map(blocks.make, range(len(blocks))), settings.rows_per_file)


class SpanBlocks:
    """All spans of *settings*, to be made block by block in any order."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._settings = settings
        self._catalogue = build_catalogue(settings)

    def __len__(self) -> int:
        return (self._settings.spans + BLOCK - 1) // BLOCK

    def make(self, number: int) -> pa.RecordBatch:
        """Return block *number*; the last one may be short."""
        count = min(BLOCK, self._settings.spans - number * BLOCK)
        return _block(self._settings, self._catalogue, number, count)


def _block(
    settings: GeneratorSettings, catalogue: Catalogue, number: int, count: int
) -> pa.RecordBatch:
    rng = np.random.Generator(np.random.SFC64([settings.seed, 2, number]))
    rows = _draw(rng, settings, catalogue, number)
    rows = _Rows(rows.step[:count], rows.journey[:count], rows.first, rows.lane)
    at = _departures(rng, settings, rows.first + number * BLOCK)
    transit = _transit(rng, catalogue, rows)
    since, taken = _times(rng, catalogue, rows, transit)
    start = np.minimum(at[rows.journey] + since, settings.end_ns - 1)
    index = pa.array(rows.step)
    columns = {name: column.take(index) for name, column in catalogue.columns.items()}
    columns["start_ns"], columns["end_ns"] = pa.array(start), pa.array(start + taken)
    columns["links"] = pa.nulls(count, pa.string())
    columns["transmission_latency"] = pa.array(
        transit // 1_000_000, mask=~catalogue.has_transit[rows.step]
    )
    columns |= _identities(rng, catalogue, rows)
    columns |= _outcomes(rng, settings, catalogue, rows)
    columns |= _places(settings, catalogue, rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in SPANS.names], schema=SPANS)


def _draw(
    rng: np.random.Generator, settings: GeneratorSettings, catalogue: Catalogue, block: int
) -> _Rows:
    """Draw as many journeys as fill a block, by their popularity and one in a few in turn."""
    kinds = len(catalogue.length)
    most = BLOCK // int(catalogue.length.min()) + 1
    journeys = np.searchsorted(catalogue.chances, rng.random(most)).clip(max=kinds - 1)
    turns = np.arange(0, most, _EVERY)
    turn = turns // _EVERY + block * (BLOCK // (_EVERY * int(catalogue.length.mean())))
    journeys[turns] = turn % kinds
    lane = rng.integers(0, settings.instances, most)
    lane[turns] = turn // kinds % settings.instances
    lengths = catalogue.length[journeys]
    ends = np.cumsum(lengths)
    needed = int(np.searchsorted(ends, BLOCK)) + 1
    lengths, first = lengths[:needed], (ends - lengths)[:needed]
    journey = np.repeat(np.arange(needed), lengths)[:BLOCK]
    within = np.arange(BLOCK) - first[journey]
    step = catalogue.first[journeys[:needed]][journey] + within
    return _Rows(step, journey, first, lane[:needed])


def _transit(rng: np.random.Generator, catalogue: Catalogue, rows: _Rows) -> Integers:
    """Return how long each message travelled, in nanoseconds; 0 where there is none."""
    transit = np.zeros(len(rows.step), dtype=np.int64)
    arrived = np.flatnonzero(catalogue.detached[rows.step])
    drawn = 15e6 * np.exp(1.1 * rng.standard_normal(len(arrived)))
    transit[arrived] = np.minimum(drawn, _LONGEST_NS)
    return transit


def _times(
    rng: np.random.Generator, catalogue: Catalogue, rows: _Rows, transit: Integers
) -> tuple[Integers, Integers]:
    """Return when each span begins, from the start of its journey on, and how long it takes.

    Calls lie inside their callers, one after the other.
    """
    count = len(rows.step)
    own = _own_times(rng, catalogue, rows.step)
    before = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(own + transit, out=before[1:])
    last = np.minimum(np.arange(count) + catalogue.subtree[rows.step], count)
    # A span begins once all before it in its journey have done their own part.
    begin = before[:-1] + transit
    return begin - before[rows.first[rows.journey]], before[last] - begin


def _own_times(rng: np.random.Generator, catalogue: Catalogue, step: Integers) -> Integers:
    drawn: Floats = rng.standard_normal(len(step), dtype=np.float32)
    drawn *= catalogue.sigma[step]
    np.exp(drawn, out=drawn)
    drawn *= catalogue.median_ns[step]
    own = np.minimum(drawn, _LONGEST_NS).astype(np.int64)
    stalled = np.flatnonzero(rng.random(len(step), dtype=np.float32) < _STALLS)
    own[stalled] = catalogue.stall_ns[step[stalled]]
    return own


def _departures(
    rng: np.random.Generator, settings: GeneratorSettings, position: Integers
) -> Integers:
    """Return when journeys begin: as their rows advance through the files, but for late ones."""
    window = settings.end_ns - settings.start_ns
    share = np.minimum(position / max(settings.spans, 1), 1.0)
    at: Integers = settings.start_ns + (share * window).astype(np.int64)
    late = np.flatnonzero(rng.random(len(position)) < settings.late)
    # Most are a few minutes late, a few by hours.
    ratio = settings.lateness * 1e9 / _MINUTE_NS
    behind = (_MINUTE_NS * ratio ** rng.random(len(late))).astype(np.int64)
    at[late] -= behind
    if settings.late_inside:
        np.maximum(at, settings.start_ns, out=at)
    return at


def _identities(rng: np.random.Generator, catalogue: Catalogue, rows: _Rows) -> dict[str, pa.Array]:
    count = len(rows.step)
    traces = np.frombuffer(rng.bytes(16 * len(rows.first)), dtype=np.uint8).reshape(-1, 16)
    spans = np.frombuffer(rng.bytes(8 * count), dtype=np.uint8).reshape(-1, 8)
    up = catalogue.parent[rows.step]
    return {
        "trace_id": _binary(traces[rows.journey]),
        "span_id": _binary(spans),
        "parent_span_id": _binary(spans[np.arange(count) - up], up > 0),
    }


def _binary(values: Bytes, valid: Flags | None = None) -> pa.Array:
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    count, width = values.shape
    buffers = [bits, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(width), count, buffers)


def _outcomes(
    rng: np.random.Generator, settings: GeneratorSettings, catalogue: Catalogue, rows: _Rows
) -> dict[str, pa.Array]:
    """Return what came of every span; both ends of a call agree."""
    count = len(rows.step)
    drawn = rng.random(count, dtype=np.float32)
    drawn = drawn[np.arange(count) - catalogue.caller[rows.step]]
    failed = drawn < settings.error_rate
    # The random number decides the rest too, so that both ends of a call say the same.
    digits = (drawn * (1 << 24)).astype(np.int32)
    cause = digits % len(_MESSAGES)
    http = np.where(failed, _HTTP_FAILED[cause], _HTTP_DONE[digits % len(_HTTP_DONE)])
    grpc = np.where(failed, _GRPC_FAILED[cause], np.int32(0))
    causes = pa.array(cause, mask=~failed)
    return {
        "status_code": pa.array(failed * np.int8(StatusCode.ERROR)),
        "status_message": _MESSAGES.take(causes),
        "events": _EVENTS.take(causes),
        "http_status_code": pa.array(http, mask=~catalogue.is_http[rows.step]),
        "rpc_status_code": pa.array(grpc, mask=~catalogue.is_grpc[rows.step]),
    }


def _places(settings: GeneratorSettings, catalogue: Catalogue, rows: _Rows) -> dict[str, pa.Array]:
    """Return the instances; a journey stays in its lane, as with routing by zone."""
    lane = rows.lane[rows.journey]
    instance = catalogue.service[rows.step] * settings.instances + lane
    nobody = len(catalogue.instances) - 1
    named = np.where(catalogue.anonymous[rows.step], nobody, instance)
    peer = catalogue.peer[rows.step]
    peers = pa.array(peer * settings.instances + lane, mask=peer == NOWHERE)
    return {
        "service_instance": catalogue.instances.take(pa.array(named)),
        "resource_attributes": catalogue.resources.take(pa.array(instance)),
        "peer_instance": catalogue.instances.take(peers),
    }
