"""The reference of the language says what the language does."""

import re
from pathlib import Path

import pytest

from penstock.metrics import parse_rules
from penstock.metrics.checking import CALLABLE, EXAMPLES
from penstock.metrics.functions import FUNCTIONS
from penstock.metrics.sources import ENUMERATIONS, SOURCES, Type

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "oal.md"
TYPES = {Type.STRING: "", Type.STRING_LIST: " (list)"}


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the last table below a heading, cell by cell."""
    section = REFERENCE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.split("\n") if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_example_is_without_errors() -> None:
    """What is shown can be copied."""
    (block,) = re.findall(r"```oal\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)
    rules = parse_rules(block)
    assert not rules.diagnostics, "\n".join(map(str, rules.diagnostics))
    assert len(rules.metrics) == 3


def test_the_table_of_sources_is_complete() -> None:
    """Every source with its attributes in their order, their types, and its entity."""
    expected = [
        [
            f"`{source.name}`",
            ", ".join(
                f"**{name}**" if name in source.entity else name + TYPES.get(kind, f" ({kind})")
                for name, kind in source.attributes.items()
            ),
        ]
        for source in SOURCES.values()
    ]
    assert rows("Sources") == expected


def test_the_table_of_functions_is_complete() -> None:
    """Every function that rules can call, with the type of its value."""
    table = [(row[0].strip("`").partition("(")[0], row[1]) for row in rows("Functions")]
    assert table == [(name, str(FUNCTIONS[name].operand or "none")) for name in CALLABLE]


def test_the_table_of_constants_is_complete() -> None:
    """Every constant of every enumeration."""
    table = {row[0].strip("`"): row[1] for row in rows("Conditions") if "." in row[1]}
    for kind, names in ENUMERATIONS.items():
        assert table[kind] == ", ".join(f"`{kind}.{name}`" for name in names)


def test_the_error_that_is_shown_is_what_is_told() -> None:
    """Who reads the reference knows what an error looks like."""
    text = "\n\nservice_cpm = from(Servise.*).cpm();"
    (found,) = parse_rules(text, file="rules.oal").diagnostics
    assert f"```\n{found}\n```" in REFERENCE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CALLABLE)
def test_the_example_of_a_call_is_a_call(name: str) -> None:
    """What messages tell users to write is right."""
    value = "*" if FUNCTIONS[name].operand is None else "latency"
    call = EXAMPLES.get(name, f"{name}()")
    assert not parse_rules(f"m = from(Service.{value}).{call};").diagnostics
