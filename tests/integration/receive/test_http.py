"""OTLP/HTTP over the wire, as its specification has it."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from google.rpc.error_details_pb2 import BadRequest

from penstock.receive.grpc_server import RESPONSES
from penstock.receive.outcome import Verdict
from penstock.telemetry.schema import Signal
from penstock.testing import eventually
from tests.integration.receive.rig import JSON, PROTOBUF, json_body
from tests.unit.receive.rig import PATIENCE, payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.receive.rig import Client, Server

ENCODINGS = pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
SIGNALS = pytest.mark.parametrize("signal", Signal)
LIMIT = 100_000  # the server's


def body_of(content_type: str, signal: Signal, service: str, good: int = 1, bad: int = 0) -> bytes:
    """Return a request in either encoding."""
    encode = payload if content_type == PROTOBUF else json_body
    return encode(signal, service, good, bad)


@SIGNALS
@ENCODINGS
@pytest.mark.parametrize("compression", ["identity", "gzip"])
def test_every_signal_lands_in_every_encoding(
    server: Server, client: Client, signal: Signal, content_type: str, compression: str
) -> None:
    """The answer is an empty response in the encoding of the request; the records are in files."""
    service = f"http-{signal}-{content_type}-{compression}"
    body = body_of(content_type, signal, service, 3)
    answer = client.post(signal, body, content_type, Content_Encoding=compression)
    assert answer.content_type == content_type
    assert answer.response(signal) == RESPONSES[signal][0]()
    assert len(server.landed(signal, service, 3)) == 3


def test_what_lands_is_what_was_sent(server: Server, client: Client) -> None:
    """Names, ids and values, the same by protobuf and by JSON."""
    for content_type in (PROTOBUF, JSON):
        service = f"same-{content_type}"
        for signal in Signal:
            client.post(signal, body_of(content_type, signal, service, 2), content_type)
        spans = server.landed(Signal.SPANS, service, 2)
        assert [span["name"] for span in spans] == ["span 0", "span 1"]
        assert {span["trace_id"] for span in spans} == {bytes(range(1, 17))}
        points = server.landed(Signal.POINTS, service, 2)
        assert [(point["metric_name"], point["value"]) for point in points] == [
            ("size", 0.0),
            ("size", 1.0),
        ]
        logs = server.landed(Signal.LOGS, service, 2)
        assert [log["body"] for log in logs] == ["line 0", "line 1"]


@SIGNALS
@ENCODINGS
def test_an_empty_request_succeeds(client: Client, signal: Signal, content_type: str) -> None:
    """One that carries no telemetry; partial success stays unset."""
    empty = b"" if content_type == PROTOBUF else b"{}"
    assert not client.post(signal, empty, content_type).response(signal).HasField("partial_success")
    hollow = body_of(content_type, signal, "hollow", 0)
    assert client.post(signal, hollow, content_type).status == 200


@SIGNALS
@ENCODINGS
def test_a_partial_success_says_how_many_and_why(
    server: Server, client: Client, signal: Signal, content_type: str
) -> None:
    """The status is 200; what could be kept lands."""
    service = f"partial-{signal}-{content_type}"
    answer = client.post(signal, body_of(content_type, signal, service, 2, 3), content_type)
    partial = answer.response(signal).partial_success
    assert getattr(partial, RESPONSES[signal][1]) == 3
    assert partial.error_message.startswith("3 left out: ")
    assert len(server.landed(signal, service, 2)) == 2


def test_numbers_of_64_bits_are_text_in_a_json_answer(client: Client) -> None:
    """As ProtoJSON writes them; names in camel case."""
    answer = client.post(Signal.SPANS, json_body(Signal.SPANS, "numbers", 1, 2), JSON)
    assert json.loads(answer.body)["partialSuccess"]["rejectedSpans"] == "2"


def test_unknown_members_of_json_are_ignored(server: Server, client: Client) -> None:
    """A newer client is understood."""
    request = json.loads(json_body(Signal.SPANS, "newer"))
    request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["invented"] = {"deep": [1]}
    assert client.post(Signal.SPANS, json.dumps(request).encode(), JSON).status == 200
    assert server.landed(Signal.SPANS, "newer", 1)


def test_parameters_of_a_content_type_do_not_matter(client: Client) -> None:
    """The answer has the plain type."""
    answer = client.post(Signal.SPANS, b"{}", "application/json; charset=utf-8")
    assert (answer.status, answer.content_type) == (200, JSON)
    assert client.post(Signal.SPANS, b"", "Application/X-Protobuf").content_type == PROTOBUF


@SIGNALS
@pytest.mark.parametrize(
    ("content_type", "body"),
    [(PROTOBUF, b"\xff\xff\xff"), (JSON, b'{"resourceSpans": '), (JSON, b"[]"), (JSON, b"")],
)
def test_a_malformed_request_is_answered_400_with_a_status(
    client: Client, signal: Signal, content_type: str, body: bytes
) -> None:
    """In the encoding of the request, with a BadRequest in its details."""
    answer = client.post(signal, body, content_type)
    assert (answer.status, answer.content_type) == (400, content_type)
    error = answer.error()
    assert error.code == 3
    bad = BadRequest()
    assert error.details[0].Unpack(bad)
    assert bad.field_violations[0].description == error.message != ""
    assert "retry-after" not in answer.headers


@ENCODINGS
@pytest.mark.parametrize(
    "body",
    [b"not gzip", gzip.compress(b"{}" * 50)[:-3], gzip.compress(b"{}") + b"behind"],
    ids=["none", "cut", "more"],
)
def test_a_body_that_is_not_gzip_is_malformed(
    client: Client, content_type: str, body: bytes
) -> None:
    """Not at all, not to its end, or followed by something else."""
    headers = {"Content-Type": content_type, "Content-Encoding": "gzip"}
    answer = client.ask("POST", "/v1/traces", body, headers)
    assert answer.status == 400
    assert "not gzip" in answer.error().message


def test_gzip_of_several_members_is_one_body(server: Server, client: Client) -> None:
    """As gzip has it, also if they are many."""
    body = payload(Signal.SPANS, "members")
    packed = gzip.compress(body[:10]) + gzip.compress(b"") * 3000 + gzip.compress(body[10:])
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
    assert client.ask("POST", "/v1/traces", packed, headers).status == 200
    assert server.landed(Signal.SPANS, "members", 1)


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "nonsense", ""])
def test_an_unknown_content_type_is_answered_415(client: Client, content_type: str) -> None:
    """The message says which are known; it is in JSON, for want of a better one."""
    answer = client.post(Signal.SPANS, b"", content_type)
    assert (answer.status, answer.content_type) == (415, JSON)
    assert PROTOBUF in answer.error().message


@ENCODINGS
@pytest.mark.parametrize("encoding", ["deflate", "zstd", "br", "gzip, gzip"])
def test_an_unknown_encoding_is_answered_415(
    client: Client, content_type: str, encoding: str
) -> None:
    """The message says which are known."""
    answer = client.post(Signal.SPANS, b"", content_type, Content_Encoding=encoding)
    assert (answer.status, answer.content_type) == (415, content_type)
    assert "send gzip or none" in answer.error().message


@ENCODINGS
def test_a_body_that_says_it_is_too_large_is_answered_413(
    client: Client, content_type: str
) -> None:
    """By its Content-Length; the connection ends, for the rest is not read."""
    answer = client.post(Signal.SPANS, bytes(8_000_000), content_type)
    assert (answer.status, answer.content_type) == (413, content_type)
    assert "100,000 bytes" in answer.error().message
    assert answer.headers["connection"] == "close"
    assert "retry-after" not in answer.headers


def test_a_body_in_chunks_that_is_too_large_is_answered_413(client: Client) -> None:
    """Nobody has said how large it would be."""
    answer = client.post(Signal.SPANS, (b"x" * 1000 for _ in range(200)), JSON)
    assert answer.status == 413


def test_a_body_in_chunks_is_taken(server: Server, client: Client) -> None:
    """HTTP does not ask for a Content-Length."""
    body = payload(Signal.SPANS, "chunks", 5)
    pieces: Iterator[bytes] = (body[start : start + 7] for start in range(0, len(body), 7))
    assert client.post(Signal.SPANS, pieces).status == 200
    assert len(server.landed(Signal.SPANS, "chunks", 5)) == 5


@ENCODINGS
def test_a_body_that_grows_too_large_when_unpacked_is_answered_413(
    client: Client, content_type: str
) -> None:
    """A hundred kilobytes that would become a hundred megabytes are not unpacked."""
    body = gzip.compress(bytes(80_000_000))
    assert len(body) < LIMIT
    headers = {"Content-Type": content_type, "Content-Encoding": "gzip"}
    answer = client.ask("POST", "/v1/traces", body, headers)
    assert (answer.status, answer.content_type) == (413, content_type)


def test_a_request_of_just_the_limit_is_taken(client: Client) -> None:
    """The limit is what may be sent."""
    short = payload(Signal.LOGS, "x" * 90_000)
    exact = payload(Signal.LOGS, "x" * (90_000 + LIMIT - len(short)))
    assert len(exact) == LIMIT
    assert client.post(Signal.LOGS, exact).status == 200
    assert client.post(Signal.LOGS, exact, Content_Encoding="gzip").status == 200
    assert client.post(Signal.LOGS, exact + b"\x00").status == 413


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
@pytest.mark.parametrize("path", ["/", "/v1/trace", "/v1/traces/", "/v1development/profiles"])
def test_another_path_is_answered_404_with_a_status(
    client: Client, path: str, content_type: str
) -> None:
    """The message says which there are."""
    answer = client.ask("POST", path, b"", {"Content-Type": content_type})
    assert (answer.status, answer.content_type) == (404, content_type)
    assert "/v1/traces, /v1/metrics, /v1/logs" in answer.error().message


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_another_method_is_answered_405_with_a_status(client: Client, method: str) -> None:
    """Telemetry is posted."""
    answer = client.ask(method, "/v1/logs", b"", {"Content-Type": PROTOBUF})
    assert answer.status == 405
    assert answer.headers["allow"] == "POST"
    assert "OTLP is POST" in answer.error().message


def test_a_connection_is_kept_for_many_requests(server: Server, client: Client) -> None:
    """Errors of a request do not end it."""
    client.post(Signal.SPANS, payload(Signal.SPANS, "kept-0"))
    own_port = client.connection.sock.getsockname()
    client.post(Signal.SPANS, b"\xff")
    client.post(Signal.SPANS, b"", "text/plain", Content_Encoding="br")
    client.ask("GET", "/nowhere")
    for number in range(1, 20):
        client.post(Signal.SPANS, payload(Signal.SPANS, f"kept-{number}"))
    assert client.connection.sock.getsockname() == own_port
    for number in range(20):
        server.landed(Signal.SPANS, f"kept-{number}", 1)


def test_many_connections_at_once_are_served(server: Server) -> None:
    """Each request lands once, whichever connection it came by."""
    statuses: list[int] = []

    def send(number: int) -> None:
        with server.client() as client:
            for turn in range(5):
                body = payload(Signal.LOGS, f"many-{number}-{turn}")
                statuses.append(client.post(Signal.LOGS, body).status)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert statuses == [200] * 100
    names = {f"many-{number}-{turn}" for number in range(20) for turn in range(5)}
    eventually(lambda: names <= server.services(Signal.LOGS).keys(), PATIENCE)
    services = server.services(Signal.LOGS)
    assert {services[name] for name in names} == {1}


def test_a_request_sent_again_lands_once(server: Server, client: Client) -> None:
    """Also by another connection, in another encoding of the same request, and by gRPC."""
    body = payload(Signal.SPANS, "again")
    before = server.intake.repeated[Signal.SPANS]
    assert client.post(Signal.SPANS, body).status == 200
    with server.client() as other:
        assert other.post(Signal.SPANS, body, Content_Encoding="gzip").status == 200
    assert server.intake.repeated[Signal.SPANS] == before + 1
    assert len(server.landed(Signal.SPANS, "again", 1)) == 1


@pytest.mark.parametrize("head", ["Content-Length: 5000", "Transfer-Encoding: chunked"])
def test_a_client_that_goes_away_disturbs_nobody(
    server: Server, client: Client, head: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of its request: nothing of it lands, nothing is logged as an error."""
    lost = server.intake.outcomes[Signal.SPANS, Verdict.UNAVAILABLE]
    with socket.create_connection(("localhost", server.receiver.http_port), PATIENCE) as leaving:
        leaving.sendall(
            f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\n{head}\r\n\r\n"
            "100\r\nhalf".encode()
        )
        assert client.post(Signal.SPANS, payload(Signal.SPANS, f"beside-{head}")).status == 200
        leaving.shutdown(socket.SHUT_WR)
        leaving.settimeout(PATIENCE)
        while leaving.recv(1000):
            pass
    assert client.post(Signal.SPANS, payload(Signal.SPANS, f"after-{head}")).status == 200
    assert server.intake.outcomes[Signal.SPANS, Verdict.UNAVAILABLE] == lost + 1
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_what_is_not_http_disturbs_nobody(server: Server, client: Client) -> None:
    """It is told so, and the connection ends."""
    with socket.create_connection(("localhost", server.receiver.http_port), PATIENCE) as other:
        other.sendall(b"\x16\x03\x01 hello?\r\n\r\n")
        assert b" 400 " in other.recv(1000)
    assert client.post(Signal.SPANS, b"").status == 200


def test_the_server_is_alive_and_ready(client: Client) -> None:
    """Two questions, for who restarts it and for who sends traffic."""
    assert client.ask("GET", "/healthz").body == b"ok\n"
    ready = client.ask("GET", "/readyz")
    assert (ready.status, ready.body) == (200, b"ready\n")


def test_the_figures_can_be_scraped(server: Server, client: Client) -> None:
    """With what this receiver has counted."""
    client.post(Signal.SPANS, b"\xff")
    answer = client.ask("GET", "/metrics")
    assert answer.content_type == "text/plain"
    count = server.intake.outcomes[Signal.SPANS, Verdict.MALFORMED]
    line = f'penstock_receive_requests_total{{outcome="malformed",signal="spans"}} {count}.0'
    assert line in answer.body.decode().splitlines()
