"""A receiver that is full, in trouble, slow or about to stop, as its clients see it."""

from __future__ import annotations

import errno
import socket
import threading
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo

from penstock.errors import LandingError, ReceiverError
from penstock.receive.outcome import Verdict
from penstock.telemetry.schema import Signal
from penstock.testing import eventually
from tests.integration.receive.rig import JSON, PROTOBUF, Server, export, json_body, serving
from tests.integration.receive.test_grpc import status_in
from tests.unit.receive.rig import PATIENCE, payload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from google.rpc.status_pb2 import Status

    from tests.integration.receive.rig import Client

SPANS = Signal.SPANS
ENCODINGS = pytest.mark.parametrize("content_type", [PROTOBUF, JSON])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a receiver that asks for two and a half seconds of patience."""
    with serving(tmp_path_factory.mktemp("landing"), retry_after=2.5) as running:
        yield running


@pytest.fixture(autouse=True)
def healthy(server: Server) -> Iterator[None]:
    """Leave the server as it was found."""
    yield
    server.landing.is_full, server.landing.error = False, None
    server.landing.gate.set()
    with server.client() as client:
        client.post(SPANS, payload(SPANS, "recovered"))


def pause_in(status: Status) -> float:
    """Return what a client should wait, in seconds."""
    retry = RetryInfo()
    assert status.details[0].Unpack(retry)
    return float(retry.retry_delay.ToMilliseconds()) / 1000


@ENCODINGS
def test_a_full_receiver_answers_429_and_when_to_come_again(
    server: Server, client: Client, content_type: str
) -> None:
    """Whole seconds, rounded up, in Retry-After; a Status in the encoding of the request."""
    server.landing.is_full = True
    encode = payload if content_type == PROTOBUF else json_body
    answer = client.post(SPANS, encode(SPANS, "full", 1, 0), content_type)
    assert (answer.status, answer.content_type) == (429, content_type)
    assert answer.headers["retry-after"] == "3"
    assert "disk cap" in answer.error().message
    assert pause_in(answer.error()) == 2.5
    assert client.ask("GET", "/readyz").status == 503
    assert client.ask("GET", "/healthz").status == 200


def test_a_full_receiver_is_exhausted_by_grpc_with_retry_info(
    server: Server, channel: grpc.Channel
) -> None:
    """Without RetryInfo a client would drop its data."""
    server.landing.is_full = True
    with pytest.raises(grpc.RpcError) as raised:
        export(channel, SPANS, payload(SPANS, "full"))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    status = status_in(raised.value)
    assert status is not None
    assert (status.code, pause_in(status)) == (8, 2.5)


@ENCODINGS
def test_storage_trouble_answers_503_and_when_to_come_again(
    server: Server, client: Client, content_type: str
) -> None:
    """The request is taken when the disk is well again."""
    encode = payload if content_type == PROTOBUF else json_body
    body = encode(SPANS, f"trouble-{content_type}", 1, 0)
    server.landing.error = OSError(errno.ENOSPC, "No space left on device")
    answer = client.post(SPANS, body, content_type)
    assert (answer.status, answer.content_type) == (503, content_type)
    assert answer.headers["retry-after"] == "3"
    assert "No space left on device" in answer.error().message
    server.landing.error = None
    assert client.post(SPANS, body, content_type).status == 200
    assert server.landed(SPANS, f"trouble-{content_type}", 1)


def test_storage_trouble_is_unavailable_by_grpc_with_retry_info(
    server: Server, channel: grpc.Channel
) -> None:
    """As OTLP has it for what can be repeated."""
    server.landing.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(grpc.RpcError) as raised:
        export(channel, SPANS, payload(SPANS, "trouble"))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    status = status_in(raised.value)
    assert status is not None
    assert (status.code, pause_in(status)) == (14, 2.5)


def test_a_malformed_request_is_malformed_also_when_full(server: Server, client: Client) -> None:
    """It would never be taken; nobody should come again with it."""
    server.landing.is_full = True
    assert client.post(SPANS, b"\xff").status == 400


def test_a_disk_that_is_too_slow_answers_503_and_the_retry_counts_once(tmp_path: Path) -> None:
    """The answer does not come in time; the request lands all the same, once."""
    with serving(tmp_path, answer_timeout=0.5) as slow, slow.client() as client:
        slow.landing.gate.clear()
        body = payload(SPANS, "slow")
        assert client.post(SPANS, body).status == 503
        slow.landing.gate.set()
        eventually(lambda: slow.intake.under_way_bytes == 0, PATIENCE)
        assert client.post(SPANS, body).status == 200
        assert len(slow.landed(SPANS, "slow", 1)) == 1


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    """A client that stalls is told to send again, and its connection ends."""
    head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\n"
    with serving(tmp_path, answer_timeout=0.1) as impatient:
        address = ("localhost", impatient.receiver.http_port)
        with socket.create_connection(address, PATIENCE) as stalling:
            stalling.sendall(f"{head}Content-Length: 100\r\n\r\nhalf".encode())
            answer = stalling.recv(4000)
        assert b" 503 " in answer
        assert b"Connection: close" in answer
        assert impatient.intake.outcomes[SPANS, Verdict.UNAVAILABLE] == 1


def test_a_large_request_does_not_hold_up_another_client(server: Server) -> None:
    """Its JSON takes a while to read; health is answered all the while."""
    large = b'{"resourceSpans":[' + b"{}," * 300_000 + b"{}]}"
    statuses: list[int] = []

    def send() -> None:
        with server.client() as sender:
            statuses.append(sender.post(SPANS, large, JSON).status)

    thread = threading.Thread(target=send)
    thread.start()
    answered_before_the_end = 0
    with server.client() as client:
        while thread.is_alive():
            assert client.ask("GET", "/healthz").status == 200
            answered_before_the_end += thread.is_alive()
    thread.join(PATIENCE)
    assert statuses == [200]
    assert answered_before_the_end >= 10


def test_a_stop_answers_what_is_under_way_and_lands_it(tmp_path: Path) -> None:
    """A connection that is open gets its answer; what comes later is told to come again."""
    server = Server(tmp_path)
    server.start()
    server.landing.gate.clear()
    first, second = server.client(), server.client()
    answers: list[int] = []
    sender = threading.Thread(
        target=lambda: answers.append(first.post(SPANS, payload(SPANS, "under way")).status)
    )
    second.ask("GET", "/healthz")
    sender.start()
    eventually(lambda: server.intake.under_way_bytes > 0, PATIENCE)
    stopper = threading.Thread(target=server.stop)
    stopper.start()
    eventually(lambda: server.intake.is_draining, PATIENCE)
    late = second.post(SPANS, payload(SPANS, "late"))
    server.landing.gate.set()
    for thread in (sender, stopper):
        thread.join(PATIENCE)
    first.connection.close()
    second.connection.close()
    assert (late.status, answers) == (503, [200])
    assert server.services(SPANS) == {"first": 1, "under way": 1}


def test_a_request_sent_again_to_the_next_receiver_lands_once(tmp_path: Path) -> None:
    """Its digest is kept on the disk with what has landed."""
    body = payload(SPANS, "restart")
    for _ in range(2):
        with serving(tmp_path) as server, server.client() as client:
            assert client.post(SPANS, body).status == 200
    assert server.services(SPANS)["restart"] == 1


def test_a_port_in_use_is_named_and_nothing_is_left_behind(server: Server, tmp_path: Path) -> None:
    """Of either protocol; the folder is free again."""
    for name in ("http_port", "grpc_port"):
        other = Server(tmp_path, **{name: getattr(server.receiver, name)})
        with pytest.raises(ReceiverError, match=f"--{name.replace('_', '-')}"):
            other.start()
        other.end_loop()
    with serving(tmp_path):
        pass


def test_a_second_receiver_of_a_folder_does_not_start(server: Server) -> None:
    """Two would each convert the other's segments."""
    other = Server(server.folder)
    with pytest.raises(LandingError, match="another receiver uses"):
        other.start()
    other.end_loop()


def test_what_is_still_coming_in_counts_as_under_way(tmp_path: Path) -> None:
    """Clients that send slowly do not fill the memory: beyond the bound, others are refused."""
    head = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
    with serving(tmp_path, in_flight_bytes=10_000) as server:
        slow = socket.create_connection(("127.0.0.1", server.receiver.http_port))
        with slow, server.client() as client:
            slow.sendall(head + b"Content-Length: 9999\r\n\r\n" + bytes(9990))
            eventually(lambda: server.intake.under_way_bytes == 9990, timeout=PATIENCE)
            answer = client.post(SPANS, payload(SPANS, "refused"))
            assert answer.status == 429
        eventually(lambda: server.intake.under_way_bytes == 0, timeout=PATIENCE)
        with server.client() as client:
            assert client.post(SPANS, payload(SPANS, "welcome")).status == 200
