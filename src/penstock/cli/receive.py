"""`penstock receive`: OTLP in, landed files out."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli._arguments import at_least, from_zero, positive
from penstock.cli._logging import add_logging_options, set_up_logging
from penstock.cli._part import announce_ready, follow_parent
from penstock.errors import ConfigError, DependencyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.land.landing import Landing
    from penstock.receive.intake import Intake
    from penstock.receive.receiver import Receiver
    from penstock.receive.settings import ReceiveSettings

__all__ = ["add_options", "add_parser"]

log = logging.getLogger("penstock.receive")

_EXAMPLES = """\
examples:
  penstock receive --landing landing
  penstock receive --landing landing --host 0.0.0.0 --tls-certificate cert.pem --tls-key key.pem \\
      --token-file tokens.txt

An answer of OK means that the telemetry is on this machine's disk. At Ctrl-C or SIGTERM requests
under way are answered, and what is on the disk lands. Nothing that was answered OK is ever lost:
what could not land in time lands at the next start.
Exit codes: 0 stopped, 1 an error (the message says which), 2 wrong usage.
"""
_LOCK_PATIENCE = 3.0  # seconds that a killed receiver's last conversion may take
_BYTES = (
    ("request-bytes", 8 << 20, "bytes of one request, after decompression"),
    ("in-flight-bytes", 64 << 20, "bytes of all requests that wait for the disk"),
    ("segment-bytes", 16 << 20, "bytes of requests that become one file"),
    ("disk-bytes", 8 << 30, "bytes in the landing folder that wait; beyond, clients must too"),
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "receive",
        help="receive OTLP and land it as files",
        description="Receive OTLP over gRPC and HTTP, and land it as Parquet files.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--landing", type=Path, required=True, metavar="DIR", help="landing folder")
    add_options(parser)
    parser.add_argument("--quiet", action="store_true", help="do not show where it listens")
    add_logging_options(parser)
    parser.set_defaults(run=_run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is the receiver's own."""
    where = parser.add_argument_group("where it listens")
    where.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    for name, port in (("grpc", 4317), ("http", 4318)):
        where.add_argument(
            f"--{name}-port",
            type=at_least(0),
            default=port,
            metavar="N",
            help="default: %(default)s; 0: any that is free",
        )
    trust = parser.add_argument_group("whom it trusts (files in PEM format)")
    trust.add_argument("--tls-certificate", type=Path, metavar="FILE", help="its certificate")
    trust.add_argument("--tls-key", type=Path, metavar="FILE", help="the certificate's key")
    trust.add_argument(
        "--tls-client-ca", type=Path, metavar="FILE", help="clients must show a certificate by it"
    )
    trust.add_argument(
        "--token-file", type=Path, metavar="FILE", help="bearer tokens that are let in, one a line"
    )
    much = parser.add_argument_group("how much it takes")
    much.add_argument(
        "--segments",
        type=Path,
        metavar="DIR",
        help="where requests lie until they become files, one folder for each receiver "
        "(default: .wal in the landing folder)",
    )
    for name, default, text in _BYTES:
        much.add_argument(
            f"--{name}",
            type=at_least(1024),
            default=default,
            metavar="N",
            help=f"{text} (default: %(default)s)",
        )
    for name, seconds, text in (
        ("segment-age", 2.0, "seconds after which requests become a file at the latest"),
        ("answer-timeout", 30.0, "seconds after which a client is told to try again"),
    ):
        much.add_argument(
            f"--{name}",
            type=positive,
            default=seconds,
            metavar="S",
            help=f"{text} (default: %(default)g)",
        )
    much.add_argument(
        "--stop-timeout",
        type=from_zero,
        default=20.0,
        metavar="S",
        help="seconds to finish when it is stopped (default: %(default)g)",
    )


def _run(options: argparse.Namespace) -> int:
    set_up_logging(options)
    follow_parent()
    # gRPC would say on its own, and cryptically, what the command says in one line.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    receiver = _receiver(options)
    return asyncio.run(_receive(receiver, options))


def _receiver(options: argparse.Namespace) -> Receiver:
    try:
        from penstock.land.converters import ConverterProcess
        from penstock.land.landing import Landing, LandingSettings
        from penstock.receive.receiver import Receiver
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"receiving needs {error.name}: pip install 'penstock[otlp]'"
        ) from error
    landing = Landing(
        LandingSettings(
            folder=options.landing,
            segments=options.segments,
            segment_bytes=options.segment_bytes,
            segment_age=options.segment_age,
            disk_bytes=options.disk_bytes,
            lock_patience=_LOCK_PATIENCE,
        ),
        converter=ConverterProcess(),
    )
    return Receiver(landing, _settings(options), lambda intake: _figures(intake, landing))


def _settings(options: argparse.Namespace) -> ReceiveSettings:
    from penstock.receive.settings import ReceiveSettings, Tls

    tls = None
    if options.tls_certificate or options.tls_key or options.tls_client_ca:
        if not (options.tls_certificate and options.tls_key):
            raise ConfigError("TLS needs both --tls-certificate and --tls-key")
        tls = Tls(
            certificate=options.tls_certificate,
            key=options.tls_key,
            client_ca=options.tls_client_ca,
        )
    return ReceiveSettings(
        host=options.host,
        grpc_port=options.grpc_port,
        http_port=options.http_port,
        request_bytes=options.request_bytes,
        in_flight_bytes=options.in_flight_bytes,
        answer_timeout=options.answer_timeout,
        tokens=_tokens(options.token_file),
        tls=tls,
    )


def _tokens(path: Path | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ConfigError(f"--token-file {path} cannot be read: {reason}") from error
    tokens = frozenset(line.strip() for line in lines if line.strip() and line[0] != "#")
    if not tokens:
        raise ConfigError(f"--token-file {path} has no tokens; write one into each line")
    return tokens


def _figures(intake: Intake, landing: Landing) -> Callable[[], tuple[bytes, str]]:
    from penstock.receive.figures import receiver_figures

    try:
        from penstock.prometheus import (
            BatcherCollector,
            FigureCollector,
            QueueCollector,
            exposition,
        )
    except ImportError:
        return lambda: (b"# pip install 'penstock[prometheus]'\n", "text/plain")
    return exposition(
        [
            FigureCollector(lambda: receiver_figures(intake, landing)),
            QueueCollector(intake.queues),
            BatcherCollector(intake.batchers.values()),
        ]
    )


async def _receive(receiver: Receiver, options: argparse.Namespace) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    await receiver.start()
    settings = receiver.settings
    if settings.is_exposed and settings.tls is None:
        log.warning("receive.exposed: %s is open to the network without TLS", settings.host)
    if not options.quiet:
        scheme = "http" if settings.tls is None else "https"
        print(
            f"receiving OTLP: gRPC {settings.host}:{receiver.grpc_port}, "
            f"HTTP {scheme}://{settings.host}:{receiver.http_port} · landing in {options.landing}",
            file=sys.stderr,
            flush=True,
        )
    announce_ready()
    await stopping.wait()
    is_done = await receiver.stop(options.stop_timeout)
    if not options.quiet:
        records = ", ".join(f"{count:,} {name}" for name, count in receiver.intake.records.items())
        rest = "" if is_done else "; the rest lands at the next start"
        print(f"stopped: received {records or 'nothing'}{rest}", file=sys.stderr, flush=True)
    return 0
