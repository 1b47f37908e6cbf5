"""Clients that send as fast as they are answered, and what they send."""

from __future__ import annotations

import asyncio
import itertools
from time import perf_counter
from typing import TYPE_CHECKING

import grpc.aio
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from penstock.generate import GeneratorSettings
from penstock.generate.replay import replay_spans

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Requests", "grpc_rate", "http_rate"]

_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class _Serialized(SpanExporter):
    """Keeps the requests that the SDK's exporter would send."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, int]] = []
        self.marks: list[int] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        payload = encode_spans(spans).SerializeToString()
        self.requests.append((payload, len(spans)))
        self.marks.append(payload.index(spans[0].context.trace_id.to_bytes(16, "big")))
        return SpanExportResult.SUCCESS


class Requests:
    """Requests as the SDK sends them, each sent one different from all before."""

    def __init__(self, spans: int) -> None:
        exporter = _Serialized()
        replay_spans(GeneratorSettings(spans=spans, late=0.0), exporter)
        self.serialized = exporter.requests
        self._marks = exporter.marks
        self._numbers = itertools.count(1)

    def stream(self) -> Iterator[tuple[bytes, int]]:
        """Yield payloads and their numbers of spans, for ever."""
        marked = zip(self.serialized, self._marks, strict=True)
        for (payload, spans), mark in itertools.cycle(list(marked)):
            # Another trace id in one span, or it would be recognised as sent before.
            number = next(self._numbers).to_bytes(8, "big")
            yield payload[:mark] + number + payload[mark + 8 :], spans


async def _measure(
    clients: Sequence[Callable[[bytes], Awaitable[object]]], requests: Requests, seconds: float
) -> float:
    """Have every client send for *seconds*; return acknowledged spans per second."""
    acknowledged = 0
    stream = requests.stream()
    end = perf_counter() + seconds

    async def send(client: Callable[[bytes], Awaitable[object]]) -> None:
        nonlocal acknowledged
        while perf_counter() < end:
            payload, spans = next(stream)
            await client(payload)
            acknowledged += spans

    started = perf_counter()
    await asyncio.gather(*map(send, clients))
    return acknowledged / (perf_counter() - started)


async def grpc_rate(port: int, clients: int, requests: Requests, seconds: float) -> float:
    """Return spans per second that are acknowledged over gRPC, with a connection per client."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(clients)
    ]
    try:
        calls = [channel.unary_unary(_METHOD) for channel in channels]
        return await _measure(calls, requests, seconds)
    finally:
        for channel in channels:
            await channel.close()


async def http_rate(port: int, clients: int, requests: Requests, seconds: float) -> float:
    """Return spans per second that are acknowledged over HTTP, with a connection per client."""
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]

    def client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Callable[[bytes], Awaitable[object]]:
        async def send(payload: bytes) -> None:
            writer.write(
                b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/x-protobuf\r\n"
                b"Content-Length: %d\r\n\r\n" % len(payload)
            )
            writer.write(payload)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            await reader.readexactly(int(length))

        return send

    try:
        return await _measure(
            [client(*connection) for connection in connections], requests, seconds
        )
    finally:
        for _, writer in connections:
            writer.close()
