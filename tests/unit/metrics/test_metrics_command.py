"""`penstock metrics`: what it prints, and its exit codes."""

import argparse
import io
import json
import os
import sys
from pathlib import Path

import pytest

from penstock.cli.metrics import add_parser
from penstock.metrics import default_rules

GOOD = "a = from(Service.*).cpm();\nb = from(Endpoint.latency).longAvg();\n"
BAD = "a = from(Servise.*).cpm();\nb = from(Service.latency).longAv();\n"


def run(*arguments: str) -> int:
    """Run the command as `penstock` would; return its exit code."""
    parser = argparse.ArgumentParser(prog="penstock")
    add_parser(parser.add_subparsers(dest="command"))
    options = parser.parse_args(["metrics", *arguments])
    code: int = options.run(options)
    return code


@pytest.fixture
def good(tmp_path: Path) -> str:
    """Return the name of a file without errors."""
    path = tmp_path / "good.oal"
    path.write_text(GOOD, encoding="utf-8")
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """Return the name of a file with two errors."""
    path = tmp_path / "bad.oal"
    path.write_text(BAD, encoding="utf-8")
    return str(path)


def test_check_sums_up_good_rules_in_one_line(
    good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, and how many metrics there are."""
    assert run("check", good) == 0
    assert capsys.readouterr() == ("2 metrics from 2 sources, no errors\n", "")


def test_check_knows_singular_and_plural(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One metric is a metric."""
    (tmp_path / "one.oal").write_text("a = from(Service.*).cpm();", encoding="utf-8")
    assert run("check", str(tmp_path / "one.oal")) == 0
    assert capsys.readouterr().out == "1 metric from 1 source, no errors\n"


def test_check_prints_every_error_and_exits_with_1(
    bad: str, good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Place, message, line, mark and remedy of each, and a count at the end."""
    assert run("check", good, bad) == 1
    out, err = capsys.readouterr()
    assert out == (
        f'{bad}:1:1: error: metric "a" is defined already\n'
        "    a = from(Servise.*).cpm();\n"
        "    ^\n"
        f"    the first is in {good}:1; rename this one\n\n"
        f'{bad}:1:10: error: unknown source "Servise"\n'
        "    a = from(Servise.*).cpm();\n"
        "             ^^^^^^^\n"
        '    did you mean "Service"?\n\n'
        f'{bad}:2:1: error: metric "b" is defined already\n'
        "    b = from(Service.latency).longAv();\n"
        "    ^\n"
        f"    the first is in {good}:2; rename this one\n\n"
        f'{bad}:2:27: error: unknown function "longAv"\n'
        "    b = from(Service.latency).longAv();\n"
        "                              ^^^^^^\n"
        '    did you mean "longAvg"?\n\n'
        "4 errors in 1 file\n"
    )
    assert err == ""


def test_check_for_programs_is_one_json_object(
    bad: str, good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All fields of every error; none for good rules."""
    assert run("check", "--json", good) == 0
    assert json.loads(capsys.readouterr().out) == {"metrics": 2, "errors": []}
    assert run("check", "--json", bad) == 1
    first, second = json.loads(capsys.readouterr().out)["errors"]
    assert first == {
        "file": bad,
        "line": 1,
        "column": 10,
        "length": 7,
        "message": 'unknown source "Servise"',
        "suggestion": 'did you mean "Service"?',
        "source": "a = from(Servise.*).cpm();",
    }
    assert second["line"] == 2


def test_check_of_a_missing_file_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read is an error in the rules, told like the others."""
    assert run("check", "no/such.oal") == 1
    assert capsys.readouterr().out.startswith("no/such.oal: error: the file cannot be read: ")


@pytest.mark.parametrize(
    "arguments",
    [(), ("check",), ("list", "--rules"), ("no-such-action",), ("check", "--no-such-option", "x")],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake on the command line is explained on stderr."""
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert ": error: " in err


def test_list_shows_the_default_metrics_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each, under a heading, in columns."""
    assert run("list") == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "source", "function"]
    assert len(lines) == len(default_rules())
    column = heading.index("source")
    for metric, line in zip(default_rules(), lines, strict=True):
        assert line.startswith(f"{metric.name} ")
        assert line[column:].startswith(f"{metric.source} ")
        assert line.endswith(f"  {metric.call}")


def test_list_shows_the_metrics_of_files(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only those of the files, and no column wider than it needs to be."""
    assert run("list", "--rules", good) == 0
    assert capsys.readouterr().out == (
        "name  source    function\na     Service   cpm()\nb     Endpoint  longAvg()\n"
    )


def test_list_for_programs_is_a_json_array(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each metric with its whole definition."""
    assert run("list", "--json", "--rules", good) == 0
    assert json.loads(capsys.readouterr().out)[1] == {
        "name": "b",
        "source": "Endpoint",
        "function": "longAvg",
        "definition": "from(Endpoint.latency).longAvg()",
    }


def test_list_of_rules_with_errors_tells_them_on_stderr(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no list then, only what is wrong."""
    assert run("list", "--rules", bad) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"penstock: the rules have 2 errors\n{bad}:1:10: error: ")


def test_a_terminal_that_knows_ascii_only_gets_what_it_can_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters that cannot be printed are printed as numbers, not as a traceback."""
    path = tmp_path / "umlaut.oal"
    path.write_text("größe = from(Service.*).cpm();", encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert run("check", str(path)) == 1
    assert rb'"gr\xf6\xdfe" cannot be the name of a metric' in written.getvalue()


def test_a_file_name_that_is_not_text_is_shown_somehow(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of files may be any bytes."""
    assert run("check", os.fsdecode(b"gr\xf6\xdfe.oal")) == 1
    assert capsys.readouterr().out.startswith("gr��e.oal: error: ")


def test_a_reader_that_has_seen_enough_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`penstock metrics list | head` ends without a traceback, also when the interpreter ends."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as stdout:  # noqa: PTH123 - there is no path
        monkeypatch.setattr(sys, "stdout", stdout)
        assert run("list") == 0
