"""A receiver on free ports of this machine, its loop on a thread, and clients for it."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import threading
from base64 import b64decode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import grpc
import pyarrow.parquet as pq
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc.status_pb2 import Status

from penstock.land.landing import Landing, LandingSettings
from penstock.prometheus import BatcherCollector, FigureCollector, QueueCollector, exposition
from penstock.receive.figures import receiver_figures
from penstock.receive.grpc_server import _SERVICES, RESPONSES
from penstock.receive.http_server import _PATHS
from penstock.receive.receiver import Receiver
from penstock.receive.settings import ReceiveSettings
from penstock.telemetry.schema import Signal
from penstock.testing import eventually
from tests.unit.receive.rig import PATIENCE, message, payload

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.land.segments import Record
    from penstock.receive.intake import Intake

__all__ = [
    "JSON",
    "PROTOBUF",
    "Answer",
    "Client",
    "Server",
    "TroubledLanding",
    "export",
    "json_body",
    "serving",
]

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_HEX = {"traceId", "spanId", "parentSpanId"}


class TroubledLanding(Landing):
    """A landing whose commits can be held or made to fail, and that can be full."""

    def __init__(self, settings: LandingSettings) -> None:
        super().__init__(settings)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.error: OSError | None = None
        self.is_full = False

    def commit(self, signal: Signal, records: Sequence[Record]) -> None:
        """Wait at the gate; fail, or do as usual."""
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        super().commit(signal, records)

    def has_room(self) -> bool:
        """Whether more may come."""
        return not self.is_full and super().has_room()


class Server:
    """A receiver that runs; its landing folder can be read."""

    def __init__(self, folder: Path, **settings: Any) -> None:  # noqa: ANN401 - of a receiver
        self.folder = folder
        self.settings = ReceiveSettings(**{"grpc_port": 0, "http_port": 0} | settings)
        self.landing = TroubledLanding(LandingSettings(folder=folder, segment_age=0.05))
        self.receiver: Receiver
        self._read: dict[Path, list[dict[str, Any]]] = {}
        self._loop = asyncio.new_event_loop()
        # The loop's helpers are all there from the start, so that no test seems to leave one.
        helpers = ThreadPoolExecutor(2)
        both = threading.Barrier(2)
        for ready in [helpers.submit(both.wait, PATIENCE) for _ in range(2)]:
            ready.result()
        self._loop.set_default_executor(helpers)
        self._thread = threading.Thread(target=self._loop.run_forever, name="receiver")

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self.run(self._start())

    async def _start(self) -> None:
        self.receiver = Receiver(self.landing, self.settings, self._figures)
        await self.receiver.start()
        for signal in Signal:  # a batcher's thread starts with its first request
            await self.intake.accept(signal, payload(signal, "first"))

    def _figures(self, intake: Intake) -> Callable[[], tuple[bytes, str]]:
        return exposition(
            [
                FigureCollector(lambda: receiver_figures(intake, self.landing)),
                QueueCollector(intake.queues),
                BatcherCollector(intake.batchers.values()),
            ]
        )

    def stop(self, allowed: float = PATIENCE) -> bool:
        """End it; return whether all has landed."""
        is_done: bool = self.run(self.receiver.stop(allowed))
        self.end_loop()
        return is_done

    def end_loop(self) -> None:
        """End the loop's threads."""
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        """Run something on the receiver's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * PATIENCE)

    @property
    def intake(self) -> Intake:
        """Return the receiver's way in, for its counts."""
        return self.receiver.intake

    def rows(self, signal: Signal) -> list[dict[str, Any]]:
        """Return all rows that have landed."""
        files = sorted((self.folder / signal).glob("[!.]*.parquet"))
        for file in files:
            if file not in self._read:  # a file never changes
                self._read[file] = pq.read_table(file).to_pylist()
        return [row for file in files for row in self._read[file]]

    def landed(self, signal: Signal, service: str, count: int) -> list[dict[str, Any]]:
        """Wait until *count* rows of a service have landed, and return them."""
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            found[:] = [row for row in self.rows(signal) if row["service_name"] == service]
            return len(found) >= count

        eventually(is_there, PATIENCE)
        assert len(found) == count
        return found

    def services(self, signal: Signal) -> Counter[str]:
        """Return how many rows of each service have landed."""
        return Counter(row["service_name"] for row in self.rows(signal))

    def client(self, context: ssl.SSLContext | None = None) -> Client:
        """Return a new connection by HTTP."""
        return Client(self.receiver.http_port, context)

    def channel(self, credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
        """Return a new connection by gRPC; close it."""
        address = f"localhost:{self.receiver.grpc_port}"
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # else connections are shared between tests
        ]
        if credentials is None:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, credentials, options)


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[Server]:  # noqa: ANN401 - of a receiver
    """Run a receiver, and end it."""
    server = Server(folder, **settings)
    server.start()
    try:
        yield server
    finally:
        server.landing.gate.set()
        server.landing.error = None
        server.landing.is_full = False
        assert server.stop()


@dataclass(frozen=True)
class Answer:
    """What came back by HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """Return the type of the body, without parameters."""
        return self.headers["content-type"].partition(";")[0]

    def response(self, signal: Signal) -> Any:  # noqa: ANN401 - the signal's message
        """Return the body of a success."""
        assert self.status == 200
        return self._message(RESPONSES[signal][0]())

    def error(self) -> Any:  # noqa: ANN401 - google.rpc.Status
        """Return the body of an error."""
        assert self.status >= 400
        return self._message(Status())

    def _message(self, empty: Any) -> Any:  # noqa: ANN401 - a message of any class
        if self.content_type == PROTOBUF:
            empty.ParseFromString(self.body)
            return empty
        assert self.content_type == JSON
        return ParseDict(json.loads(self.body), empty)


class Client:
    """One connection by HTTP, kept alive as long as the server does."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        if context is None:
            self.connection = http.client.HTTPConnection("localhost", port, timeout=PATIENCE)
        else:
            self.connection = http.client.HTTPSConnection(
                "localhost", port, timeout=PATIENCE, context=context
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request, and return the answer."""
        self.connection.request(
            method, path, body, dict(headers or {}), encode_chunked=not isinstance(body, bytes)
        )
        answer = self.connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, names, answer.read())

    def post(
        self,
        signal: Signal,
        body: bytes | Iterable[bytes],
        content_type: str = PROTOBUF,
        **headers: str,
    ) -> Answer:
        """Export; words of a header's name are joined by underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if "Content-Encoding" in named and named["Content-Encoding"] == "gzip":
            assert isinstance(body, bytes)
            body = gzip.compress(body)
        return self.ask("POST", _PATHS[signal], body, {"Content-Type": content_type, **named})


def export(
    channel: grpc.Channel,
    signal: Signal,
    body: bytes,
    **options: Any,  # noqa: ANN401 - of a call
) -> Any:  # noqa: ANN401 - the signal's message
    """Export by gRPC and return the response."""
    call = channel.unary_unary(f"/{_SERVICES[signal]}/Export")
    return RESPONSES[signal][0].FromString(call(body, timeout=PATIENCE, **options))


def json_body(signal: Signal, service: str, good: int = 1, bad: int = 0) -> bytes:
    """Return a request in OTLP's JSON: ids are hexadecimal."""
    return json.dumps(_hexed(MessageToDict(message(signal, service, good, bad)))).encode()


def _hexed(value: Any) -> Any:  # noqa: ANN401 - anything that JSON can say
    if isinstance(value, list):
        return [_hexed(one) for one in value]
    if isinstance(value, dict):
        return {
            name: b64decode(one).hex() if name in _HEX else _hexed(one)
            for name, one in value.items()
        }
    return value
