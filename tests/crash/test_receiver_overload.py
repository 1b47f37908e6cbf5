"""Far more comes than the disk can take: the rest is refused at once, and all is accounted for."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import grpc
import grpc.aio
import psutil
import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.land.durable import Disk
from penstock.land.landing import Landing, LandingSettings
from penstock.receive.outcome import Verdict
from penstock.receive.receiver import Receiver
from penstock.receive.settings import ReceiveSettings
from penstock.telemetry import Signal
from tests.support.receiver import PROTOBUF, check_folder, span_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

CLIENTS = 40
SYNC = 0.05  # seconds: what a group takes
REQUEST = 10_000  # bytes
GROUP = 4 * REQUEST  # so 80 requests in a second
IN_FLIGHT = 8 * GROUP  # 400 ms of them, longer than a client waits
ANSWER = 0.3
STOP = 6.0
MOST_GROWTH = 96 << 20
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
VERDICTS = {
    200: Verdict.ACCEPTED,
    429: Verdict.EXHAUSTED,
    503: Verdict.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Verdict.EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE: Verdict.UNAVAILABLE,
}


class SlowDisk(Disk):
    """A disk on which every sync of a segment takes its time."""

    def __init__(self) -> None:
        self._never = threading.Event()

    def sync(self, descriptor: int) -> None:
        """Take the time of a device that is busy."""
        self._never.wait(SYNC)
        super().sync(descriptor)


@dataclass
class Books:
    """What the clients know."""

    outcomes: Counter[Verdict] = field(default_factory=Counter)
    accepted: set[int] = field(default_factory=set)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    memory: int = 0  # the most that was seen

    async def send(self, export: Callable[[bytes], Awaitable[object]]) -> None:
        """Send one request, and enter what became of it."""
        number = next(self.ids)
        verdict = VERDICTS[await export(span_request([number], padding=REQUEST))]
        self.outcomes[verdict] += 1
        if verdict is Verdict.ACCEPTED:
            self.accepted.add(number)

    def look(self) -> None:
        """Enter how much memory is held."""
        self.memory = max(self.memory, psutil.Process().memory_info().rss)


def over_http(session: aiohttp.ClientSession, port: int) -> Callable[[bytes], Awaitable[object]]:
    """Return what sends a request over HTTP, and returns its status."""

    async def export(payload: bytes) -> int:
        url, headers = f"http://127.0.0.1:{port}/v1/traces", {"Content-Type": PROTOBUF}
        async with session.post(url, data=payload, headers=headers) as response:
            assert response.status == 200 or "Retry-After" in response.headers
            await response.read()
            return response.status

    return export


def over_grpc(channel: grpc.aio.Channel) -> Callable[[bytes], Awaitable[object]]:
    """Return what sends a request over gRPC, and returns its code, or 200."""

    async def export(payload: bytes) -> object:
        try:
            await channel.unary_unary(EXPORT)(payload)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return 200

    return export


async def overload(receiver: Receiver, seconds: float, books: Books) -> float:
    """Send as fast as it goes; then stop with a burst under way, and return how long that took."""
    await receiver.start()
    connector = aiohttp.TCPConnector(limit=CLIENTS)
    address = f"127.0.0.1:{receiver.grpc_port}"
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        grpc.aio.insecure_channel(address) as channel,
    ):
        exports = [over_http(session, receiver.http_port), over_grpc(channel)]
        deadline = SYSTEM_CLOCK.now() + seconds

        async def client(number: int) -> None:
            while SYSTEM_CLOCK.now() < deadline:
                await books.send(exports[number % 2])
                books.look()

        books.look()
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        burst = [asyncio.ensure_future(books.send(exports[1])) for _ in range(CLIENTS)]
        asked = sum(receiver.intake.outcomes.values())
        while sum(receiver.intake.outcomes.values()) == asked:  # the first is refused, or done
            await asyncio.wait(burst, return_when=asyncio.FIRST_COMPLETED)
        started = SYSTEM_CLOCK.now()
        assert await receiver.stop(STOP)
        taken = SYSTEM_CLOCK.now() - started
        await asyncio.gather(*burst)
    return taken


@pytest.fixture(scope="module", autouse=True)
def poller() -> None:
    """Start the one thread that gRPC has for all servers and channels, and keeps."""
    grpc.aio.init_grpc_aio()


def run(folder: Path, seconds: float) -> None:
    """Overload a receiver for so long, and audit the books."""
    landing = Landing(LandingSettings(folder=folder, segment_age=0.5), disk=SlowDisk())
    settings = ReceiveSettings(
        grpc_port=0,
        http_port=0,
        in_flight_bytes=IN_FLIGHT,
        group_bytes=GROUP,
        answer_timeout=ANSWER,
    )
    receiver = Receiver(landing, settings)
    books = Books()
    before = psutil.Process().memory_info().rss
    taken = asyncio.run(overload(receiver, seconds, books))
    sent = next(books.ids) - 1
    kept = {v: n for (signal, v), n in receiver.intake.outcomes.items() if signal is Signal.SPANS}
    assert kept == dict(books.outcomes)
    assert sum(kept.values()) == sent
    assert set(kept) == {Verdict.ACCEPTED, Verdict.EXHAUSTED, Verdict.UNAVAILABLE}
    assert kept[Verdict.ACCEPTED] * 10 < sent, f"no overload: {kept}"
    assert books.memory - before < MOST_GROWTH
    assert receiver.intake.under_way_bytes == 0
    assert taken < STOP
    check_folder(folder, books.accepted)


def test_under_overload_every_request_is_accounted_for(tmp_path: Path) -> None:
    """Accepted, refused or timed out, on both sides; memory and the end are bounded."""
    run(tmp_path, 2.5)


@pytest.mark.slow
def test_a_minute_of_overload_is_accounted_for(tmp_path: Path) -> None:
    """And leaves no trace in memory."""
    run(tmp_path, 60.0)
