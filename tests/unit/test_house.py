"""Rules of the house that no linter knows, checked on the files of the repository."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "penstock"
MODULES = sorted(PACKAGE.rglob("*.py"))
# What one of them needs beside it is brought in tests/integration/receive/test_example.py.
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if p.name != "send_spans.py")

# What a user gets from a plain install, without any extra.
BARE = (
    "scheduling",
    "batchqueue",
    "batcher",
    "errors.py",
    "clock.py",
    "_checks.py",
    "_process.py",
    "testing.py",
    "presets.py",
)

FOLDERS = ("src", "tests", "benchmarks", "examples", ".ci")
CONFIGURATION = ("pyproject.toml", "constraints.txt", "Makefile", ".gitignore")

# Spelled in pieces, so that this file does not contain what it looks for.
SLEEP = "time." + "sleep("
HOSTS = re.compile(
    "|".join(
        re.escape(f"{host}.{domain}")
        for host, domain in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("maven", "org"),
            ("maven.apache", "org"),
            ("npmjs", "org"),
            ("anaconda", "org"),
            ("docker", "io"),
            ("ghcr", "io"),
            ("quay", "io"),
        )
    )
)
# Not preceded by more of a path or an address: a folder of that name further down is no concern.
MACHINE_PATHS = re.compile(r"(?<![\w.:/-])/(?:root|home|work)\b(?![-.])")

LONGEST_MODULE = 500


def relative(path: Path) -> str:
    """Name a file from the root of the repository, for test ids and messages."""
    return path.relative_to(ROOT).as_posix()


def bare_modules() -> list[Path]:
    """Return the modules that must work with nothing but the standard library installed."""
    return [
        module
        for part in BARE
        for module in sorted((PACKAGE / part).rglob("*.py")) or [PACKAGE / part]
        if module.is_file()
    ]


def imported_packages(module: Path) -> Iterator[str]:
    """Yield the top-level package of every absolute import, also of those inside functions."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module.partition(".")[0]


def written_files() -> Iterator[Path]:
    """Yield every file of tests, sources and configuration that holds text."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            is_cached = "__pycache__" in path.parts
            if path.is_file() and not is_cached and b"\0" not in path.read_bytes():
                yield path
    yield from (ROOT / name for name in CONFIGURATION)


def run_python(*arguments: str, cwd: Path) -> None:
    """Run this interpreter, and show what it said if it did not end well."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("module", bare_modules(), ids=relative)
def test_a_plain_install_imports_only_the_standard_library(module: Path) -> None:
    """What works without extras imports nothing that an extra would bring."""
    foreign = set(imported_packages(module)) - sys.stdlib_module_names - {"penstock"}
    assert not foreign, f"{relative(module)} imports {sorted(foreign)}"


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers read our annotations only if the marker file is there."""
    assert (PACKAGE / "py.typed").is_file()


def test_no_test_sleeps() -> None:
    """Tests wait for what they need; none waits for time to pass, not in a child process either."""
    sleepers = [
        relative(path)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if SLEEP in path.read_text(encoding="utf-8")
    ]
    assert not sleepers


def test_no_file_knows_where_packages_come_from() -> None:
    """Which index or registry is used is for the machine to say, not for the project."""
    found = [
        f"{relative(path)}: {match.group()}"
        for path in written_files()
        for match in HOSTS.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    """Absolute paths of somebody's machine mean nothing on any other."""
    found = [
        f"{relative(path)}: {match.group()}"
        for path in written_files()
        for match in MACHINE_PATHS.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_every_module_says_what_it_is_for(module: Path) -> None:
    """A module opens with a docstring."""
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_no_module_is_too_long_to_read(module: Path) -> None:
    """A module that outgrows its budget is two modules."""
    assert len(module.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


def test_every_constraint_is_one_exact_version() -> None:
    """Constraints are plain pins: no ranges, no markers, no addresses, no comments."""
    pin = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!+_-]*")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not pin.fullmatch(line)] == []


def test_the_first_example_in_the_readme_runs(tmp_path: Path) -> None:
    """The code that a newcomer copies first works as it stands."""
    readme = ROOT / "README.md"
    if not readme.is_file():
        pytest.skip("README.md is not written yet")
    block = re.search(r"^```python\n(.*?)^```", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert block is not None, "README.md shows no Python code"
    script = tmp_path / "readme.py"
    script.write_text(block.group(1), encoding="utf-8")
    run_python(str(script), cwd=tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=relative)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    """An example ends by itself, with exit code 0, from any directory."""
    run_python(str(example), cwd=tmp_path)
