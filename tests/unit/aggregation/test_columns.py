"""Texts by code, numbers with a mask, groups by number."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.aggregation.columns import Numbers, Texts, group_codes, sums_by_group


def shown(texts: Texts) -> list[str | None]:
    """Return what each row says."""
    return [texts.values[code] if code >= 0 else None for code in texts.codes.tolist()]


def texts(*values: str | None) -> Texts:
    """Return a column of texts."""
    return Texts.of(pa.array(values, pa.string()))


def test_numbers_without_nulls_need_no_mask() -> None:
    """All rows are valid, and nothing is kept to say so."""
    numbers = Numbers.of(pa.array([3, 1, 2]))
    assert numbers.valid is None
    assert numbers.is_valid().tolist() == [True, True, True]


def test_numbers_with_nulls_have_a_mask() -> None:
    """Taking rows takes their part of it."""
    numbers = Numbers.of(pa.array([3, None, 2])).take(np.array([1, 2]))
    assert numbers.is_valid().tolist() == [False, True]
    assert numbers.values[1] == 2


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_an_empty_text_is_null(kind: pa.DataType) -> None:
    """Whether the column comes encoded or not."""
    column = pa.array(["a", "", None, "b", "a"], pa.string()).cast(kind)
    found = Texts.of(column)
    assert shown(found) == ["a", None, None, "b", "a"]
    assert found.is_valid().tolist() == [True, False, False, True, True]


def test_a_dictionary_may_hold_null_and_values_that_no_row_has() -> None:
    """Codes that lead to null are null."""
    column = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 2], pa.int32()), pa.array([None, "a", "", "unused"])
    )
    assert shown(Texts.of(column)) == ["a", None, None, None]


def test_no_rows_are_no_texts() -> None:
    """An empty column works like any other."""
    assert shown(texts().mapped(str.upper)) == []


def test_a_constant_is_the_same_for_every_row() -> None:
    """Also for no row at all."""
    assert shown(Texts.constant("x", 2)) == ["x", "x"]
    assert shown(Texts.constant("x", 0)) == []


def test_a_predicate_is_asked_once_for_each_text() -> None:
    """Null fulfils none."""
    asked: list[str] = []

    def is_a(text: str) -> bool:
        asked.append(text)
        return text == "a"

    assert texts("a", None, "b", "a").where(is_a).tolist() == [True, False, False, True]
    assert asked == ["a", "b"]


def test_texts_that_get_the_same_name_become_one() -> None:
    """What is renamed to nothing is null."""
    found = texts("a", "A", "b", None, "c").mapped(lambda text: None if text == "c" else text[0])
    renamed = texts("a", "A", "b", None, "c").mapped(
        lambda text: None if text == "c" else text.upper()
    )
    assert shown(found) == ["a", "A", "b", None, None]
    assert shown(renamed) == ["A", "A", "B", None, None]
    assert sorted(renamed.values) == ["A", "B"]


def test_texts_are_parsed_once_each() -> None:
    """What is no number is null."""
    found = texts("7", "x", None, "7").parsed(
        lambda text: int(text) if text != "x" else None, np.int64
    )
    assert found.is_valid().tolist() == [True, False, False, True]
    assert found.values[[0, 3]].tolist() == [7, 7]


def test_columns_are_joined_by_row() -> None:
    """Each combination is built once; null is told as None, and nothing as null."""
    built: list[tuple[str | None, str | None]] = []

    def build(one: str | None, other: str | None) -> str | None:
        built.append((one, other))
        return f"{one}-{other}" if one and other else one

    found = Texts.joined(build, texts("a", "a", None, "b", "a"), texts("x", None, "y", "x", "x"))
    assert shown(found) == ["a-x", "a", None, "b-x", "a-x"]
    assert len(built) == len(set(built)) == 4


def test_equal_results_of_a_join_have_one_code() -> None:
    """Whatever they were built from."""
    found = Texts.joined(lambda one, other: f"{one}{other}", texts("a", "ab"), texts("bc", "c"))
    assert shown(found) == ["abc", "abc"]
    assert len(set(found.codes.tolist())) == 1


@pytest.mark.parametrize("size", [10, 10**15], ids=["by a table", "by hashing"])
def test_groups_are_numbered(size: int) -> None:
    """Equal keys have one number, and the number leads to the key."""
    keys = np.array([7, 3, 7, 9, 3])
    number, distinct = group_codes(keys, size)
    assert distinct[number].tolist() == keys.tolist()
    assert sorted(distinct.tolist()) == [3, 7, 9]
    assert number.max() == 2


@pytest.mark.parametrize("size", [0, 10**15])
def test_no_rows_are_no_groups(size: int) -> None:
    """There is nothing to number."""
    number, distinct = group_codes(np.array([], dtype=np.int64), size)
    assert (len(number), len(distinct)) == (0, 0)


def test_sums_of_whole_numbers_are_exact_beyond_a_float() -> None:
    """2**53 + 1 is the first whole number that a float cannot tell from its neighbour."""
    values = np.array([2**53, 1, -5, 2**61], dtype=np.int64)
    sums = sums_by_group(np.array([0, 0, 1, 1]), values, 3)
    assert sums.dtype == np.int64
    assert sums.tolist() == [2**53 + 1, 2**61 - 5, 0]


def test_sums_of_small_whole_numbers_stay_whole() -> None:
    """A group without rows has the sum 0."""
    sums = sums_by_group(np.array([2, 2]), np.array([3, 4]), 3)
    assert sums.dtype == np.int64
    assert sums.tolist() == [0, 0, 7]


def test_sums_of_fractions_are_fractions() -> None:
    """And so is the sum of none."""
    assert sums_by_group(np.array([0, 0]), np.array([0.5, 0.25]), 2).tolist() == [0.75, 0.0]


def test_sums_of_no_rows_are_zero() -> None:
    """Of whole numbers as of fractions."""
    nothing = np.array([], dtype=np.int64)
    assert sums_by_group(nothing, nothing, 2).tolist() == [0, 0]
