"""Every requirement of the original has its row, and every row its tests."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "requirements.md"

# The numbers of all 109 requirements, gaps and all.
REQUIREMENTS = {
    *(f"42_{number:03}" for number in range(1, 46)),
    *(f"42_{number:03}" for number in (*range(49, 65), 67, 68, *range(72, 78), 79)),
    *(f"42_{number:03}" for number in (*range(81, 95), *range(102, 111))),
    *(f"45_{number:03}" for number in range(1, 17)),
}

# Null handles and growing arrays: Python has neither.
NOTHING_TO_TEST = {
    *("42_011", "42_017", "42_027", "42_036", "42_052", "42_059", "42_067", "42_088"),
}


def rows() -> dict[str, tuple[str, list[str]]]:
    """Return what the page says of each requirement, and the tests that it names."""
    row = re.compile(r"^\| (4[25]_\d{3}) \| (.+) \| (.+) \|$", re.MULTILINE)
    found = row.findall(PAGE.read_text("utf-8"))
    assert len(found) == len({number for number, _, _ in found}), "a requirement has two rows"
    return {number: (text, re.findall(r"`(test_\w+)`", tests)) for number, text, tests in found}


@cache
def marked() -> dict[str, set[str]]:
    """Return the tests that are marked with each requirement, by looking at the files."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for number in numbers_of(node):
                    found[number].add(node.name)
    return dict(found)


def numbers_of(test: ast.FunctionDef) -> list[str]:
    """Return the requirements that a test is marked with."""
    return [
        ast.literal_eval(argument)
        for mark in test.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.srs"
        for argument in mark.args
    ]


def test_there_are_109_requirements() -> None:
    """As many as the original has."""
    assert len(REQUIREMENTS) == 109


def test_every_requirement_has_a_row() -> None:
    """And no row is about anything else."""
    assert set(rows()) == REQUIREMENTS


@pytest.mark.parametrize("number", sorted(REQUIREMENTS))
def test_the_tests_of_a_requirement_exist_and_are_marked_with_it(number: str) -> None:
    """The page names exactly those that are; none only where there is nothing to test."""
    text, tests = rows()[number]
    assert len(text) > 10
    assert sorted(tests) == sorted(marked().get(number, set()))
    assert bool(tests) is (number not in NOTHING_TO_TEST)


def test_no_test_is_marked_with_an_unknown_requirement() -> None:
    """A typo would hide what is not tested."""
    assert set(marked()) <= REQUIREMENTS
