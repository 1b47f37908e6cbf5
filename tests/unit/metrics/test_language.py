"""What rules mean: every construct of the language and the definition that comes of it."""

import pytest

from penstock.metrics import Metric, parse_rules
from penstock.metrics.definitions import (
    Argument,
    Attribute,
    Call,
    Condition,
    EnumConstant,
    Literal,
    Operator,
    Tag,
)
from penstock.metrics.sources import ENUMERATIONS, SOURCES, Type


def metrics(text: str) -> tuple[Metric, ...]:
    """Return the metrics of rules without errors."""
    rules = parse_rules(text)
    assert not rules.diagnostics, "\n".join(map(str, rules.diagnostics))
    return rules.metrics


def only(text: str) -> Metric:
    """Return the one metric of *text*."""
    (metric,) = metrics(text)
    return metric


def condition(text: str, source: str = "Service") -> Condition:
    """Return the condition that *text* means in a filter."""
    (found,) = only(f"m = from({source}.*).filter({text}).cpm();").filters
    return found


def test_a_rule_has_a_name_a_source_a_value_and_a_function() -> None:
    """The simplest rule with a value."""
    assert only("service_resp_time = from(Service.latency).longAvg();") == Metric(
        name="service_resp_time",
        source="Service",
        value=Attribute("latency"),
        filters=(),
        call=Call("longAvg"),
    )


def test_a_star_stands_for_rows_without_a_value() -> None:
    """``Source.*`` has no value."""
    assert only("service_cpm = from(Service.*).cpm();").value is None


def test_a_rule_may_be_written_over_many_lines_with_comments() -> None:
    """Space, line breaks and comments of both kinds go anywhere between words."""
    text = """
    // a comment; with a semicolon, a "quote and /* no beginning
    m /* of a comment */ = from ( Service . latency ) // latency
        .filter( status == true )
        /* several
           lines // and this */
        . longAvg ( ) ;
    """
    metric = only(text)
    assert metric == only("m = from(Service.latency).filter(status == true).longAvg();")
    assert metric.line == 3


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(ending: str) -> None:
    """Files of all systems are read alike, also with a byte order mark."""
    text = ending.join(
        ["\ufeff// first", "a = from(Service.*).cpm();", "b = from(Service.*).cpm();"]
    )
    assert [metric.line for metric in metrics(text)] == [2, 3]


def test_filters_are_kept_in_order() -> None:
    """All filters have to hold; they stay as they were written."""
    metric = only('m = from(Service.*).filter(name == "a").filter(latency > 5).count();')
    assert metric.filters == (
        Condition(Attribute("name"), Operator.EQ, "a"),
        Condition(Attribute("latency"), Operator.GT, 5),
    )


def test_decorators_are_kept_and_do_not_change_the_metric() -> None:
    """Any number of decorators is accepted; two metrics that differ in them are equal."""
    decorated = only('m = from(Service.*).cpm().decorator("A").decorator("B");')
    assert decorated.decorators == ("A", "B")
    assert decorated == only("m = from(Service.*).cpm();")


@pytest.mark.parametrize(
    "cast", ["(str->long)", "(str->int)", "(long)", "(int)", "( str -> long )"]
)
def test_text_can_be_read_as_a_whole_number(cast: str) -> None:
    """An int is a long, and the short forms mean the same."""
    metric = only(f'm = from({cast}Service.tag["transmission.latency"]).longAvg();')
    assert metric.value == Tag("transmission.latency", Type.LONG)


def test_text_can_be_read_as_a_fraction() -> None:
    """``(str->double)`` is for the functions of fractions."""
    metric = only('m = from((str->double)Service.tag["load"]).doubleAvg();')
    assert metric.value == Tag("load", Type.DOUBLE)


def test_casts_apply_to_filters_and_string_attributes() -> None:
    """Whatever is a string can be cast, wherever it stands."""
    assert condition('(str->long)tag["n"] >= 5') == Condition(Tag("n", Type.LONG), Operator.GE, 5)
    assert condition("(str->double)name < 0.5") == Condition(
        Attribute("name", Type.DOUBLE), Operator.LT, 0.5
    )


@pytest.mark.parametrize(
    ("text", "operator", "right"),
    [
        ("latency == 5", Operator.EQ, 5),
        ("latency != -5", Operator.NE, -5),
        ("latency > 1_000", Operator.GT, 1000),
        ("latency >= 1.5", Operator.GE, 1.5),
        ("latency < 1e3", Operator.LT, 1000.0),
        ("latency <= 9223372036854775807", Operator.LE, 2**63 - 1),
        ("latency > -9223372036854775808", Operator.GT, -(2**63)),
        ("latency == null", Operator.EQ, None),
        ("latency in (1, 2)", Operator.IN, (1, 2)),
        ("latency in [1, 2]", Operator.IN, (1, 2)),
    ],
)
def test_numbers_are_compared(text: str, operator: Operator, right: Literal) -> None:
    """All comparisons of numbers, whole or not, and lists in both kinds of brackets."""
    found = condition(text)
    assert found == Condition(Attribute("latency"), operator, right)
    assert type(found.right) is type(right)


@pytest.mark.parametrize(
    ("text", "operator", "right"),
    [
        ('name == "a; b"', Operator.EQ, "a; b"),
        ('name != ""', Operator.NE, ""),
        ('name != "// no comment"', Operator.NE, "// no comment"),
        ('name like "%shop%"', Operator.LIKE, "%shop%"),
        ('name in ("a")', Operator.IN, ("a",)),
        ("name != null", Operator.NE, None),
        (r'name == "\"\\\/\n\t\u00e4\ud83d\ude00"', Operator.EQ, '"\\/\n\tä😀'),
        ('name == "größe 日本"', Operator.EQ, "größe 日本"),
        ('name == "a\tb"', Operator.EQ, "a\tb"),
    ],
)
def test_texts_are_compared(text: str, operator: Operator, right: Literal) -> None:
    """Texts with anything in them, escaped or as it is."""
    assert condition(text) == Condition(Attribute("name"), operator, right)


@pytest.mark.parametrize("word", [True, False])
def test_bools_are_compared(word: bool) -> None:  # noqa: FBT001 - the word itself is the case
    """``true`` and ``false`` are the bools."""
    found = condition(f"status == {str(word).lower()}")
    assert found.right is word


@pytest.mark.parametrize("operator", ["contain", "not contain", "not  /* still */ contain"])
def test_tags_contain_whole_elements(operator: str) -> None:
    """``contain`` and its negation are for the list of all tags."""
    found = condition(f'tags {operator} "http.method:GET"')
    assert found.left == Attribute("tags")
    assert found.operator == ("contain" if operator == "contain" else "not contain")
    assert found.right == "http.method:GET"


@pytest.mark.parametrize(
    ("source", "attribute", "constant"),
    [
        (source.name, attribute, EnumConstant(kind, name))
        for source in SOURCES.values()
        for attribute, kind in source.attributes.items()
        if kind in ENUMERATIONS
        for name in ENUMERATIONS[kind]
    ],
    ids=str,
)
def test_enumerations_are_compared_with_their_constants(
    source: str, attribute: str, constant: EnumConstant
) -> None:
    """Every constant of every attribute that is an enumeration."""
    found = condition(f"{attribute} == {constant}", source)
    assert found == Condition(Attribute(attribute), Operator.EQ, constant)
    listed = condition(f"{attribute} in ({constant})", source)
    assert listed.right == (constant,)


SERVICE_CPM = -8278049169969953919
STATUS = Condition(Attribute("status"), Operator.EQ, right=True)
FAILED = Condition(Attribute("status"), Operator.EQ, right=False)


@pytest.mark.parametrize(
    ("value", "call", "arguments"),
    [
        ("latency", "longAvg()", ()),
        ("latency", "doubleAvg()", ()),
        ("latency", "sum()", ()),
        ("*", "count()", ()),
        ("latency", "max()", ()),
        ("latency", "min()", ()),
        ("latency", "maxDouble()", ()),
        ("latency", "minDouble()", ()),
        ("*", "cpm()", ()),
        ("*", "percent(status == true)", (STATUS,)),
        ("*", "rate(status == false, status == true)", (FAILED, STATUS)),
        ("latency", "apdex(name, status)", (Attribute("name"), Attribute("status"))),
        ("latency", "percentile(10)", (10,)),
        ("latency", "percentile2(10)", (10,)),
        ("latency", "histogram(100, 20)", (100, 20)),
        ("*", "labelCount(endpointName)", (Attribute("endpointName"),)),
        ("*", "labelCount(httpResponseStatusCode)", (Attribute("httpResponseStatusCode"),)),
        ("*", "labelCount(type)", (Attribute("type"),)),
        ("latency", 'labelAvg(tag["zone"])', (Tag("zone"),)),
    ],
)
def test_every_function_can_be_called(
    value: str, call: str, arguments: tuple[Argument, ...]
) -> None:
    """Each function with the arguments that it takes; a long will do for a double."""
    metric = only(f"m = from(Service.{value}).{call};")
    assert metric.call == Call(call.partition("(")[0], arguments)
    assert metric.value == (None if value == "*" else Attribute(value))


@pytest.mark.parametrize("call", ["cpm()", "count()", "percent(status == true)"])
def test_a_function_that_counts_rows_drops_the_value(call: str) -> None:
    """The value is checked, and then plays no part: rows without one count as well."""
    assert only(f"m = from(MQAccess.transmissionLatency).{call};").value is None


def test_every_attribute_of_every_source_can_be_named() -> None:
    """Sources and attributes are those of the table."""
    for source in SOURCES.values():
        for attribute in source.attributes:
            metric = only(f"m = from({source.name}.{attribute}).count();")
            assert metric.source == source.name


def test_disable_removes_a_metric_by_its_name() -> None:
    """The other metrics stay, and it does not matter which statement comes first."""
    rules = ["a = from(Service.*).cpm();", "b = from(Service.*).cpm();", "disable(a);"]
    assert [metric.name for metric in metrics("".join(rules))] == ["b"]
    assert [metric.name for metric in metrics("".join(reversed(rules)))] == ["b"]


def test_disable_removes_the_metrics_of_a_source() -> None:
    """The name of a source stands for all its metrics."""
    text = "a = from(Service.*).cpm(); b = from(Endpoint.*).cpm(); disable(Service);"
    assert [metric.name for metric in metrics(text)] == ["b"]


def test_disable_accepts_what_skywalking_does_without_rules() -> None:
    """Streams that only SkyWalking has may be disabled: their files can be used as they are."""
    assert len(metrics("a = from(Service.*).cpm(); disable(segment);")) == 1


def test_empty_statements_are_nothing() -> None:
    """A semicolon too many does no harm."""
    assert len(metrics(";; a = from(Service.*).cpm();;")) == 1


def test_names_of_attributes_are_not_reserved() -> None:
    """What is a name in one place may be another name in the next."""
    metric = only("latency = from(Service.latency).filter(type == RequestType.RPC).longAvg();")
    assert metric.name == "latency"


@pytest.mark.parametrize(
    "rule",
    [
        'm = from((str->long)Service.tag["a \\"b\\""]).longAvg();',
        "m = from((str->double)Service.name).maxDouble();",
        'm = from(Service.*).filter(name in ["ä", "\\u0001"]).filter(latency > 1e300).count();',
        'm = from(Service.*).filter((int)tag["x"] != -5).rate(latency <= 0.1, tags contain "a:b");',
        "m = from(Service.latency).apdex(name, status);",
        "m = from(CacheAccess.latency).filter(operation in (VirtualCacheOperation.Read)).min();",
    ],
)
def test_the_definition_of_a_metric_is_a_rule_that_means_the_same(rule: str) -> None:
    """The canonical text parses to the very metric it was made from, and to the same text."""
    metric = only(rule)
    again = only(f"{metric.name} = {metric.definition};")
    assert again == metric
    assert again.definition == metric.definition


def test_the_number_of_a_metric_is_the_same_forever() -> None:
    """Stores know metrics by this number; another one would orphan all that they hold."""
    metric = only("service_cpm = from(Service.*).cpm();")
    assert metric.id == SERVICE_CPM
    assert metric.id == only("service_cpm = from(Endpoint.*).count();").id
