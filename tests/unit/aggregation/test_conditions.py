"""Operands and conditions, over rows that each make a difference."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.aggregation.columns import Numbers, Texts
from penstock.aggregation.conditions import operand_column, truth
from penstock.aggregation.selections import select
from penstock.aggregation.spans import Selection, SpanFrame
from penstock.metrics.definitions import (
    Attribute,
    Condition,
    EnumConstant,
    Literal,
    Operand,
    Operator,
    Tag,
)
from penstock.metrics.sources import Type
from penstock.telemetry import SPANS, StatusCode
from tests.oracle.samples import span

CODE = Attribute("httpResponseStatusCode")
NAME = Attribute("serviceInstanceName")
X = Tag("x")


def rows(*columns: dict[str, Any]) -> Selection:
    """Return rows of Service, one of each span."""
    spans = [span() | given for given in columns]
    batch = pa.RecordBatch.from_pylist(spans, schema=SPANS)
    (selection,) = select(SpanFrame(batch), "Service")
    return selection


def tagged(*values: str | None) -> Selection:
    """Return rows whose attribute ``x`` has the values; None is no such attribute."""
    return rows(*({"attributes": [] if v is None else [("x", v)]} for v in values))


def holds(
    selection: Selection,
    left: Operand,
    operator: Operator,
    right: Literal | tuple[Literal, ...],
) -> list[bool]:
    """Return for which rows the condition holds."""
    found: list[bool] = truth(selection, Condition(left, operator, right)).tolist()
    return found


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (Operator.EQ, [False, True, False, False]),
        (Operator.NE, [True, False, True, False]),
        (Operator.GT, [False, False, True, False]),
        (Operator.GE, [False, True, True, False]),
        (Operator.LT, [True, False, False, False]),
        (Operator.LE, [True, True, False, False]),
    ],
)
def test_numbers_are_ordered(operator: Operator, expected: list[bool]) -> None:
    """A null fulfils none of the comparisons, not even the one for difference."""
    selection = rows(*({"http_status_code": code} for code in (200, 404, 500, None)))
    assert holds(selection, CODE, operator, 404) == expected


def test_whole_numbers_are_compared_with_fractions() -> None:
    """500 is more than 499.5."""
    selection = rows({"http_status_code": 499}, {"http_status_code": 500})
    assert holds(selection, CODE, Operator.GT, 499.5) == [False, True]


def test_null_is_told_from_everything_else() -> None:
    """Of numbers, texts and tags; what is never null is never null."""
    numbers = rows({"http_status_code": None}, {"http_status_code": 0})
    assert holds(numbers, CODE, Operator.EQ, None) == [True, False]
    assert holds(numbers, CODE, Operator.NE, None) == [False, True]
    texts = tagged(None, "", "a")
    assert holds(texts, X, Operator.EQ, None) == [True, True, False]
    assert holds(texts, X, Operator.NE, None) == [False, False, True]
    assert holds(texts, Attribute("status"), Operator.EQ, None) == [False, False, False]
    assert holds(texts, Attribute("latency"), Operator.NE, None) == [True, True, True]


def test_texts_are_equal_or_not() -> None:
    """A null is neither."""
    selection = tagged("a", "A", None)
    assert holds(selection, X, Operator.EQ, "a") == [True, False, False]
    assert holds(selection, X, Operator.NE, "a") == [False, True, False]


def test_a_text_is_one_of_several() -> None:
    """A null is none of them."""
    assert holds(tagged("a", "b", "c", None), X, Operator.IN, ("a", "c")) == [
        True,
        False,
        True,
        False,
    ]


def test_a_number_is_one_of_several() -> None:
    """The 0 that stands in the place of a null is not meant."""
    selection = rows(*({"http_status_code": code} for code in (0, 404, None)))
    assert holds(selection, CODE, Operator.IN, (0, 500)) == [True, False, False]


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        ("GET %", ["GET /", "GET /a.b\nc"]),
        ("%", ["GET /", "GET /a.b\nc", "POST /", "GET"]),
        ("GET", ["GET"]),
        ("%/", ["GET /", "POST /"]),
        ("%E%.%", ["GET /a.b\nc"]),
        ("G.T%", []),
    ],
)
def test_like_has_one_special_sign(pattern: str, fitting: list[str]) -> None:
    """A percent sign is any text, also none and with lines; all else stands for itself."""
    names = ["GET /", "GET /a.b\nc", "POST /", "GET"]
    found = holds(tagged(*names, None), X, Operator.LIKE, pattern)
    assert [name for name, fits in zip(names, found, strict=False) if fits] == fitting
    assert not found[-1]


def test_truths_are_compared() -> None:
    """With true and with false."""
    selection = rows({"status_code": int(StatusCode.ERROR)}, {"status_code": int(StatusCode.OK)})
    status = Attribute("status")
    assert holds(selection, status, Operator.EQ, right=True) == [False, True]
    assert holds(selection, status, Operator.NE, right=True) == [True, False]


def test_enumerations_are_compared_with_their_constants() -> None:
    """One, or one of several."""
    selection = rows({"rpc_system": "grpc"}, {"http_method": "GET"})
    grpc, http = (EnumConstant(Type.REQUEST_TYPE, name) for name in ("gRPC", "HTTP"))
    assert holds(selection, Attribute("type"), Operator.EQ, grpc) == [True, False]
    assert holds(selection, Attribute("type"), Operator.IN, (grpc, http)) == [True, True]


def test_tags_contain_whole_elements() -> None:
    """Key and value, whatever colons either has; promoted attributes are among them."""
    selection = rows(
        {"attributes": [("a", "b:c")]},
        {"attributes": [("a:b", "c")]},
        {"attributes": [("a", "b")]},
        {"attributes": None, "http_method": "GET"},
    )
    tags = Attribute("tags")
    assert holds(selection, tags, Operator.CONTAIN, "a:b:c") == [True, True, False, False]
    assert holds(selection, tags, Operator.NOT_CONTAIN, "a:b:c") == [False, False, True, True]
    assert holds(selection, tags, Operator.CONTAIN, "http.request.method:GET") == [
        False,
        False,
        False,
        True,
    ]
    assert holds(selection, tags, Operator.CONTAIN, "no colon") == [False] * 4


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-17", -17),
        ("+5", 5),
        ("999999999999999999", 999999999999999999),
        ("1000000000000000000", None),
        ("3.0", None),
        (" 3", None),
        ("1_000", None),
        ("\u0663", None),
        ("3\n", None),
        ("", None),
        (None, None),
    ],
)
def test_text_is_read_as_a_whole_number(text: str | None, number: int | None) -> None:
    """An optional sign and up to 18 digits; anything else is null."""
    found = operand_column(tagged(text), Tag("x", Type.LONG))
    assert isinstance(found, Numbers)
    assert (found.values.tolist()[0] if found.is_valid()[0] else None) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("1e3", 1000.0),
        ("1E-0003", 0.001),
        ("1e400", None),
        ("nan", None),
        ("inf", None),
        ("0x10", None),
        ("1e", None),
        (".", None),
        ("1,5", None),
        (None, None),
    ],
)
def test_text_is_read_as_a_fraction(text: str | None, number: float | None) -> None:
    """Decimal notation with an optional exponent, and finite; anything else is null."""
    found = operand_column(tagged(text), Tag("x", Type.DOUBLE))
    assert isinstance(found, Numbers)
    got = found.values.tolist()[0] if found.is_valid()[0] else math.nan
    assert got == number or (number is None and math.isnan(got))


def test_a_cast_of_a_number_changes_nothing() -> None:
    """It is of its own type already."""
    found = operand_column(rows({"http_status_code": 7}), Attribute(CODE.name, Type.LONG))
    assert isinstance(found, Numbers)
    assert found.values.tolist() == [7]


def test_a_cast_to_text_changes_nothing() -> None:
    """Nor of a text."""
    found = operand_column(tagged("a"), Tag("x", Type.STRING))
    assert isinstance(found, Texts)
    assert [found.values[code] for code in found.codes] == ["a"]


def test_rows_of_a_selection_are_those_of_the_source() -> None:
    """A condition has one answer for each of them, whatever else is in the batch."""
    batch = pa.RecordBatch.from_pylist(
        [span(kind=1), span(service_instance="a"), span(service_instance="b")],  # type: ignore[arg-type]
        schema=SPANS,
    )
    (selection,) = select(SpanFrame(batch), "Service")
    assert np.array_equal(selection.rows, [1, 2])
    assert holds(selection, NAME, Operator.EQ, "b") == [False, True]
