"""How the receiver listens, whom it trusts and how much it takes in at once."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ReceiveSettings", "Tls"]

_PORTS = range(65_536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files in PEM format. With *client_ca* a client must show a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveSettings:
    """The settings of one receiver. Sizes are bytes, times are seconds; port 0 is any free one."""

    host: str = "127.0.0.1"
    grpc_port: int = 4317
    http_port: int = 4318
    request_bytes: int = 8 << 20
    """A larger request, after decompression, is refused for good."""
    in_flight_bytes: int = 64 << 20
    """Requests that wait for the disk, together; beyond that clients are told to come later."""
    in_flight_requests: int = 10_000
    group_bytes: int = 4 << 20
    """A group commit is not larger, unless a single request is."""
    answer_timeout: float = 30.0
    """A request that is not on the disk by then is answered "try again"."""
    retry_after: float = 1.0
    """What a client that is told to come later should wait, at least."""
    tokens: frozenset[str] = frozenset()
    """Bearer tokens that are accepted; none: nobody is asked for one."""
    tls: Tls | None = None

    def __post_init__(self) -> None:
        for name in ("grpc_port", "http_port"):
            if getattr(self, name) not in _PORTS:
                raise ConfigError(f"{name} must be from 0 to 65535, not {getattr(self, name)!r}")
        if self.grpc_port == self.http_port != 0:
            raise ConfigError(
                f"grpc_port and http_port are both {self.grpc_port}; each needs its own"
            )
        if any(not token or not token.isascii() or " " in token for token in self.tokens):
            raise ConfigError("a token must be ASCII text without blanks, and not empty")

    @property
    def is_exposed(self) -> bool:
        """Whether others than this machine can reach it."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True
