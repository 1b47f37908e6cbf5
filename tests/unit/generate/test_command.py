"""`penstock generate`: its arguments, what it says, and where."""

import argparse
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import generate
from penstock.errors import JobError
from penstock.generate.settings import LIMITS
from penstock.testing import FakeClock

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "generate-telemetry.md"


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def parse(*arguments: str) -> argparse.Namespace:
    """Return the options that the command reads from *arguments*."""
    parser = argparse.ArgumentParser(prog="penstock")
    generate.add_parser(parser.add_subparsers())
    return parser.parse_args(["generate", *arguments])


def run(folder: Path, *arguments: str) -> int:
    """Run the command with few rows, unless *arguments* say otherwise."""
    few = ("--spans", "2000", "--points", "50", "--logs", "20", "--minutes", "2")
    options = parse("--landing", str(folder), *few, *arguments)
    return generate.run(options, FakeClock())


def test_the_summary_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names rows, files, bytes, speed and the time that the rows cover."""
    assert run(tmp_path) == 0
    said = capsys.readouterr()
    assert said.err == ""  # not a terminal: no bar
    assert said.out.startswith("2,000 spans, 100 points and 20 logs in 3 files, ")
    assert said.out.count("\n") == 1
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert f" {size:,} bytes, " in said.out
    assert " spans/s, " in said.out
    assert said.out.endswith(" UTC\n")


def test_arguments_reach_the_settings(tmp_path: Path) -> None:
    """Each flag has the effect that its name promises; equal seeds land equal sizes."""
    arguments = ("--rows-per-file", "500", "--seed", "7", "--services", "3", "--endpoints", "2")
    assert run(tmp_path, *arguments, "--instances", "1", "--late", "0", "--error-rate", "1") == 0
    names = sorted(path.name for path in tmp_path.rglob("*.parquet"))
    assert [name.split("-")[0] for name in names] == ["logs", "points", *["spans"] * 4]
    assert all("-s7-" in name for name in names)


def test_quiet_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even on a terminal."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(tmp_path, "--quiet") == 0
    assert capsys.readouterr().out == ""
    assert terminal.getvalue() == ""


def test_a_terminal_shows_a_bar_and_is_left_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last thing written clears the line."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(tmp_path, "--rows-per-file", "1000") == 0
    assert "[###########.............] 1,000 of 2,120 rows" in terminal.getvalue()
    assert "[########################] 2,120 of 2,120 rows" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_number_out_of_range_names_the_flag_and_the_range(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every limit of the settings holds on the command line."""
    flag = "--" + name.replace("_", "-")
    least, most = LIMITS[name]
    for wrong in (str(least - 1), str(most + 1), "many", "1.5"):
        with pytest.raises(SystemExit) as exit_:
            parse("--landing", "x", f"{flag}={wrong}")
        assert exit_.value.code == 2
        said = capsys.readouterr().err
        assert f"argument {flag}: must be a whole number from {least:,} to {most:,}" in said
        assert f"not '{wrong}'" in said


@pytest.mark.parametrize("flag", ["--late", "--error-rate"])
@pytest.mark.parametrize("wrong", ["-0.1", "1.1", "nan", "half"])
def test_a_share_out_of_range_names_the_flag_and_the_range(
    flag: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A share is a number from 0 to 1."""
    with pytest.raises(SystemExit) as exit_:
        parse("--landing", "x", f"{flag}={wrong}")
    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert f"argument {flag}: must be a number from 0 to 1, not '{wrong}'" in said


def test_the_landing_folder_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no default that could surprise."""
    with pytest.raises(SystemExit):
        parse()
    assert "--landing" in capsys.readouterr().err


def test_a_system_too_large_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What only two flags together exceed is told in one line."""
    assert run(tmp_path, "--services", "2000", "--endpoints", "5000") == 2
    said = capsys.readouterr().err
    assert said.startswith("penstock generate: services (2000) times endpoints (5000) must be")
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_written_leaves_the_terminal_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the caller's to tell, on a line of its own."""
    (tmp_path / "spans").mkdir()
    (tmp_path / "points").touch()
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(JobError, match="cannot write to the landing folder"):
        run(tmp_path)
    assert "2,000 of 2,120" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_guide_lists_every_flag_with_its_default() -> None:
    """Whoever reads the guide sees all that the command takes."""
    guide = GUIDE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `--([a-z-]+)` \| ([\d.,]*)", guide, re.MULTILINE)
    options = vars(parse("--landing", ""))
    taken = {name.replace("_", "-"): value for name, value in options.items() if name != "run"}
    flags = sorted(name for name, _ in listed)
    assert flags == sorted(taken)
    for name, default in listed:
        if default:
            assert float(default.replace(",", "")) == taken[name], name


def test_the_help_needs_neither_numpy_nor_pyarrow() -> None:
    """A plain install can say what the command would do, and what is missing for it."""
    program = """
import argparse, sys
sys.modules["numpy"] = sys.modules["pyarrow"] = None  # as if they were not installed
from penstock.cli import generate
from penstock.errors import DependencyError
parser = argparse.ArgumentParser()
generate.add_parser(parser.add_subparsers())
parser.format_help()
options = parser.parse_args(["generate", "--landing", "x"])
try:
    options.run(options)
except DependencyError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "generating needs pyarrow: install penstock[spark]\n", done.stderr
