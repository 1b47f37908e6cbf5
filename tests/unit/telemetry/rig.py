"""OTLP requests made by hypothesis, and tables in a form that can be compared."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1 import logs_pb2 as logs
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from penstock.telemetry import otlp, plain
from penstock.telemetry.requests import REQUESTS
from penstock.telemetry.schema import ALIASES, PROMOTED, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from hypothesis.strategies import SearchStrategy

    from penstock.telemetry.requests import Decoded

__all__ = [
    "DECODERS",
    "EXAMPLES",
    "PATIENT",
    "any_values",
    "attribute",
    "only_row",
    "requests",
    "rows_of",
    "span_request",
]

# How many times as many examples as usual; without it, the same ones every time.
EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "1"))
PATIENT = settings(
    deadline=None,
    derandomize="PENSTOCK_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
DECODERS = pytest.mark.parametrize("decode", [otlp.decode, plain.decode], ids=["native", "plain"])
SPAN = {"trace_id": bytes(range(16)), "span_id": bytes(range(8)), "name": "GET /"}

_UINT64 = st.integers(0, 2**64 - 1)
_UINT32 = st.integers(0, 2**32 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_DOUBLES = st.floats()
_TEXTS = st.one_of(
    st.sampled_from(["", "a", "8080", "+7", "-3", "007", '"\\\n\r\t\x00\x1f\x7f', "é😀\u2028"]),
    st.text(max_size=12),
    st.integers(-(10**19), 10**19).map(str),
    st.integers(10, 100_000).map("x".__mul__),
)
# Names that mean something, so that promotion, aliases and duplicates come up all the time.
_KEYS = st.one_of(
    st.sampled_from(
        [
            *PROMOTED,
            *(alias for aliases in ALIASES.values() for alias in aliases),
            "service.name",
            "service.instance.id",
            "host.name",
            "quantile",
            "k",
            "",
        ]
    ),
    st.text(max_size=5),
)
# What is sent is mostly right, or nothing would be left to compare.
_TIMES = st.one_of(st.just(0), st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1), _UINT64)
_TRACE_IDS = st.one_of(*[st.binary(min_size=16, max_size=16)] * 6, st.binary(max_size=17))
_SPAN_IDS = st.one_of(*[st.binary(min_size=8, max_size=8)] * 6, st.binary(max_size=9))
_PARENTS = st.one_of(st.just(b""), st.just(bytes(8)), _SPAN_IDS)
_COUNTS = st.one_of(*[st.integers(0, 1000)] * 6, st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]))


def _maybe(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Return a value, or None: the field is not set."""
    return st.none() | strategy


def _lists(strategy: SearchStrategy[Any], most: int = 3) -> SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=most)


def _scalars() -> SearchStrategy[AnyValue]:
    return st.one_of(
        st.builds(AnyValue, string_value=_TEXTS),
        st.builds(AnyValue, string_value=_TEXTS),
        st.builds(AnyValue, int_value=st.one_of(st.integers(0, 70_000), _INT64)),
        st.builds(AnyValue, bool_value=st.booleans()),
        st.builds(AnyValue, double_value=_DOUBLES),
        st.builds(AnyValue, bytes_value=st.binary(max_size=6)),
        st.builds(AnyValue, string_value_strindex=_INT32),
        st.builds(AnyValue),
    )


def _composed(inner: SearchStrategy[AnyValue]) -> SearchStrategy[AnyValue]:
    arrays = st.builds(ArrayValue, values=_lists(inner))
    pairs = st.builds(
        KeyValueList, values=_lists(st.builds(KeyValue, key=_KEYS, value=_maybe(inner)))
    )
    return st.builds(AnyValue, array_value=arrays) | st.builds(AnyValue, kvlist_value=pairs)


any_values = st.recursive(_scalars(), _composed, max_leaves=5)
_ATTRIBUTES = _lists(
    st.builds(KeyValue, key=_KEYS, value=_maybe(any_values), key_strindex=st.just(0) | _INT32), 8
)

_EVENTS = st.builds(
    trace.Span.Event,
    time_unix_nano=_UINT64,
    name=_TEXTS,
    attributes=_ATTRIBUTES,
    dropped_attributes_count=_UINT32,
)
_LINKS = st.builds(
    trace.Span.Link,
    trace_id=st.binary(max_size=17),
    span_id=st.binary(max_size=9),
    trace_state=_TEXTS,
    attributes=_ATTRIBUTES,
    dropped_attributes_count=_UINT32,
    flags=_UINT32,
)
_SPANS = st.builds(
    trace.Span,
    trace_id=_TRACE_IDS,
    span_id=_SPAN_IDS,
    parent_span_id=_PARENTS,
    name=_TEXTS,
    kind=st.integers(0, 5) | _INT32,
    start_time_unix_nano=_TIMES,
    end_time_unix_nano=_TIMES,
    attributes=_ATTRIBUTES,
    events=st.just([]) | _lists(_EVENTS),
    links=st.just([]) | _lists(_LINKS),
    status=_maybe(
        st.builds(trace.Status, code=st.integers(0, 2) | _INT32, message=st.just("") | _TEXTS)
    ),
    trace_state=_TEXTS,
    flags=_UINT32,
)

_POINT = {
    "attributes": _ATTRIBUTES,
    "start_time_unix_nano": _TIMES,
    "time_unix_nano": _TIMES,
    "flags": st.integers(0, 3),
}
_NUMBERS = st.one_of(
    st.builds(metrics.NumberDataPoint, as_int=_INT64, **_POINT),
    st.builds(metrics.NumberDataPoint, as_double=_DOUBLES, **_POINT),
    st.builds(metrics.NumberDataPoint, **_POINT),
)
_TOTALS = {
    "count": _COUNTS,
    "sum": _maybe(_DOUBLES),
    "min": _maybe(_DOUBLES),
    "max": _maybe(_DOUBLES),
}
_HISTOGRAMS = st.builds(
    metrics.HistogramDataPoint,
    bucket_counts=_lists(_COUNTS, 5),
    explicit_bounds=_lists(_DOUBLES, 5),
    **_TOTALS,
    **_POINT,
)
_BUCKETS = st.builds(
    metrics.ExponentialHistogramDataPoint.Buckets,
    offset=st.integers(-50, 50) | _INT32,
    bucket_counts=_lists(_COUNTS, 5),
)
_EXPONENTIAL = st.builds(
    metrics.ExponentialHistogramDataPoint,
    scale=st.integers(-4, 20) | _INT32,
    zero_count=_COUNTS,
    zero_threshold=st.just(0.0) | _DOUBLES,
    positive=_maybe(_BUCKETS),
    negative=_maybe(_BUCKETS),
    **_TOTALS,
    **_POINT,
)
_QUANTILES = st.builds(
    metrics.SummaryDataPoint.ValueAtQuantile,
    quantile=st.sampled_from([0.0, 0.5, 0.99, 1.0]) | _DOUBLES,
    value=_DOUBLES,
)
_SUMMARIES = st.builds(
    metrics.SummaryDataPoint,
    count=_COUNTS,
    sum=_DOUBLES,
    quantile_values=_lists(_QUANTILES),
    **_POINT,
)
_TEMPORALITY = st.integers(0, 2) | _INT32
_NAMES = {"name": _TEXTS, "unit": st.just("") | _TEXTS}
_METRICS = st.one_of(
    st.builds(
        metrics.Metric, gauge=st.builds(metrics.Gauge, data_points=_lists(_NUMBERS)), **_NAMES
    ),
    st.builds(
        metrics.Metric,
        sum=st.builds(
            metrics.Sum,
            data_points=_lists(_NUMBERS),
            aggregation_temporality=_TEMPORALITY,
            is_monotonic=st.booleans(),
        ),
        **_NAMES,
    ),
    st.builds(
        metrics.Metric,
        histogram=st.builds(
            metrics.Histogram,
            data_points=_lists(_HISTOGRAMS),
            aggregation_temporality=_TEMPORALITY,
        ),
        **_NAMES,
    ),
    st.builds(
        metrics.Metric,
        exponential_histogram=st.builds(
            metrics.ExponentialHistogram,
            data_points=_lists(_EXPONENTIAL),
            aggregation_temporality=_TEMPORALITY,
        ),
        **_NAMES,
    ),
    st.builds(
        metrics.Metric, summary=st.builds(metrics.Summary, data_points=_lists(_SUMMARIES)), **_NAMES
    ),
    st.builds(metrics.Metric, **_NAMES),
)

_LOGS = st.builds(
    logs.LogRecord,
    time_unix_nano=_TIMES,
    observed_time_unix_nano=_TIMES,
    severity_number=st.integers(0, 24) | _INT32,
    severity_text=_TEXTS,
    body=_maybe(any_values),
    attributes=_ATTRIBUTES,
    trace_id=_TRACE_IDS | st.just(bytes(16)),
    span_id=_SPAN_IDS | st.just(bytes(8)),
)

_RESOURCES = _maybe(st.builds(Resource, attributes=_ATTRIBUTES))
_SCOPES = _maybe(st.builds(InstrumentationScope, name=st.just("") | _TEXTS, attributes=_ATTRIBUTES))
_PARTS = {
    Signal.SPANS: st.builds(
        trace.ResourceSpans,
        resource=_RESOURCES,
        scope_spans=_lists(st.builds(trace.ScopeSpans, scope=_SCOPES, spans=_lists(_SPANS))),
    ),
    Signal.POINTS: st.builds(
        metrics.ResourceMetrics,
        resource=_RESOURCES,
        scope_metrics=_lists(
            st.builds(metrics.ScopeMetrics, scope=_SCOPES, metrics=_lists(_METRICS))
        ),
    ),
    Signal.LOGS: st.builds(
        logs.ResourceLogs,
        resource=_RESOURCES,
        scope_logs=_lists(st.builds(logs.ScopeLogs, scope=_SCOPES, log_records=_lists(_LOGS))),
    ),
}
_ROOTS = {
    Signal.SPANS: "resource_spans",
    Signal.POINTS: "resource_metrics",
    Signal.LOGS: "resource_logs",
}


def requests(signal: Signal) -> SearchStrategy[Any]:
    """Return a strategy for requests of a signal, as messages."""
    return st.builds(REQUESTS[signal], **{_ROOTS[signal]: _lists(_PARTS[signal])})


def rows_of(table: pa.Table) -> list[str]:
    """Return the rows as text, sorted: tables with equal rows give equal lists."""
    return sorted(_row_text(row) for row in table.to_pylist())


def _row_text(row: dict[str, Any]) -> str:
    # Powers of two may differ in the last digit, depending on who computes them.
    bounds = row.get("bounds")
    if bounds is not None:
        row = row | {"bounds": [f"{bound:.14g}" for bound in bounds]}
    return repr(row)


def attribute(key: str, value: object = None) -> KeyValue:
    """Return an attribute with a value of the kind that Python says it has."""
    names = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    names |= {bytes: "bytes_value"}
    if value is None or isinstance(value, AnyValue):
        return KeyValue(key=key, value=value)
    content: dict[str, Any] = {names[type(value)]: value}
    return KeyValue(key=key, value=AnyValue(**content))


def span_request(
    attributes: Mapping[str, object] | None = None,
    resource: Mapping[str, object] | None = None,
    **fields: Any,  # noqa: ANN401 - whatever a span has
) -> bytes:
    """Return a serialized request with one span that is as it should be, but for *fields*."""
    span = trace.Span(**(SPAN | fields))
    span.attributes.extend(attribute(*pair) for pair in (attributes or {}).items())
    origin = Resource(attributes=[attribute(*pair) for pair in (resource or {}).items()])
    scope = trace.ScopeSpans(spans=[span])
    part = trace.ResourceSpans(resource=origin, scope_spans=[scope])
    payload: bytes = REQUESTS[Signal.SPANS](resource_spans=[part]).SerializeToString()
    return payload


def only_row(decoded: Decoded) -> dict[str, Any]:
    """Return the one row that was decoded; maps are dictionaries."""
    assert decoded.rejected == 0
    (row,) = decoded.table.to_pylist()
    maps = {name: dict(row[name]) for name in ("attributes", "resource_attributes")}
    return {**row, **maps}
