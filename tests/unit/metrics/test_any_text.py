"""Whatever is given to the parser: it answers, its errors have places, its metrics round-trip."""

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from penstock.metrics import Rules, default_rules, parse_files, parse_rules
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
from penstock.metrics.sources import ENUMERATIONS, SOURCES, Type

# The machine may be busy with something else.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

WORDS = (
    *("m", "=", "from", "(", ")", "Service", "Endpoint", ".", "*", "latency", "name", "status"),
    *("tag", '["x"]', "[", "]", "(str->long)", "->", "filter", "==", "!=", ">", "<=", "in"),
    *("like", "contain", "not", "null", "true", "false", "5", "-1", "1.5", '"text"', ",", ";"),
    *("RequestType.MQ", "longAvg", "cpm", "percent", "apdex", "histogram", "decorator", "disable"),
    *(".filter(status == true)", ".cpm();", "m = from(Service.*)", "\n", "\t", " ", '"', "'"),
    *("//", "/*", "*/", "\\", "\r", "\0", "é", "\ud800", "9" * 30, "1e400"),
)


def check_answer(rules: Rules, lines: list[str]) -> None:
    """Check that all errors can be shown, and lie within the text; that metrics round-trip."""
    for diagnostic in rules.diagnostics:
        assert diagnostic.message
        assert diagnostic.suggestion
        assert 1 <= diagnostic.line <= len(lines)
        assert 1 <= diagnostic.column <= len(lines[diagnostic.line - 1]) + 1
        assert diagnostic.message in str(diagnostic)
        str(diagnostic).encode()  # can be printed, whatever the text is
    for metric in rules.metrics:
        assert parsed(metric) == metric


def parsed(metric: Metric) -> Metric:
    """Return what the canonical text of *metric* means."""
    rules = parse_rules(f"{metric.name} = {metric.definition};")
    assert not rules.diagnostics, "\n".join(map(str, rules.diagnostics))
    return rules.metrics[0]


def lines_of(text: str) -> list[str]:
    """Cut a text into lines as an editor would."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@PATIENT
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_answered(text: str) -> None:
    """No text makes the parser fail, also not one with half characters in it."""
    check_answer(parse_rules(text), lines_of(text))


@settings(PATIENT, max_examples=500)
@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
def test_any_sequence_of_words_is_answered(text: str) -> None:
    """Nor does anything that looks like rules."""
    check_answer(parse_rules(text), lines_of(text))


@settings(PATIENT, max_examples=300)
@given(st.data())
def test_a_rule_with_one_word_changed_is_answered(data: st.DataObject) -> None:
    """A good rule that was damaged in one place is told where, or still is a rule."""
    metric = data.draw(st.sampled_from(default_rules()))
    rule = f"{metric.name} = {metric.definition};"
    begin = data.draw(st.integers(0, len(rule)))
    end = data.draw(st.integers(begin, min(len(rule), begin + 10)))
    text = rule[:begin] + data.draw(st.sampled_from(("", *WORDS))) + rule[end:]
    check_answer(parse_rules(text), lines_of(text))


@PATIENT
@given(content=st.binary() | st.text().map(lambda text: text.encode("utf-16")))
def test_any_file_is_answered(content: bytes, tmp_path: Path) -> None:
    """No content of a file makes the parser fail."""
    path = tmp_path / "any.oal"
    path.write_bytes(content)
    rules = parse_files([path])
    lines = content.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    check_answer(rules, lines)


# ---- every metric that can be defined -----------------------------------------------------------

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: (
        name
        not in {
            *("from", "filter", "decorator", "disable"),
            *("true", "false", "null", "in", "like", "not", "contain"),
        }
    )
)
texts = st.text(st.characters(exclude_categories=["Cs"]))
keys = texts.filter(bool)
wholes = st.integers(-(2**63), 2**63 - 1)
reals = st.floats(allow_nan=False, allow_infinity=False)
casts = st.sampled_from([None, Type.LONG, Type.DOUBLE])
LITERALS: dict[Type, st.SearchStrategy[Any]] = {
    Type.STRING: texts,
    Type.LONG: wholes | reals,
    Type.DOUBLE: wholes | reals,
    Type.BOOL: st.booleans(),
    **{
        kind: st.sampled_from([EnumConstant(kind, name) for name in constants])
        for kind, constants in ENUMERATIONS.items()
    },
}


def draw_operand(draw: st.DrawFn, source: str) -> tuple[Operand, Type]:
    """Draw an attribute or a tag, and the type that it is read as."""
    if draw(st.booleans()):
        cast = draw(casts)
        return Tag(draw(keys), cast), cast or Type.STRING
    name, kind = draw(st.sampled_from(sorted(SOURCES[source].attributes.items())))
    cast = draw(casts) if kind is Type.STRING else None
    return Attribute(name, cast), cast or kind


def draw_condition(draw: st.DrawFn, source: str) -> Condition:
    """Draw a condition whose sides fit together."""
    operand, kind = draw_operand(draw, source)
    if kind is Type.STRING_LIST:
        operator = draw(st.sampled_from([Operator.CONTAIN, Operator.NOT_CONTAIN]))
        return Condition(operand, operator, draw(texts))
    allowed = [Operator.EQ, Operator.NE, Operator.IN]
    if kind is Type.STRING:
        allowed.append(Operator.LIKE)
    if kind in {Type.LONG, Type.DOUBLE}:
        allowed += [Operator.GT, Operator.GE, Operator.LT, Operator.LE]
    operator = draw(st.sampled_from(allowed))
    if operator is Operator.IN:
        return Condition(operand, operator, tuple(draw(st.lists(LITERALS[kind], min_size=1))))
    if operator in {Operator.EQ, Operator.NE} and draw(st.booleans()):
        return Condition(operand, operator, None)
    return Condition(operand, operator, draw(LITERALS[kind]))


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    """Draw a metric of any source with any function, conditions included."""
    source = draw(st.sampled_from(sorted(SOURCES)))
    number = draw(st.integers(1, 1000))
    string = next(name for name, kind in SOURCES[source].attributes.items() if kind is Type.STRING)
    long, double = Tag("n", Type.LONG), Tag("n", Type.DOUBLE)
    value, call = draw(
        st.sampled_from(
            [
                (None, Call("cpm")),
                (None, Call("percent", (draw_condition(draw, source),))),
                (None, Call("rate", tuple(draw_condition(draw, source) for _ in range(2)))),
                (None, Call("labelCount", (Tag(draw(keys)),))),
                (Attribute("latency"), Call("longAvg")),
                (Attribute("latency"), Call("histogram", (number, number))),
                (Attribute(string, Type.LONG), Call("percentile2", (draw(reals),))),
                (Tag(draw(keys), Type.LONG), Call("sum")),
                (double, Call("maxDouble")),
                (long, Call("doubleAvg")),
                (long, Call("apdex", (Attribute(string), Attribute("status")))),
                (long, Call("labelAvg", (Attribute(string),))),
            ]
        )
    )
    filters = tuple(draw_condition(draw, source) for _ in range(draw(st.integers(0, 2))))
    return Metric(draw(names), source, value, filters, call)


@settings(PATIENT, max_examples=300)
@given(metrics())
def test_the_canonical_text_of_any_metric_means_that_metric(metric: Metric) -> None:
    """Text, numbers, casts and enumerations: all of a definition survives being written."""
    again = parsed(metric)
    assert again == metric
    assert again.definition == metric.definition
