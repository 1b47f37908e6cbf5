"""How the oracle reads conditions: every operator, null, and casts."""

import pytest

from penstock.metrics.definitions import (
    Attribute,
    Condition,
    EnumConstant,
    Literal,
    Operator,
    Tag,
)
from penstock.metrics.sources import Type
from penstock.telemetry import SpanKind
from tests.oracle.conventions import Row, Span, rows
from tests.oracle.rules import is_like, predicate, reader
from tests.oracle.samples import span

ROW: Row = next(
    rows(
        Span(
            span(
                SpanKind.SERVER,
                latency=100,
                http_method="GET",
                http_status_code=404,
                attributes=[("n", "12"), ("user", "eve"), ("empty", "")],
            )
        )
    )
)
LATENCY = Attribute("latency")


def holds(left: Attribute | Tag, operator: Operator, right: Literal | tuple[Literal, ...]) -> bool:
    """Whether a condition holds for ROW."""
    return predicate(Condition(left, operator, right))(ROW)


@pytest.mark.parametrize(
    ("operator", "below", "equal", "above"),
    [
        (Operator.EQ, False, True, False),
        (Operator.NE, True, False, True),
        (Operator.GT, True, False, False),
        (Operator.GE, True, True, False),
        (Operator.LT, False, False, True),
        (Operator.LE, False, True, True),
    ],
)
def test_numbers_are_compared(operator: Operator, *, below: bool, equal: bool, above: bool) -> None:
    """The row's latency is 100; it is compared with 99, 100 and 101, and with fractions."""
    assert [holds(LATENCY, operator, number) for number in (99, 100, 101)] == [below, equal, above]
    assert [holds(LATENCY, operator, number) for number in (99.5, 100.0, 100.5)] == [
        below,
        equal,
        above,
    ]


def test_enumerations_texts_and_booleans_are_compared() -> None:
    """An enumeration's constant is compared by its name."""
    kind = Attribute("type")
    assert holds(kind, Operator.EQ, EnumConstant(Type.REQUEST_TYPE, "HTTP"))
    assert holds(kind, Operator.NE, EnumConstant(Type.REQUEST_TYPE, "MQ"))
    assert holds(Attribute("name"), Operator.EQ, "shop")
    assert not holds(Attribute("name"), Operator.EQ, "Shop")
    assert holds(Attribute("status"), Operator.EQ, right=True)
    assert not holds(Attribute("status"), Operator.EQ, right=False)


def test_in_is_one_of() -> None:
    """The right side of `in` may hold numbers, texts or constants."""
    assert holds(Attribute("httpResponseStatusCode"), Operator.IN, (403, 404))
    assert not holds(Attribute("httpResponseStatusCode"), Operator.IN, (200,))
    assert holds(Attribute("name"), Operator.IN, ("web", "shop"))
    constants = (EnumConstant(Type.REQUEST_TYPE, "HTTP"), EnumConstant(Type.REQUEST_TYPE, "RPC"))
    assert holds(Attribute("type"), Operator.IN, constants)


@pytest.mark.parametrize(
    ("operator", "right"),
    [
        (Operator.NE, None),
        (Operator.EQ, 0),
        (Operator.NE, 0),
        (Operator.GT, -1),
        (Operator.GE, -1),
        (Operator.LT, 1),
        (Operator.LE, 1),
        (Operator.IN, (0, None)),
    ],
)
def test_null_fulfils_nothing(operator: Operator, right: Literal | tuple[Literal, ...]) -> None:
    """Not even `!=`, and not `in` with null among the choices."""
    assert not holds(Attribute("rpcStatusCode"), operator, right)
    assert not holds(Tag("absent", Type.LONG), operator, right)


@pytest.mark.parametrize(
    ("operator", "right"),
    [(Operator.LIKE, "%"), (Operator.CONTAIN, ""), (Operator.NOT_CONTAIN, "x")],
)
def test_a_null_text_fulfils_nothing(operator: Operator, right: str) -> None:
    """A tag that is absent is not like anything."""
    assert not holds(Tag("absent"), operator, right)


def test_null_fulfils_being_null() -> None:
    """`== null` holds for what is absent, and only for that: an empty text is not null."""
    assert holds(Attribute("rpcStatusCode"), Operator.EQ, None)
    assert holds(Tag("absent"), Operator.EQ, None)
    assert holds(Tag("user"), Operator.NE, None)
    assert not holds(Tag("user"), Operator.EQ, None)
    assert not holds(Tag("empty"), Operator.EQ, None)
    assert not holds(Attribute("tags"), Operator.EQ, None)


def test_null_has_no_order() -> None:
    """The language has no such condition; the oracle says so rather than guess."""
    with pytest.raises(ValueError, match="compare null with == or !="):
        holds(LATENCY, Operator.GT, None)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("GET /items", "GET%", True),
        ("GET", "GET%", True),
        ("WIDGET", "GET%", False),
        ("WIDGET", "%GET", True),
        ("WIDGETS", "%GET", False),
        ("WIDGETS", "%GET%", True),
        ("abcabd", "a%abd", True),
        ("abd", "a%abd", False),
        ("aXbXc", "a%b%c", True),
        ("acb", "a%b%c", False),
        ("a_c", "a_c", True),
        ("abc", "a_c", False),
        ("a.c", "a.c", True),
        ("abc", "a.c", False),
        ("ABC", "abc", False),
        ("a\nb", "a%b", True),
        ("", "%", True),
        ("", "%%", True),
        ("a\\b", "a\\%", True),
        ("aba", "ab%ba", False),
    ],
)
def test_like_knows_one_wildcard(text: str, pattern: str, expected: bool) -> None:  # noqa: FBT001 - the expectation
    """% is any text, also none; all else stands for itself, and the whole text has to fit."""
    assert is_like(text, pattern) is expected


def test_like_is_applied_to_attributes_and_tags() -> None:
    """The operand's text is matched."""
    assert holds(Attribute("name"), Operator.LIKE, "sh%")
    assert holds(Tag("user"), Operator.LIKE, "%ve")
    assert not holds(Tag("user"), Operator.LIKE, "%bob%")


def test_contain_compares_whole_elements() -> None:
    """A part of an element is not contained; promoted attributes are elements too."""
    tags = Attribute("tags")
    assert holds(tags, Operator.CONTAIN, "user:eve")
    assert holds(tags, Operator.CONTAIN, "http.response.status_code:404")
    assert not holds(tags, Operator.CONTAIN, "user:ev")
    assert holds(tags, Operator.NOT_CONTAIN, "user:ev")
    assert not holds(tags, Operator.NOT_CONTAIN, "user:eve")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("", None),
        ("-", None),
        (" 12", None),
        ("12\n", None),
        ("1.0", None),
        ("1e3", None),
        ("1_000", None),
        ("\u0661", None),
    ],
)
def test_text_is_read_as_a_whole_number(text: str, number: int | None) -> None:
    """An optional sign and up to 18 digits; anything else is null."""
    (row, *_) = rows(Span(span(attributes=[("n", text)])))
    assert reader(Tag("n", Type.LONG))(row) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12.0),
        ("-0.5", -0.5),
        ("+1.5e3", 1500.0),
        ("1E-2", 0.01),
        ("", None),
        (".", None),
        ("1e", None),
        (" 1", None),
        ("1 ", None),
        ("nan", None),
        ("Infinity", None),
        ("0x10", None),
        ("1d", None),
        ("1,5", None),
    ],
)
def test_text_is_read_as_a_fraction(text: str, number: float | None) -> None:
    """Decimal notation with an optional exponent; anything else is null."""
    (row, *_) = rows(Span(span(attributes=[("n", text)])))
    assert reader(Tag("n", Type.DOUBLE))(row) == number


def test_a_cast_reads_promoted_attributes_and_leaves_numbers_alone() -> None:
    """A tag is text and becomes a number again; an attribute that is a number stays one."""
    assert reader(Tag("http.response.status_code"))(ROW) == "404"
    assert reader(Tag("http.response.status_code", Type.LONG))(ROW) == 404
    assert reader(Attribute("httpResponseStatusCode", Type.LONG))(ROW) == 404
    assert reader(Tag("user", Type.STRING))(ROW) == "eve"


def test_a_cast_that_the_conventions_lack_is_refused() -> None:
    """The oracle does not guess what (str->bool) could mean."""
    with pytest.raises(ValueError, match="no cast to bool"):
        reader(Tag("n", Type.BOOL))(ROW)
