"""OTLP/gRPC over the wire, as its specification has it."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status

from penstock.receive.grpc_server import _SERVICES, RESPONSES
from penstock.telemetry.schema import Signal
from penstock.testing import eventually
from tests.integration.receive.rig import export
from tests.unit.receive.rig import PATIENCE, payload

if TYPE_CHECKING:
    from tests.integration.receive.rig import Server

SIGNALS = pytest.mark.parametrize("signal", Signal)
COMPRESSIONS = pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["none", "gzip"]
)


def status_in(error: grpc.RpcError) -> Status | None:
    """Return the Status that came with an error, if one did."""
    details: dict[str, Any] = dict(error.trailing_metadata() or ())
    found = details.get("grpc-status-details-bin")
    return None if found is None else Status.FromString(found)


@SIGNALS
@COMPRESSIONS
def test_every_signal_lands_by_grpc(
    server: Server, channel: grpc.Channel, signal: Signal, compression: grpc.Compression
) -> None:
    """The response is empty: partial success stays unset."""
    service = f"grpc-{signal}-{compression}"
    response = export(channel, signal, payload(signal, service, 3), compression=compression)
    assert response == RESPONSES[signal][0]()
    assert len(server.landed(signal, service, 3)) == 3


@SIGNALS
def test_an_empty_request_succeeds_by_grpc(channel: grpc.Channel, signal: Signal) -> None:
    """No bytes at all, and an envelope without contents."""
    assert not export(channel, signal, b"").HasField("partial_success")
    assert not export(channel, signal, payload(signal, "hollow", 0)).HasField("partial_success")


@SIGNALS
def test_a_partial_success_by_grpc_says_how_many_and_why(
    server: Server, channel: grpc.Channel, signal: Signal
) -> None:
    """The call succeeds; what could be kept lands."""
    partial = export(channel, signal, payload(signal, f"half-{signal}", 1, 2)).partial_success
    assert getattr(partial, RESPONSES[signal][1]) == 2
    assert partial.error_message.startswith("2 left out: ")
    assert len(server.landed(signal, f"half-{signal}", 1)) == 1


@SIGNALS
def test_a_malformed_request_is_an_invalid_argument(channel: grpc.Channel, signal: Signal) -> None:
    """With a BadRequest in its details: clients do not repeat it."""
    with pytest.raises(grpc.RpcError) as raised:
        export(channel, signal, b"\xff\xff")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    status = status_in(raised.value)
    assert status is not None
    bad = BadRequest()
    assert status.details[0].Unpack(bad)
    assert bad.field_violations[0].description == raised.value.details() != ""


@COMPRESSIONS
def test_a_request_that_is_too_large_is_refused_for_good(
    channel: grpc.Channel, compression: grpc.Compression
) -> None:
    """RESOURCE_EXHAUSTED without RetryInfo; also if only what is unpacked would be too large."""
    with pytest.raises(grpc.RpcError) as raised:
        export(channel, Signal.SPANS, bytes(80_000_000), compression=compression)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in raised.value.details()
    assert status_in(raised.value) is None
    assert len(gzip.compress(bytes(80_000_000))) < 100_000


def test_a_method_that_is_none_is_unimplemented(channel: grpc.Channel) -> None:
    """Of another service, and of one that there is."""
    for method in ("/nobody.Knows/Export", f"/{_SERVICES[Signal.SPANS]}/Import"):
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(method)(b"", timeout=PATIENCE)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_many_calls_at_once_on_one_connection_are_served(
    server: Server, channel: grpc.Channel
) -> None:
    """A client need not wait for one answer before it sends the next."""
    call = channel.unary_unary(f"/{_SERVICES[Signal.LOGS]}/Export")
    names = [f"grpc-many-{number}" for number in range(100)]
    futures = [call.future(payload(Signal.LOGS, name), timeout=PATIENCE) for name in names]
    assert {future.result() for future in futures} == {b""}
    eventually(lambda: server.services(Signal.LOGS).keys() >= set(names), PATIENCE)
    services = server.services(Signal.LOGS)
    assert {services[name] for name in names} == {1}


def test_many_connections_by_grpc_are_served(server: Server) -> None:
    """Each with a channel of its own."""

    def send(number: int) -> Any:  # noqa: ANN401 - the response's class is generated
        with server.channel() as own:
            return export(own, Signal.SPANS, payload(Signal.SPANS, f"grpc-own-{number}"))

    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(send, range(16)))
    assert responses == [RESPONSES[Signal.SPANS][0]()] * 16
    for number in range(16):
        server.landed(Signal.SPANS, f"grpc-own-{number}", 1)


def test_a_call_that_is_cancelled_lands_once_when_it_is_sent_again(
    server: Server, channel: grpc.Channel
) -> None:
    """Its client went away while the disk was busy; the commit goes on."""
    body = payload(Signal.SPANS, "cancelled")
    before = server.intake.records[Signal.SPANS]
    server.landing.gate.clear()
    try:
        call = channel.unary_unary(f"/{_SERVICES[Signal.SPANS]}/Export").future(body)
        eventually(lambda: server.intake.under_way_bytes > 0, PATIENCE)
        call.cancel()
    finally:
        server.landing.gate.set()
    export(channel, Signal.SPANS, body)
    assert server.intake.records[Signal.SPANS] == before + 1
    assert len(server.landed(Signal.SPANS, "cancelled", 1)) == 1


def test_the_standard_health_check_is_answered(server: Server, channel: grpc.Channel) -> None:
    """grpc.health.v1: serving while requests would be accepted, and not serving while not."""
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"", timeout=PATIENCE) == b"\x08\x01"
    server.landing.is_full = True
    try:
        assert check(b"", timeout=PATIENCE) == b"\x08\x02"
    finally:
        server.landing.is_full = False
