"""Who may send: bearer tokens, and the files of TLS."""

from __future__ import annotations

import hmac
import ssl
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.receive.outcome import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.receive.settings import Tls

__all__ = ["check_token", "pem", "ssl_context"]

_BEARER = "bearer "
_DENIED = Outcome(
    Verdict.UNAUTHENTICATED, "send a valid token in the header: Authorization: Bearer TOKEN"
)


def check_token(header: str | None, tokens: Iterable[str]) -> Outcome | None:
    """Return None if the value of an Authorization header has one of *tokens*, or none is asked."""
    tokens = list(tokens)
    if not tokens:
        return None
    given = header or ""
    if given[: len(_BEARER)].lower() != _BEARER:
        return _DENIED
    shown = given[len(_BEARER) :].strip().encode("utf-8", "surrogateescape")
    # All are compared, each in constant time: how long it takes tells nothing.
    matches = [hmac.compare_digest(shown, token.encode()) for token in tokens]
    return None if any(matches) else _DENIED


def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return how HTTP speaks TLS. Reading the files here finds what is wrong with them, too."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    pem("certificate", tls.certificate)
    pem("key", tls.key)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except ssl.SSLError as error:
        raise ConfigError(
            f"tls: {tls.certificate} and {tls.key} are not a certificate and its key in PEM "
            f"format: {error.reason or error}"
        ) from error
    if tls.client_ca is not None:
        pem("client_ca", tls.client_ca)
        try:
            context.load_verify_locations(tls.client_ca)
        except ssl.SSLError as error:
            raise ConfigError(
                f"tls: client_ca {tls.client_ca} has no certificates in PEM format"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pem(name: str, path: Path) -> bytes:
    """Return the contents of a file that TLS needs."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"tls: {name} {path} cannot be read: {error.strerror}") from error
