"""The oracle from spans to values: keys, buckets, filters, late rows and who is left out."""

from typing import Any

from penstock.metrics.definitions import (
    Attribute,
    Call,
    Condition,
    EnumConstant,
    Metric,
    Operand,
    Operator,
    Tag,
)
from penstock.metrics.sources import Type
from penstock.telemetry import SpanKind, StatusCode
from tests.oracle.arithmetic import Percentiles
from tests.oracle.buckets import Horizon
from tests.oracle.oracle import compute
from tests.oracle.samples import MINUTE, span

LATENCY = Attribute("latency")
SUCCESS = Condition(Attribute("status"), Operator.EQ, right=True)
HOUR = MINUTE // 60
DAY = MINUTE // 1440


def metric(
    call: Call,
    *filters: Condition,
    source: str = "Service",
    value: Operand | None = None,
    name: str = "m",
) -> Metric:
    """Return a metric."""
    return Metric(name, source, value, filters, call)


def minutes(found: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values by minute only, by entity."""
    return {entity: value for (_, size, entity, _), value in found.items() if size == "minute"}


def test_a_span_counts_in_its_minute_hour_and_day() -> None:
    """Each granularity is computed from the raw rows, not from averages of averages."""
    spans = [
        span(latency=10),
        span(latency=10),
        span(latency=41, minute=MINUTE + 1),
        span(latency=7, minute=MINUTE - 1),
    ]
    found = compute([metric(Call("longAvg"), value=LATENCY)], spans)
    shop = ("shop",)
    assert found == {
        ("m", "minute", shop, MINUTE - 1): 7,
        ("m", "minute", shop, MINUTE): 10,
        ("m", "minute", shop, MINUTE + 1): 41,
        ("m", "hour", shop, HOUR - 1): 7,
        ("m", "hour", shop, HOUR): 20,  # 61 / 3
        ("m", "day", shop, DAY): 17,  # 68 / 4
    }


def test_the_order_of_spans_does_not_matter() -> None:
    """A late row is merged into its own minute."""
    spans = [span(latency=n, minute=MINUTE + n % 3, number=n) for n in range(1, 20)]
    metrics = [
        metric(Call("longAvg"), value=LATENCY, name="average"),
        metric(Call("percentile2", (10,)), value=LATENCY, name="percentile"),
        metric(Call("labelCount", (Attribute("name"),)), name="labels"),
    ]
    assert compute(metrics, spans) == compute(metrics, spans[::-1])


def test_calls_per_minute_are_of_the_bucket() -> None:
    """120 calls in one minute are 2 per minute of their hour and 0 of their day."""
    found = compute([metric(Call("cpm"))], [span()] * 120)
    assert {size: value for (_, size, _, _), value in found.items()} == {
        "minute": 120,
        "hour": 2,
        "day": 0,
    }


def test_all_filters_have_to_hold() -> None:
    """Filters that metrics share are evaluated alike for both."""
    slow = Condition(LATENCY, Operator.GT, 10)
    spans = [
        span(latency=11),
        span(latency=12, status_code=int(StatusCode.ERROR)),
        span(latency=10),
        span(latency=10, service_name="web"),
    ]
    found = compute(
        [
            metric(Call("count"), slow, name="slow"),
            metric(Call("count"), slow, SUCCESS, name="slow_success"),
            metric(Call("count"), name="all"),
        ],
        spans,
    )
    assert {(name, entity): n for (name, size, entity, _), n in found.items() if size == "day"} == {
        ("slow", ("shop",)): 2,
        ("slow_success", ("shop",)): 1,
        ("all", ("shop",)): 3,
        ("all", ("web",)): 1,
    }


def test_filters_that_differ_in_a_cast_are_told_apart() -> None:
    """The same tag compared as a number and as text are two conditions."""
    number = Condition(Tag("n", Type.LONG), Operator.EQ, 1)
    text = Condition(Tag("n"), Operator.EQ, "1")
    found = compute(
        [metric(Call("count"), number, name="a"), metric(Call("count"), text, name="b")],
        [span(attributes=[("n", "01")])],
    )
    assert {name for name, *_ in found} == {"a"}


def test_a_row_without_a_value_does_not_count() -> None:
    """Text that is no number is null, and so is what is absent."""
    spans = [span(SpanKind.CONSUMER, attributes=[("size", text)]) for text in ("10", "x", "21", "")]
    size = Tag("size", Type.LONG)
    spans.append(span(SpanKind.CONSUMER))
    for function, value in (("longAvg", 15), ("count", 2), ("max", 21), ("sum", 31)):
        assert minutes(compute([metric(Call(function), value=size)], spans)) == {("shop",): value}
    assert compute([metric(Call("sum"), value=size)], [span()]) == {}


def test_conditions_as_arguments_do_not_filter() -> None:
    """A row that does not match, or has null there, is in the total of `percent`."""
    found = Condition(Attribute("httpResponseStatusCode"), Operator.LT, 400)
    spans = [span(http_status_code=200), span(http_status_code=500), span()]
    assert minutes(compute([metric(Call("percent", (found,)))], spans)) == {("shop",): 3333}


def test_rate_takes_two_conditions() -> None:
    """Failures against slow ones."""
    failed = Condition(Attribute("status"), Operator.EQ, right=False)
    slow = Condition(LATENCY, Operator.GE, 100)
    spans = [span(latency=100), span(latency=200), span(status_code=int(StatusCode.ERROR))]
    assert minutes(compute([metric(Call("rate", (failed, slow)))], spans)) == {("shop",): 5000}


def test_apdex_reads_name_and_status() -> None:
    """The threshold is that of the name that the rule reads."""
    rule = metric(Call("apdex", (Attribute("name"), Attribute("status"))), value=LATENCY)
    spans = [span(latency=300), span(latency=300, service_name="fast")]
    found = compute([rule], spans, apdex_thresholds={"fast": 100}, apdex_default=300)
    assert minutes(found) == {("shop",): 10_000, ("fast",): 5000}
    assert minutes(compute([rule], [span(latency=500), span(latency=501)])) == {("shop",): 7500}


def test_histogram_and_labels_read_their_arguments() -> None:
    """Numbers and operands reach the functions."""
    spans = [span(latency=5), span(latency=250, http_method="GET"), span(latency=25)]
    histogram = metric(Call("histogram", (10, 5)), value=LATENCY)
    assert minutes(compute([histogram], spans)) == {("shop",): {"0": 1, "20": 1, "50": 1}}
    counted = metric(Call("labelCount", (Attribute("type"),)))
    assert minutes(compute([counted], spans)) == {("shop",): {"RPC": 2, "HTTP": 1}}
    averaged = metric(Call("labelAvg", (Attribute("type"),)), value=LATENCY)
    assert minutes(compute([averaged], spans)) == {("shop",): {"RPC": 15, "HTTP": 250}}


def test_fractions_are_averaged_and_compared() -> None:
    """Text with a fraction is a double."""
    spans = [span(attributes=[("load", text)]) for text in ("0.5", "1e0", "-0.75", "high")]
    load = Tag("load", Type.DOUBLE)
    for function, value in (("doubleAvg", 0.25), ("maxDouble", 1.0), ("minDouble", -0.75)):
        assert minutes(compute([metric(Call(function), value=load)], spans)) == {("shop",): value}


def test_percentiles_keep_the_raw_values() -> None:
    """A comparer needs the exact rank."""
    rule = metric(Call("percentile2", (10,)), value=LATENCY)
    spans = [span(latency=30), span(latency=10)]
    assert minutes(compute([rule], spans)) == {("shop",): Percentiles((10, 30))}


def test_both_sides_of_a_relation_are_told_apart() -> None:
    """A call seen by both sides is one row of each; a rule chooses by its detect point."""
    spans = [
        span(SpanKind.CLIENT, peer_service="pay", latency=30),
        span(SpanKind.SERVER, peer_service="shop", service_name="pay", latency=20),
    ]
    rules = [
        metric(
            Call("sum"),
            Condition(Attribute("detectPoint"), Operator.EQ, EnumConstant(Type.DETECT_POINT, side)),
            source="ServiceRelation",
            value=LATENCY,
            name=side,
        )
        for side in ("CLIENT", "SERVER")
    ]
    found = compute(rules, spans)
    assert found["CLIENT", "minute", ("shop", "pay"), MINUTE] == 30
    assert found["SERVER", "minute", ("shop", "pay"), MINUTE] == 20


def test_what_is_expired_or_too_far_ahead_is_left_out() -> None:
    """A row that is too old for minutes may still count in hours and days."""
    week = 7 * 1440
    spans = [
        span(minute=MINUTE),
        span(minute=MINUTE - week),
        span(minute=MINUTE - week - 1),
        span(minute=MINUTE + 1440),
        span(minute=MINUTE + 1441),
    ]
    found = compute([metric(Call("count"))], spans, horizon=Horizon(MINUTE * 60.0))
    totals = {
        size: sum(n for key, n in found.items() if key[1] == size and isinstance(n, int))
        for size in ("minute", "hour", "day")
    }
    assert totals == {"minute": 3, "hour": 4, "day": 4}


def test_entities_without_room_are_counted_together() -> None:
    """All parts of the entity are `(other)`; scopes that are not limited keep theirs."""
    spans = [span(service_name=name) for name in ("shop", "web", "pay")]
    rules = [
        metric(Call("count"), source=source, name=source) for source in ("Service", "Endpoint")
    ]
    found = compute(rules, spans, admitted={"Endpoint": {("web", "work")}})
    assert {
        (name, entity): n for (name, size, entity, _), n in found.items() if size == "minute"
    } == {
        ("Service", ("shop",)): 1,
        ("Service", ("web",)): 1,
        ("Service", ("pay",)): 1,
        ("Endpoint", ("web", "work")): 1,
        ("Endpoint", ("(other)", "(other)")): 2,
    }
