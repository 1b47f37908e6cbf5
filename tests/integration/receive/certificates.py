"""Certificates for tests, made by the command `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["OPENSSL", "Certificates", "make_certificates"]

OPENSSL = shutil.which("openssl")


@dataclass(frozen=True)
class Certificates:
    """An authority; a server's and a client's certificate by it, and one by somebody else."""

    folder: Path

    def certificate(self, name: str) -> Path:
        """Return the file of a certificate: "authority", "server", "client" or "stranger"."""
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        """Return the file of its key."""
        return self.folder / f"{name}.key"


def make_certificates(folder: Path) -> Certificates:
    """Make them all, valid for a day."""
    made = Certificates(folder)
    for name in ("authority", "stranger"):
        _openssl(made, name, "-x509", "-subj", f"/CN={name}")
    for name in ("server", "client"):
        request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
        _openssl(made, name, "-subj", f"/CN={name}", out=request)
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        authority: list[str | Path] = [
            "-CA",
            made.certificate("authority"),
            "-CAkey",
            made.key("authority"),
        ]
        signed: list[str | Path] = [
            "-extfile",
            extensions,
            "-days",
            "1",
            "-out",
            made.certificate(name),
        ]
        _run("x509", "-req", "-in", request, *authority, "-CAcreateserial", *signed)
    return made


def _openssl(made: Certificates, name: str, *options: str, out: Path | None = None) -> None:
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    files: list[str | Path] = ["-keyout", made.key(name), "-out", out or made.certificate(name)]
    _run("req", *kind, *options, *files)


def _run(*arguments: str | Path) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], check=True, capture_output=True, timeout=60)
