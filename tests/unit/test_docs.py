"""The documents say what is so: names, links, tables and code in them are checked here."""

import argparse
import ast
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import BatchQueueConfig, errors, presets
from penstock.batcher import BatchSettings
from penstock.bench.registry import BENCHES
from penstock.cli import main
from penstock.metrics import default_rules

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "penstock").rglob("*.py"))
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CLI_REFERENCE = "docs/reference/cli.md"

TEST_NAME = re.compile(r"\btest_\w+\b(?!\.py)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]+`(?!\]\()", re.DOTALL | re.MULTILINE)
EVENT = re.compile(r"\"((?:queue|scheduler|batcher|job|lease)\.[a-z_]+)[\":]")
MODULE_ROW = re.compile(r"^\| `(penstock\.[\w.]+)`((?:, `\w+`)*) \|", re.MULTILINE)
COMMAND = re.compile(r"^## (penstock [a-z ]+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"^\| `([^`]+)` \| (?:`([^`]+)`)? ?\|", re.MULTILINE)


def relative(path: Path) -> str:
    """Name a file from the root of the repository, for test ids and messages."""
    return path.relative_to(ROOT).as_posix()


def read(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def first_column(name: str) -> list[str]:
    """Return what stands in backquotes at the start of each table row of a document."""
    return re.findall(r"^\| `([^`]+)`", read(name), re.MULTILINE)


def existing_tests() -> set[str]:
    """Return the name of every test function and test module, by looking at the files."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    functions = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
    return {
        *(path.stem for path in files),
        *(name for path in files for name in functions.findall(path.read_text(encoding="utf-8"))),
    }


def guards_in_comments() -> set[str]:
    """Return the tests that comments of the source name as guards of an invariant."""
    comments = (
        line
        for path in SOURCES
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith("#")
    )
    return {name for line in comments for name in TEST_NAME.findall(line)}


def test_every_test_named_in_the_architecture_exists() -> None:
    """A promise is guarded by a test that can be run."""
    named = set(TEST_NAME.findall(read("ARCHITECTURE.md")))
    assert named
    assert sorted(named - existing_tests()) == []


def test_every_test_named_in_an_invariant_exists() -> None:
    """The comment above a class and the tests do not drift apart."""
    named = guards_in_comments()
    assert named
    assert sorted(named - existing_tests()) == []


def test_the_architecture_lists_every_guard() -> None:
    """The table of promises is complete: no invariant is missing from it."""
    assert sorted(guards_in_comments() - set(TEST_NAME.findall(read("ARCHITECTURE.md")))) == []


def test_the_module_map_leads_to_every_module() -> None:
    """A module stands in the map by its own name or by that of its package, and nothing else does.

    Of several names in one row, the first is whole, and the others lie beside it.
    """
    there = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
    }
    listed = {
        name if name.startswith("penstock.") else f"{first.rpartition('.')[0]}.{name}"
        for first, *beside in MODULE_ROW.findall(read("ARCHITECTURE.md"))
        for name in (first, *re.findall(r"`([^`]+)`", beside[0]))
    }
    packages = {"penstock", *(f"penstock.{path.parent.name}" for path in SOURCES)}
    assert sorted(listed - there) == []
    assert [
        name
        for name in sorted(there - packages)
        if name not in listed and name.rpartition(".")[0] not in listed
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_link_leads_somewhere(document: Path) -> None:
    """A relative link names a file or folder that is there."""
    links = LINK.findall(CODE.sub("", document.read_text(encoding="utf-8")))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_code_block_is_python(document: Path) -> None:
    """What is shown can at least be parsed; a typing error would not be noticed otherwise."""
    for block in PYTHON.findall(document.read_text(encoding="utf-8")):
        compile(block, relative(document), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("document", ["README.md", "docs/tutorial.md"])
def test_the_code_of_a_document_runs(document: str, tmp_path: Path) -> None:
    """The blocks of the document, one after the other, are a program that ends well."""
    script = tmp_path / "document.py"
    script.write_text("\n".join(PYTHON.findall(read(document))), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_opens_with_the_first_example() -> None:
    """The block that newcomers paste is the example that is kept in working order."""
    first = PYTHON.findall(read("README.md"))[0]
    assert first == read("examples/hello_queue.py")


def test_the_reference_lists_every_setting_with_its_default() -> None:
    """The table has the fields of the configuration, in their order, with their defaults."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)`", read("docs/reference/config.md"), re.MULTILINE)
    settings = [
        (field.name, str(field.default) if field.name == "strategy" else repr(field.default))
        for field in dataclasses.fields(BatchQueueConfig)
    ]
    assert rows[: len(settings)] == settings


def test_the_reference_lists_every_setting_of_a_batcher_with_its_default() -> None:
    """The table has the fields of the settings, in their order, with their defaults."""
    rows = re.findall(
        r"^\| `([^`]+)` \| `([^`]+)`", read("docs/reference/batcher.md"), re.MULTILINE
    )
    settings = [(field.name, repr(field.default)) for field in dataclasses.fields(BatchSettings)]
    assert rows[: len(settings)] == settings


def test_the_reference_lists_every_error() -> None:
    """Every exception that penstock raises on purpose is described."""
    assert sorted(first_column("docs/reference/errors.md")) == sorted(errors.__all__)


def logged_messages(path: Path) -> Iterator[str]:
    """Yield the texts that a module gives to its logger, as far as they stand in the call."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in {"log", "_log", "logger"}
            and node.func.attr in {"debug", "info", "warning", "error", "exception"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def test_the_reference_lists_every_log_event() -> None:
    """Every event that penstock logs is described, and no other."""
    logged = {
        event for path in SOURCES for event in EVENT.findall(path.read_text(encoding="utf-8"))
    }
    said = {text.partition(":")[0] for path in SOURCES for text in logged_messages(path)}
    assert set(first_column("docs/reference/log-events.md")) == logged | said


def commands(
    parser: argparse.ArgumentParser, name: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command that does something itself, with its parser."""
    groups = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for group in groups:
        for word, below in group.choices.items():
            yield from commands(below, f"{name} {word}")
    if not groups:
        yield name, parser


def options(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the options and arguments of a command, with the defaults that say something.

    Those that it only passes on to a part stand where the part is described.
    """
    return {
        (action.option_strings or [str(action.metavar)])[-1]: str(action.default or "")
        for action in parser._actions
        if "--help" not in action.option_strings and action.default is not argparse.SUPPRESS
    }


def test_the_reference_lists_every_command_with_its_options() -> None:
    """Every option of every command is described, with its default, and no other."""
    described = {
        name: dict(OPTION.findall(text)) for name, text in COMMAND.findall(read(CLI_REFERENCE))
    }
    offered = {name: options(below) for name, below in commands(main._parser(), "penstock")}
    offered["penstock bench"]["NAME"] = ""
    assert described == offered
    assert [name for name in BENCHES if f"`{name}`" not in read(CLI_REFERENCE)] == []


@pytest.mark.parametrize("document", ["README.md", "docs/howto/write-metric-rules.md"])
def test_the_number_of_default_rules_is_right(document: str) -> None:
    """What is said to come with penstock does."""
    assert re.findall(r"(\d+) (?:rules )?come with\s+penstock", read(document)) == [
        str(len(default_rules()))
    ]


def test_the_guide_lists_every_preset() -> None:
    """Whoever sizes a queue finds the ready configurations."""
    guide = read("docs/howto/size-a-queue.md")
    functions = [name for name in presets.__all__ if name.islower()]
    assert [name for name in functions if f"`{name}" not in guide] == []
