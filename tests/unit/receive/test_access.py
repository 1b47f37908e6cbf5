"""Who may send."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import ConfigError
from penstock.receive.access import check_token, ssl_context
from penstock.receive.outcome import Verdict
from penstock.receive.settings import Tls

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = frozenset({"first", "second"})


@pytest.mark.parametrize("header", [None, "", "Basic abc", "Bearer first"])
def test_without_tokens_nobody_is_asked(header: str | None) -> None:
    """Whatever a client shows."""
    assert check_token(header, ()) is None


@pytest.mark.parametrize("header", ["Bearer first", "bearer second", "BEARER  second "])
def test_each_token_is_let_in(header: str) -> None:
    """The scheme's name is spelled in any case."""
    assert check_token(header, TOKENS) is None


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "first",
        "Basic first",
        "Bearer third",
        "Bearer first second",
        "Bearer firstsecond",
        "Bearer \udcff\udcfe",
        "Bearer naïve",
    ],
)
def test_anything_else_is_not(header: str | None) -> None:
    """The answer says what to send, and nothing about the tokens."""
    denied = check_token(header, TOKENS)
    assert denied is not None
    assert denied.verdict is Verdict.UNAUTHENTICATED
    assert "Authorization: Bearer TOKEN" in denied.message
    assert not any(token in denied.message for token in TOKENS)


@pytest.mark.parametrize("name", ["certificate", "key"])
def test_a_tls_file_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    """By the field and by its path."""
    files = {"certificate": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    for path in files.values():
        path.write_text("anything")
    files[name].unlink()
    with pytest.raises(ConfigError, match=f"tls: {name} .*{files[name].name} cannot be read: No"):
        ssl_context(Tls(**files))


def test_files_that_are_not_pem_are_refused_by_name(tmp_path: Path) -> None:
    """The error names both, for either may be the wrong one."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path in (certificate, key):
        path.write_text("not a certificate")
    with pytest.raises(ConfigError, match=r"cert\.pem and .*key\.pem are not a certificate and"):
        ssl_context(Tls(certificate=certificate, key=key))
