"""The `penstock` command as a shell sees it: output, exit codes, Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import penstock

COMMAND = (sys.executable, "-m", "penstock.cli.main")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command with its errors on a terminal; yield it and where to read them."""
    ours, its = os.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its
    ) as process:
        os.close(its)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_to_the_end(terminal: int) -> str:
    """Return what comes until nobody writes any more."""
    seen = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other end of a terminal is closed
            break
        if not part:
            break
        seen += part
    return seen.decode()


def test_without_arguments_it_shows_the_help() -> None:
    """Somebody who types only the name learns what there is."""
    done = run()
    assert done.returncode == 0
    assert "bench" in done.stdout
    assert done.stdout == run("--help").stdout
    assert done.stderr == ""


def test_it_tells_its_version() -> None:
    """The version is that of the package."""
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout == f"penstock {penstock.__version__}\n"


def test_the_help_of_bench_names_every_bench() -> None:
    """What can be measured is listed where one looks for it."""
    done = run("bench", "--help")
    assert done.returncode == 0
    for name in ("queue", "rebalance", "idle", "--json", "--quick"):
        assert name in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("bench", "no-such-bench"), ("bench",), ("no-such-command",), ("bench", "queue", "--no")],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_says_what_is_wrong(arguments: tuple[str, ...]) -> None:
    """A mistake on the command line is explained on stderr, without a traceback."""
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.search(r"^penstock.*: error: ", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_an_unknown_bench_is_answered_with_the_known_ones() -> None:
    """The message has the remedy."""
    message = run("bench", "no-such-bench").stderr
    for name in ("no-such-bench", "queue", "rebalance", "idle"):
        assert name in message


@pytest.mark.parametrize("bench", ["queue", "rebalance", "idle"])
def test_ctrl_c_ends_a_bench_with_130_and_one_line(bench: str) -> None:
    """An interrupted bench says so in one line and prints neither results nor a traceback."""
    with on_a_terminal("bench", bench, "--json") as (process, terminal):
        assert os.read(terminal, 1)  # progress: the bench is under way
        process.send_signal(signal.SIGINT)
        told = read_to_the_end(terminal)
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert process.wait(60) == 130
    assert "Traceback" not in told
    # Progress is one line that is written over; the message takes its place.
    assert told.count("\n") == 1
    assert told.rstrip().endswith("penstock: interrupted")
