"""`penstock demo` as a person meets it: a summary, nothing left behind, other folders unharmed."""

import fcntl
import json
import signal
from pathlib import Path

import pytest

from penstock.cli._summary import Summary
from penstock.cli._trial import Arrived
from penstock.cli.demo import _is_complete, _text
from penstock.cli.main import main
from tests.integration.up_rig import PATIENCE, started


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return the one line with which the command ends."""
    assert main(["demo", *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("penstock: ")
    assert said.err.count("\n") == 1, said.err
    return said.err


def test_a_folder_that_is_not_of_a_demo_is_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody loses files because of a demo."""
    (tmp_path / "thesis.txt").touch()
    assert "is not a folder of the demo" in refused(capsys, "--folder", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_in_which_a_demo_runs_is_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A second one would delete what the first one writes."""
    (tmp_path / "landing").mkdir()
    with (tmp_path / "demo.log").open("w") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        assert "another demo runs in" in refused(capsys, "--folder", str(tmp_path))
    assert (tmp_path / "landing").is_dir()


def test_a_folder_that_cannot_be_made_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The message says why, and what to do."""
    (tmp_path / "file").touch()
    line = refused(capsys, "--folder", str(tmp_path / "file"))
    assert "cannot be used: File exists; name another with --folder" in line


@pytest.mark.parametrize(
    ("arrived", "keep", "is_complete"),
    [
        (Arrived(10, 10, 10), False, True),
        (Arrived(9, 9, 9), False, False),
        (Arrived(10, 11, 11), False, False),
        (Arrived(10, 11, 11), True, True),
        (Arrived(10, 10, 9), True, False),
    ],
)
def test_a_span_too_few_or_too_many_is_a_failure(
    arrived: Arrived, *, keep: bool, is_complete: bool
) -> None:
    """The counts are the point; only what an earlier run has left may come on top."""
    assert _is_complete(arrived, 10, keep=keep) is is_complete


def test_counts_that_differ_are_said_to() -> None:
    """Nobody reads an equals sign between numbers that are not equal."""
    text = _text(Arrived(10, 10, 9), Summary(1, [], []), Path("folder"), 1.0)
    assert "spans differ: 10 sent, 10 landed, 9 aggregated" in text


@pytest.mark.spark
def test_the_demo_shows_what_became_of_its_spans(tmp_path: Path) -> None:
    """All that was sent is aggregated; settings of the machine do not matter."""
    (tmp_path / "penstock.toml").write_text("nonsense")
    with started(
        tmp_path, "demo", "--spans", "500", "--json", PENSTOCK_RECEIVE_GRPC_PORT="1"
    ) as command:
        assert command.process.wait(PATIENCE) == 0, command.said
    summary = json.loads((tmp_path / "output").read_text())
    assert [summary[name] for name in ("sent", "landed", "aggregated")] == [500, 500, 500]
    assert len(summary["services"]) == 6
    assert command.said.splitlines()[0] == "starting the receiver and Spark"
    assert command.said.splitlines()[-1] == "stopping"
    assert "Traceback" not in command.said


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("step", ["starting the", "sending spans", "starting Spark", "aggregating"])
def test_ctrl_c_ends_the_demo_at_every_step(tmp_path: Path, step: str) -> None:
    """130, one line, no process."""
    with started(tmp_path, "demo", "--spans", "5000") as command:
        command.await_line(step)
        assert command.stop(signal.SIGINT) == 130
    assert command.said.splitlines()[-1] == "penstock: interrupted"
    assert "Traceback" not in command.said
    assert "opentelemetry" not in command.said.lower().replace("with the opentelemetry sdk", "")
