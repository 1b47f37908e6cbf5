"""`penstock receive` as a person meets it: where it listens, what stands in its way, its end."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.support.receiver import (
    PATIENCE,
    ReceiverProcess,
    get,
    landed_spans,
    post,
    span_request,
)

COMMAND = (sys.executable, "-m", "penstock.cli.main", "receive")
FREE = ("--grpc-port", "0", "--http-port", "0")


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep settings of the machine away."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    """Run one receiver, for all tests that only look at it."""
    folder = tmp_path_factory.mktemp("receiver")
    with ReceiverProcess(folder / "landing", folder / "errors").running() as running:
        yield running


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return the one line with which the command ends."""
    assert main(["receive", *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("penstock: ")
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err
    return said.err.removeprefix("penstock: ").rstrip()


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_a_port_in_use_is_named_with_the_option_that_changes_it(
    tmp_path: Path, receiver: ReceiverProcess, kind: str
) -> None:
    """One line, and none from the libraries below."""
    port = str(getattr(receiver, f"{kind}_port"))
    done = subprocess.run(
        [*COMMAND, "--landing", str(tmp_path), *FREE, f"--{kind}-port", port],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"penstock: cannot listen on 127.0.0.1:{port}")
    assert f"--{kind}-port" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_port_that_cannot_be_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Ports end at 65535."""
    line = refused(capsys, "--landing", "here", *FREE, "--http-port", "70000")
    assert "70000" in line


def test_a_host_that_is_not_this_machine_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """An address of somebody else cannot be listened at."""
    line = refused(capsys, "--landing", "here", *FREE, "--host", "192.0.2.1")
    assert "192.0.2.1" in line


def test_a_folder_in_use_by_another_receiver_is_told(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    receiver: ReceiverProcess,
) -> None:
    """Two would convert each other's segments."""
    monkeypatch.setattr("penstock.cli.receive._LOCK_PATIENCE", 0.0)
    line = refused(capsys, "--landing", str(receiver.folder), *FREE)
    assert line.startswith("another receiver uses ")
    assert str(receiver.folder) in line
    assert get(receiver.http_port, "/metrics").status == 200


def test_a_folder_that_cannot_be_made_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The message names the folder and why."""
    (tmp_path / "file").touch()
    line = refused(capsys, "--landing", str(tmp_path / "file" / "landing"), *FREE)
    assert str(tmp_path / "file" / "landing") in line
    assert "Not a directory" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_must_not_be_written_to_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The message says so, and what to do."""
    tmp_path.chmod(0o500)
    line = refused(capsys, "--landing", str(tmp_path / "landing"), *FREE)
    assert "Permission denied" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"# only a comment\n\n   \n", "has no tokens; write one into each line"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_token_file_that_says_nothing_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None, said: str
) -> None:
    """A receiver that should be closed is not opened by mistake."""
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    line = refused(capsys, "--landing", "here", *FREE, "--token-file", str(path))
    assert line.startswith(f"--token-file {path} ")
    assert said in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tls-certificate", "good"), "TLS needs both --tls-certificate and --tls-key"),
        (("--tls-key", "good"), "TLS needs both --tls-certificate and --tls-key"),
        (("--tls-client-ca", "good"), "TLS needs both --tls-certificate and --tls-key"),
        (("--tls-certificate", "gone.pem", "--tls-key", "gone.pem"), "gone.pem"),
        (("--tls-certificate", "bad.pem", "--tls-key", "bad.pem"), "bad.pem"),
    ],
)
def test_tls_files_that_do_not_fit_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    """Nothing is received in the clear because a file was not good."""
    (tmp_path / "bad.pem").write_text("not a certificate")
    assert said in refused(capsys, "--landing", "here", *FREE, *options)


@pytest.mark.parametrize(
    "arguments",
    [(), ("--landing", "x", "--grpc-port", "x"), ("--landing", "x", "--segment-age", "0")],
)
def test_wrong_usage_ends_with_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """The usage and one line that says what is wrong."""
    with pytest.raises(SystemExit) as caught:
        main(["receive", *arguments])
    assert caught.value.code == 2
    assert "penstock receive: error: " in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_when_all_has_landed(tmp_path: Path, number: signal.Signals) -> None:
    """Exit code 0; it says what it has received, and what was acknowledged has landed."""
    receiver = ReceiverProcess(tmp_path / "landing", tmp_path / "errors", ("--segment-age", "99"))
    with receiver.running():
        assert post(receiver.http_port, span_request(range(5))).status == 200
        assert receiver.process is not None
        receiver.process.send_signal(number)
        assert receiver.process.wait(PATIENCE) == 0
    first, last = receiver.said().splitlines()
    assert re.fullmatch(
        r"receiving OTLP: gRPC 127\.0\.0\.1:\d+, HTTP http://127\.0\.0\.1:\d+ · landing in .*",
        first,
    )
    assert last == "stopped: received 5 spans"
    assert set(landed_spans(tmp_path / "landing")) == set(range(5))


def test_an_open_port_without_tls_is_warned_of(tmp_path: Path) -> None:
    """What it listens on is the user's choice; the log, here in JSON by a file, says what it is."""
    (tmp_path / "own.toml").write_text('log_format = "json"\n[receive]\nhost = "0.0.0.0"\n')
    environment = {"PENSTOCK_CONFIG": str(tmp_path / "own.toml")}
    receiver = ReceiverProcess(tmp_path / "landing", tmp_path / "errors", (), environment)
    with receiver.running():
        assert receiver.stop() == 0
    lines = [json.loads(line) for line in receiver.said().splitlines() if line.startswith("{")]
    assert [(line["event"], line["level"]) for line in lines] == [("receive.exposed", "warning")]


def test_it_ends_well_where_nobody_reads_what_it_says(tmp_path: Path) -> None:
    """The terminal may be gone by then."""
    with subprocess.Popen(
        [*COMMAND, "--landing", str(tmp_path), *FREE],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert b"receiving OTLP" in process.stderr.readline()
        process.stderr.close()
        process.terminate()
        process.wait(PATIENCE)
    assert not list((tmp_path / ".wal").glob("*/*.wal"))
