"""A receiver is killed under load, again and again; its clients repeat what was not acknowledged.

In the end every span that was acknowledged has landed once, and no span twice.
"""

from __future__ import annotations

import http.client
import itertools
import random
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.support.receiver import (
    PATIENCE,
    ReceiverProcess,
    check_folder,
    landed_spans,
    post,
    span_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

CLIENTS = 4
SPANS = 20  # in a request
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
# Segments that fill up and grow old while the load goes on: all steps are under way at once.
OPTIONS = ("--segment-bytes", "60000", "--segment-age", "0.2")


class Client(threading.Thread):
    """Sends requests, each until it is acknowledged; the same bytes every time."""

    def __init__(self, number: int, receiver: ReceiverProcess, stopping: threading.Event) -> None:
        super().__init__(name=f"client-{number}")
        self.receiver = receiver
        self.stopping = stopping
        self.has_sent = threading.Event()  # at least one since it was cleared
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self._first = itertools.count(number << 40 | 1, SPANS)
        self._is_grpc = number % 2 == 0

    def run(self) -> None:
        """Send until told to stop; then the last request may remain without an answer."""
        for first in self._first:
            ids = range(first, first + SPANS)
            payload = span_request(ids, padding=100)
            self.sent.update(ids)
            while not self._is_accepted(payload):
                if self.stopping.wait(0.01):
                    return
            self.acknowledged.update(ids)
            self.has_sent.set()
            if self.stopping.is_set():
                return

    def _is_accepted(self, payload: bytes) -> bool:
        if self._is_grpc:
            return self._is_accepted_by_grpc(payload)
        with suppress(OSError, http.client.HTTPException):
            return post(self.receiver.http_port, payload, timeout=10.0).status == 200
        return False

    def _is_accepted_by_grpc(self, payload: bytes) -> bool:
        with grpc.insecure_channel(f"127.0.0.1:{self.receiver.grpc_port}") as channel:
            try:
                channel.unary_unary(EXPORT)(payload, timeout=10.0)
            except grpc.RpcError:
                return False
            return True


@contextmanager
def load_on(receiver: ReceiverProcess) -> Iterator[list[Client]]:
    """Have clients send for the block."""
    stopping = threading.Event()
    clients = [Client(number, receiver, stopping) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        stopping.set()
        for client in clients:
            client.join()


def kill_under_load(receiver: ReceiverProcess, moments: Sequence[float]) -> list[Client]:
    """Kill the receiver so many seconds after all clients have got through, for each moment.

    Every other time only when it has landed something as well, and the process that converts
    with it.
    """
    receiver.start()
    with load_on(receiver) as clients:
        for number, moment in enumerate(moments):
            seen = set(landed_files(receiver))
            await_all(clients, receiver)
            if number % 2:
                receiver.wait_for(partial(has_news, receiver, seen))
                kill(receiver, moment, receiver.kill_all)
            else:
                kill(receiver, moment, receiver.kill)
            receiver.start()
        await_all(clients, receiver)
    return clients


def landed_files(receiver: ReceiverProcess) -> list[Path]:
    """Return the files that are to be seen."""
    return list((receiver.folder / "spans").glob("[!.]*"))


def has_news(receiver: ReceiverProcess, seen: set[Path]) -> bool:
    """Whether files have landed that were not there before."""
    return bool(set(landed_files(receiver)) - seen)


def await_all(clients: Sequence[Client], receiver: ReceiverProcess) -> None:
    """Wait until every client has got through."""
    for client in clients:
        client.has_sent.clear()
    for client in clients:
        assert client.has_sent.wait(PATIENCE), receiver.said()


def kill(receiver: ReceiverProcess, moment: float, how: Callable[[], None]) -> None:
    """Kill the receiver then, and look at what can be seen of its folder."""
    assert receiver.process is not None
    with suppress(subprocess.TimeoutExpired):
        receiver.process.wait(moment)
    how()
    assert receiver.process.returncode == -signal.SIGKILL, receiver.said()
    landed_spans(receiver.folder)  # fails unless every file is whole


def check(receiver: ReceiverProcess, clients: Sequence[Client]) -> None:
    """End the receiver in good order, and fail unless what landed is what was promised."""
    assert receiver.stop() == 0, receiver.said()
    acknowledged = set().union(*(client.acknowledged for client in clients))
    landed = check_folder(receiver.folder, acknowledged)
    assert set(landed) <= set().union(*(client.sent for client in clients))
    assert len(acknowledged) >= CLIENTS * SPANS
    assert "Traceback" not in receiver.said()
    assert "land.not_converted" not in receiver.said()


def run(folder: Path, kills: int, seed: int) -> None:
    """Kill a receiver so often, at moments of the seed's choice."""
    chance = random.Random(seed)
    receiver = ReceiverProcess(folder / "landing", folder / "stderr", OPTIONS)
    try:
        clients = kill_under_load(receiver, [chance.uniform(0.0, 0.4) for _ in range(kills)])
        check(receiver, clients)
    finally:
        receiver.kill()


def test_killed_twice_under_load_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Nor does anything land twice, though every client repeats what it is not sure of."""
    run(tmp_path, kills=2, seed=1)


@pytest.mark.slow
def test_killed_twenty_times_under_load_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Each time with what the time before has left."""
    run(tmp_path, kills=20, seed=2)
