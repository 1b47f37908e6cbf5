"""What a receiver can be told, and what it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.receive.settings import ReceiveSettings


def test_the_defaults_are_otlps_ports_on_this_machine_only() -> None:
    """Nothing is open to the network unless somebody says so."""
    settings = ReceiveSettings()
    assert (settings.grpc_port, settings.http_port) == (4317, 4318)
    assert not settings.is_exposed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"grpc_port": -1}, "grpc_port must be from 0 to 65535, not -1"),
        ({"http_port": 65_536}, "http_port must be from 0 to 65535, not 65536"),
        ({"grpc_port": 4318}, "grpc_port and http_port are both 4318; each needs its own"),
        ({"tokens": frozenset({""})}, "a token must be ASCII text without blanks"),
        ({"tokens": frozenset({"a b"})}, "a token must be ASCII text without blanks"),
        ({"tokens": frozenset({"schlüssel"})}, "a token must be ASCII text without blanks"),
    ],
)
def test_what_cannot_work_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    """The error names the field, and its value unless that is a secret."""
    with pytest.raises(ConfigError, match=message) as raised:
        ReceiveSettings(**changed)
    assert "schlüssel" not in str(raised.value)


def test_both_ports_may_be_any_free_one() -> None:
    """Port 0 is a different port each time."""
    assert ReceiveSettings(grpc_port=0, http_port=0).grpc_port == 0


@pytest.mark.parametrize(
    ("host", "is_exposed"),
    [
        ("127.0.0.1", False),
        ("127.8.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),  # noqa: S104 - nothing is bound
        ("::", True),
        ("10.0.0.5", True),
        ("collector.example", True),
    ],
)
def test_only_a_loopback_address_is_not_exposed(host: str, is_exposed: bool) -> None:  # noqa: FBT001 - a column
    """A name that is not known to be this machine may be any."""
    assert ReceiveSettings(host=host).is_exposed is is_exposed
