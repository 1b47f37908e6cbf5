"""Tokens and TLS over the wire: who may send, by which protocol whatever."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import grpc
import pytest

from penstock.errors import ConfigError
from penstock.receive.outcome import Verdict
from penstock.receive.settings import Tls
from penstock.telemetry.schema import Signal
from tests.integration.receive.certificates import OPENSSL, make_certificates
from tests.integration.receive.rig import JSON, PROTOBUF, Server, export, serving
from tests.integration.receive.test_grpc import status_in
from tests.unit.receive.rig import payload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.receive.certificates import Certificates

SPANS = Signal.SPANS
NEEDS_OPENSSL = pytest.mark.skipif(OPENSSL is None, reason="the command openssl is not here")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a receiver that asks for a token."""
    folder = tmp_path_factory.mktemp("landing")
    with serving(folder, tokens=frozenset({"secret-1", "secret-2"})) as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Make certificates once."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["tls", "mtls"])
def secure(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """Run a receiver with TLS, and one that asks for the client's certificate too."""
    authority = certificates.certificate("authority") if request.param == "mtls" else None
    tls = Tls(
        certificate=certificates.certificate("server"),
        key=certificates.key("server"),
        client_ca=authority,
    )
    with serving(tmp_path_factory.mktemp("landing"), tls=tls) as running:
        yield running


def context_of(certificates: Certificates, client: str | None) -> ssl.SSLContext:
    """Return how a client speaks TLS, by HTTP."""
    context = ssl.create_default_context(cafile=str(certificates.certificate("authority")))
    if client is not None:
        context.load_cert_chain(certificates.certificate(client), certificates.key(client))
    return context


def credentials_of(certificates: Certificates, client: str | None) -> grpc.ChannelCredentials:
    """Return how a client speaks TLS, by gRPC."""
    authority = certificates.certificate("authority").read_bytes()
    if client is None:
        return grpc.ssl_channel_credentials(authority)
    return grpc.ssl_channel_credentials(
        authority,
        certificates.key(client).read_bytes(),
        certificates.certificate(client).read_bytes(),
    )


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic secret-1", "secret-1"])
def test_without_a_token_http_answers_401(
    guarded: Server, header: str | None, content_type: str
) -> None:
    """What comes is not even looked at, and nothing of it lands."""
    shown = {} if header is None else {"Authorization": header}
    with guarded.client() as client:
        answer = client.post(SPANS, payload(SPANS, "denied"), content_type, **shown)
    assert (answer.status, answer.content_type) == (401, content_type)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.error().code == 16
    assert "retry-after" not in answer.headers
    assert guarded.services(SPANS)["denied"] == 0


@pytest.mark.parametrize("header", [None, "Bearer wrong"])
def test_without_a_token_grpc_is_unauthenticated(guarded: Server, header: str | None) -> None:
    """Clients do not repeat this."""
    before = guarded.intake.outcomes[SPANS, Verdict.UNAUTHENTICATED]
    metadata = () if header is None else (("authorization", header),)
    with guarded.channel() as channel, pytest.raises(grpc.RpcError) as raised:
        export(channel, SPANS, payload(SPANS, "denied"), metadata=metadata)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    status = status_in(raised.value)
    assert status is None or not status.details
    assert guarded.intake.outcomes[SPANS, Verdict.UNAUTHENTICATED] == before + 1


@pytest.mark.parametrize("token", ["secret-1", "secret-2"])
def test_each_token_may_send(guarded: Server, token: str) -> None:
    """By both protocols."""
    header = f"Bearer {token}"
    with guarded.client() as client:
        body = payload(SPANS, f"http-{token}")
        assert client.post(SPANS, body, Authorization=header).status == 200
    with guarded.channel() as channel:
        body = payload(SPANS, f"grpc-{token}")
        export(channel, SPANS, body, metadata=(("authorization", header),))
    assert guarded.landed(SPANS, f"http-{token}", 1)
    assert guarded.landed(SPANS, f"grpc-{token}", 1)


def test_health_and_figures_need_no_token(guarded: Server) -> None:
    """They are for probes, and hold nothing of the telemetry."""
    with guarded.client() as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert client.ask("GET", path).status == 200


@NEEDS_OPENSSL
def test_tls_is_spoken_by_both_protocols(secure: Server, certificates: Certificates) -> None:
    """With the client's certificate shown, whether it is asked for or not."""
    with secure.client(context_of(certificates, "client")) as client:
        assert client.post(SPANS, payload(SPANS, "http-tls")).status == 200
    with secure.channel(credentials_of(certificates, "client")) as channel:
        export(channel, SPANS, payload(SPANS, "grpc-tls"))
    assert secure.landed(SPANS, "http-tls", 1)
    assert secure.landed(SPANS, "grpc-tls", 1)


@NEEDS_OPENSSL
@pytest.mark.parametrize("shown", [None, "stranger"])
def test_without_the_right_certificate_nobody_gets_in_by_mtls(
    secure: Server, certificates: Certificates, shown: str | None
) -> None:
    """With TLS alone, whoever trusts the server may send, as long as tokens are not asked for."""
    asks = secure.settings.tls is not None and secure.settings.tls.client_ca is not None
    if not asks:
        with secure.client(context_of(certificates, shown)) as client:
            assert client.post(SPANS, b"").status == 200
        return
    with (
        secure.client(context_of(certificates, shown)) as client,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        client.post(SPANS, payload(SPANS, "stranger"))
    with (
        secure.channel(credentials_of(certificates, shown)) as channel,
        pytest.raises(grpc.RpcError) as raised,
    ):
        export(channel, SPANS, payload(SPANS, "stranger"))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert secure.services(SPANS)["stranger"] == 0


@NEEDS_OPENSSL
def test_plain_text_is_not_spoken_beside_tls(secure: Server) -> None:
    """Neither protocol falls back."""
    with secure.client() as client, pytest.raises(OSError, match=r"."):
        client.post(SPANS, payload(SPANS, "plain"))
    with secure.channel() as channel, pytest.raises(grpc.RpcError):
        export(channel, SPANS, payload(SPANS, "plain"))
    assert secure.services(SPANS)["plain"] == 0


@NEEDS_OPENSSL
@pytest.mark.parametrize(
    ("field", "file", "message"),
    [
        ("certificate", "none.pem", r"tls: certificate .*none\.pem cannot be read"),
        ("key", "none.pem", r"tls: key .*none\.pem cannot be read"),
        ("key", "stranger.key", r"server\.pem and .*stranger\.key are not a certificate and its"),
        ("client_ca", "none.pem", r"tls: client_ca .*none\.pem cannot be read"),
        ("client_ca", "server.key", r"tls: client_ca .*server\.key has no certificates"),
    ],
)
def test_a_wrong_file_is_named_before_anything_listens(
    certificates: Certificates, tmp_path: Path, field: str, file: str, message: str
) -> None:
    """By its field; the folder is free again."""
    files = {
        "certificate": certificates.certificate("server"),
        "key": certificates.key("server"),
        "client_ca": certificates.certificate("authority"),
    }
    server = Server(tmp_path, tls=Tls(**files | {field: certificates.folder / file}))
    with pytest.raises(ConfigError, match=message):
        server.start()
    server.end_loop()
    with serving(tmp_path):
        pass
