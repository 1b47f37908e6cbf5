"""A receiver in a process of its own, requests for it, and what has landed in its folder."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow.parquet as pq
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = [
    "Answer",
    "ReceiverProcess",
    "check_folder",
    "get",
    "landed_spans",
    "post",
    "span_request",
]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds; only a failing test waits this long
PROTOBUF = "application/x-protobuf"
T = TypeVar("T")
_LISTENING = re.compile(r"gRPC \S+:(\d+), HTTP https?://\S+:(\d+) ")


def span_request(ids: Iterable[int], padding: int = 0, service: str = "test") -> bytes:
    """Return a serialized request with one span for each of *ids*, which is its span id."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = service
    scope = resource.scope_spans.add()
    for number in ids:
        span = scope.spans.add()
        span.span_id = number.to_bytes(8, "big")
        span.trace_id = number.to_bytes(16, "big")
        span.name = "GET /" + "x" * padding
        span.kind = 2
        span.start_time_unix_nano = 1_700_000_000_000_000_000
        span.end_time_unix_nano = 1_700_000_000_001_000_000
    serialized: bytes = request.SerializeToString()
    return serialized


def landed_spans(folder: Path) -> Counter[int]:
    """Return how often each span has landed, by its id; every file must be whole."""
    found: Counter[int] = Counter()
    for place in (folder / "spans", folder / "consumed" / "spans"):
        for path in sorted(place.glob("[!.]*")):
            column = pq.read_table(path, columns=["span_id"]).column("span_id")
            found.update(int.from_bytes(value, "big") for value in column.to_pylist())
    return found


def check_folder(folder: Path, acknowledged: Iterable[int]) -> Counter[int]:
    """Fail unless all that was *acknowledged* has landed once, and nothing twice."""
    landed = landed_spans(folder)
    lost = sorted(number for number in acknowledged if not landed[number])
    assert not lost, f"{len(lost)} spans were acknowledged and did not land: {lost[:10]}"
    doubled = sorted(number for number, count in landed.items() if count > 1)
    assert not doubled, f"{len(doubled)} spans landed more than once: {doubled[:10]}"
    left = [p for p in folder.rglob("*") if p.suffix in {".tmp", ".wal"} and p.is_file()]
    assert not left, f"left over: {left}"
    return landed


@dataclass(frozen=True)
class Answer:
    """What the receiver said over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def post(
    port: int, payload: bytes, *, path: str = "/v1/traces", timeout: float = PATIENCE
) -> Answer:
    """Send a request in protobuf; raises OSError or HTTPException without an answer."""
    with _connection(port, timeout) as connection:
        connection.request("POST", path, payload, {"Content-Type": PROTOBUF})
        return _answer(connection)


def get(port: int, path: str) -> Answer:
    """Ask for a page."""
    with _connection(port, PATIENCE) as connection:
        connection.request("GET", path)
        return _answer(connection)


@contextmanager
def _connection(port: int, timeout: float) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        yield connection
    finally:
        connection.close()


def _answer(connection: http.client.HTTPConnection) -> Answer:
    response = connection.getresponse()
    return Answer(response.status, dict(response.headers), response.read())


@dataclass
class ReceiverProcess:
    """`penstock receive` on a folder; started as often as needed, on free ports each time."""

    folder: Path
    errors: Path  # where it says what it has to say
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    grpc_port: int = 0
    http_port: int = 0
    _offset: int = 0  # of what this run has to say, in *errors*

    def start(self, prepare: Callable[[], object] | None = None) -> None:
        """Start it, after *prepare* in the new process, and wait until it listens."""
        self.launch(prepare)
        found = self.wait_for(lambda: _LISTENING.search(self._said_now()))
        self.grpc_port, self.http_port = int(found[1]), int(found[2])

    def launch(self, prepare: Callable[[], object] | None = None) -> None:
        """Start it, and do not wait."""
        command = [sys.executable, "-m", "penstock.cli.main", "receive"]
        command += ["--landing", str(self.folder), "--grpc-port", "0", "--http-port", "0"]
        with self.errors.open("ab") as errors:
            self._offset = errors.tell()
            self.process = subprocess.Popen(
                [*command, *self.options],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - it only sets a limit
            )

    @contextmanager
    def running(self) -> Iterator[ReceiverProcess]:
        """Have it run for the block; whatever is left of it then is killed."""
        self.start()
        try:
            yield self
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it, if it still runs."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()

    def kill_all(self) -> None:
        """Kill it and what it has started, at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def wait_for(self, condition: Callable[[], T | None]) -> T:
        """Wait until *condition* holds, and return it; fail if the receiver ends before."""
        assert self.process is not None
        for _ in range(round(PATIENCE / 0.01)):
            if found := condition():
                return found
            with suppress(subprocess.TimeoutExpired):
                code = self.process.wait(0.01)
                raise AssertionError(f"ended with {code}: {self.said()}")
        raise AssertionError(f"in vain: {self.said()}")

    def said(self) -> str:
        """Return what all runs had to say."""
        return self.errors.read_text("utf-8")

    def _said_now(self) -> str:
        return self.errors.read_bytes()[self._offset :].decode("utf-8")
