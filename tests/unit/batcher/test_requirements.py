"""The page of requirements is complete, and the tests that it names are there and say so."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# In the order of the specification, without the prefix that all of them have.
SPECIFIED = """
    42_001 42_002 42_003 42_004 42_005 42_006 42_007 42_008 45_013 42_020 42_009 42_010 42_011
    42_012 42_013 42_014 45_014 42_015 42_016 42_017 42_018 42_019 42_021 45_015 42_022 42_107
    42_108 42_023 42_024 42_025 42_026 42_027 42_028 42_029 42_030 45_016 42_102 42_103 42_104
    42_031 42_032 42_033 42_034 42_035 42_036 42_037 42_038 42_039 42_040 42_041 42_042 42_043
    42_044 42_045 42_049 42_050 42_051 42_052 45_010 42_053 45_011 42_054 42_105 42_109 45_012
    42_055 42_056 42_057 42_058 42_059 45_001 45_002 45_003 45_005 45_004 42_060 42_061 42_062
    42_063 42_064 42_106 42_067 42_068 42_072 42_073 42_074 42_075 42_076 42_077 42_079 45_007
    45_008 45_009 42_081 42_082 42_083 42_084 42_085 42_086 42_087 42_110 42_088 42_089 42_090
    42_091 42_092 42_093 42_094 45_006
"""
IDS = SPECIFIED.split()

ROW = re.compile(r"^\| `SRS_BATCH_QUEUE_(\w+)` \|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One line of the page."""

    srs: str
    asks: str
    tests: tuple[str, ...]
    behaviour: str


def rows_of(page: str) -> list[Row]:
    """Return the rows of the page's tables."""
    return [
        Row(srs, asks.strip(), tuple(re.findall(r"`(test_\w+)`", tests)), behaviour.strip())
        for srs, asks, tests, behaviour in ROW.findall(page)
    ]


def marks_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the requirements in the markers of a test."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.srs":
            yield from (ast.literal_eval(argument) for argument in decorator.args)


def marked_tests() -> dict[str, set[str]]:
    """Return every function in the tests with the requirements it is marked with."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(node.name, set()).update(marks_of(node))
    return found


def faults_of(rows: list[Row], tests: dict[str, set[str]]) -> list[str]:
    """Return what is wrong between the page and the tests, in words."""
    on_page = [row.srs for row in rows]
    pairs = [(row, test) for row in rows for test in row.tests]
    return [
        *(f"{srs} has no row" for srs in IDS if srs not in on_page),
        *(f"{srs} is no requirement" for srs in on_page if srs not in IDS),
        *(f"{srs} has two rows" for srs in sorted(set(on_page)) if on_page.count(srs) > 1),
        *(f"{row.srs} does not say what it asks" for row in rows if not row.asks),
        *(f"{row.srs} is empty" for row in rows if not (row.tests or row.behaviour)),
        *(f"{row.srs}: there is no {test}" for row, test in pairs if test not in tests),
        *(
            f"{row.srs}: {test} lacks the marker"
            for row, test in pairs
            if test in tests and row.srs not in tests[test]
        ),
        *(
            f"{name} is marked with {srs}, which has no row"
            for name, marks in sorted(tests.items())
            for srs in sorted(marks - set(on_page))
        ),
    ]


def test_there_are_109_requirements() -> None:
    """The list in this file is that of the specification."""
    assert len(IDS) == len(set(IDS)) == 109


def test_the_page_and_the_tests_agree() -> None:
    """Every requirement has its row, every row its test or behaviour, every test its marker."""
    page = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    assert faults_of(rows_of(page), marked_tests()) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| `SRS_BATCH_QUEUE_42_001` | asks | `test_gone` | |", "42_001: there is no test_gone"),
        ("| `SRS_BATCH_QUEUE_42_001` | asks | `test_b` | |", "42_001: test_b lacks the marker"),
        ("| `SRS_BATCH_QUEUE_42_001` | asks | | |", "42_001 is empty"),
        ("| `SRS_BATCH_QUEUE_42_001` | | `test_a` | |", "42_001 does not say what it asks"),
        ("| `SRS_BATCH_QUEUE_42_999` | asks | | so |", "42_999 is no requirement"),
        ("", "42_001 has no row"),
        ("", "test_a is marked with 42_001, which has no row"),
    ],
)
def test_what_is_wrong_is_noticed(row: str, fault: str) -> None:
    """The check above can fail, in each of its ways."""
    assert fault in faults_of(rows_of(row), {"test_a": {"42_001"}, "test_b": set()})
