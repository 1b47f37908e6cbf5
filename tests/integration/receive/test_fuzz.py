"""Thousands of malformed inputs beside a client that behaves: nothing breaks, and it loses nothing.

The inputs are the same every time: requests of all signals, changed at random places, and noise.
"""

from __future__ import annotations

import gzip
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import grpc
import pytest

from penstock.receive.grpc_server import _SERVICES
from penstock.receive.http_server import _PATHS
from penstock.telemetry.schema import Signal
from tests.integration.receive.rig import JSON, PROTOBUF, json_body, serving
from tests.unit.receive.rig import PATIENCE, payload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.integration.receive.rig import Server

CONNECTIONS = 4
BY_GRPC = 10  # of a hundred
TOKENS = [
    b"null",
    b"-1",
    b"1e999",
    b'"x"',
    b"{}",
    b"[]",
    b"true",
    b"99999999999999999999",
    b"\\ud800",
]
STATUSES = {200, 400, 413, 415}
CODES = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class Fuzz:
    """Makes inputs from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._changes: Sequence[Callable[[bytearray], None]] = (
            self._flip,
            self._overwrite,
            self._remove,
            self._insert,
            self._repeat,
            self._cut,
            self._replace,
        )

    def request(self) -> tuple[Signal, bytes, dict[str, str]]:
        """Return a signal, a body and headers."""
        signal = self.random.choice(list(Signal))
        content_type = self.random.choice([PROTOBUF, JSON])
        body = self.body(signal, content_type)
        headers = {"Content-Type": content_type}
        luck = self.random.random()
        if luck < 0.2:
            headers["Content-Encoding"] = "gzip"
            packed = gzip.compress(body, 1)
            body = packed if luck < 0.05 else self.changed(packed)
        elif luck < 0.23:
            headers["Content-Encoding"] = self.random.choice(["br", "deflate", "gzip, br"])
        elif luck < 0.26:
            headers["Content-Type"] = self.random.choice(["text/plain", "a/b; c", "/", "x" * 500])
        return signal, body, headers

    def body(self, signal: Signal, content_type: str) -> bytes:
        """Return a request with changes, or noise."""
        if self.random.random() < 0.1:
            return self.random.randbytes(self.random.randrange(200))
        if self.random.random() < 0.005:
            return self.random.randbytes(60_000)
        encode = payload if content_type == PROTOBUF else json_body
        # Another name each time: what is equal to an earlier request would not be looked at.
        return self.changed(encode(signal, f"fuzz-{self.random.random()}", 2, 1))

    def changed(self, body: bytes) -> bytes:
        """Return *body* with a few changes."""
        mutable = bytearray(body)
        for _ in range(self.random.randint(1, 4)):
            if mutable:
                self.random.choice(self._changes)(mutable)
        return bytes(mutable)

    def _place(self, body: bytearray) -> int:
        return self.random.randrange(len(body))

    def _flip(self, body: bytearray) -> None:
        body[self._place(body)] ^= 1 << self.random.randrange(8)

    def _overwrite(self, body: bytearray) -> None:
        body[self._place(body)] = self.random.choice(
            [0, 0x7F, 0x80, 0xFF, self.random.randrange(256)]
        )

    def _remove(self, body: bytearray) -> None:
        start = self._place(body)
        del body[start : start + self.random.randint(1, 8)]

    def _insert(self, body: bytearray) -> None:
        start = self._place(body)
        body[start:start] = self.random.randbytes(self.random.randint(1, 8))

    def _repeat(self, body: bytearray) -> None:
        start = self._place(body)
        body[start:start] = body[start : start + 30] * self.random.randint(1, 5)

    def _cut(self, body: bytearray) -> None:
        del body[self._place(body) :]

    def _replace(self, body: bytearray) -> None:
        start = self._place(body)
        body[start : start + self.random.randint(1, 4)] = self.random.choice(TOKENS)


def fuzz_by_http(server: Server, fuzz: Fuzz, count: int) -> Counter[int]:
    """Send *count* inputs by one connection; return the statuses."""
    statuses: Counter[int] = Counter()
    with server.client() as client:
        for _ in range(count):
            signal, body, headers = fuzz.request()
            answer = client.ask("POST", _PATHS[signal], body, headers)
            statuses[answer.status] += 1
            if answer.status != 200:
                assert answer.error().message
    return statuses


def fuzz_by_grpc(server: Server, fuzz: Fuzz, count: int) -> Counter[grpc.StatusCode]:
    """Send *count* inputs by one channel; return the codes."""
    codes: Counter[grpc.StatusCode] = Counter()
    with server.channel() as channel:
        calls = {s: channel.unary_unary(f"/{name}/Export") for s, name in _SERVICES.items()}
        for _ in range(count):
            signal = fuzz.random.choice(list(Signal))
            call = calls[signal].future(fuzz.body(signal, PROTOBUF), timeout=PATIENCE)
            codes[call.code()] += 1
    return codes


class Neighbour(threading.Thread):
    """A client that behaves, until it is told to stop; all that it does must succeed."""

    def __init__(self, server: Server) -> None:
        super().__init__(name="neighbour")
        self._server = server
        self.is_over = threading.Event()
        self.sent: list[str] = []
        self.refused: list[int] = []

    def run(self) -> None:
        """Send and send."""
        with self._server.client() as client:
            while not self.is_over.is_set():
                name = f"neighbour-{len(self.sent)}"
                self.sent.append(name)
                status = client.post(Signal.LOGS, payload(Signal.LOGS, name)).status
                if status != 200:
                    self.refused.append(status)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_inputs_break_nothing(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is answered as OTLP has it; who sends well beside it loses nothing."""
    by_grpc = count * BY_GRPC // 100
    share = (count - by_grpc) // CONNECTIONS
    found: list[Counter[int] | Counter[grpc.StatusCode]] = []
    with serving(tmp_path, request_bytes=50_000) as server:
        neighbour = Neighbour(server)
        senders = [
            threading.Thread(
                target=lambda seed: found.append(fuzz_by_http(server, Fuzz(seed), share)),
                args=(seed,),
            )
            for seed in range(CONNECTIONS)
        ]
        senders.append(
            threading.Thread(
                target=lambda: found.append(fuzz_by_grpc(server, Fuzz(CONNECTIONS), by_grpc))
            )
        )
        for thread in (neighbour, *senders):
            thread.start()
        for thread in senders:
            thread.join(10 * PATIENCE)
        neighbour.is_over.set()
        neighbour.join(PATIENCE)
    answers: Counter[object] = Counter()
    for counts in found:
        answers.update(counts)
    assert sum(answers.values()) == CONNECTIONS * share + by_grpc
    assert set(answers) == STATUSES | CODES
    assert neighbour.refused == []
    landed = server.services(Signal.LOGS)
    assert [name for name in neighbour.sent if landed[name] != 1] == []
    stats = server.landing.stats()
    assert (stats.set_aside.total(), stats.conversion_errors, stats.commit_errors) == (0, 0, 0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
