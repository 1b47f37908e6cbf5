"""How fast OTLP is acknowledged durably, beside the same server without a disk.

Also how fast it is decoded, and how soon telemetry that was sent can be queried.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.bench._harness import Goal, Outcome, Progress, alternate, medians
from penstock.bench._receive_latency import latencies
from penstock.bench._receive_load import Requests, grpc_rate, http_rate
from penstock.bench._receive_server import running
from penstock.telemetry import otlp, plain
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.telemetry.requests import Decoded

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    spans: int = 20_000  # distinct ones
    seconds: float = 6.0  # of sending
    clients: tuple[int, ...] = (4, 64)
    rounds: int = 3
    probes: int = 120


QUICK = Size(spans=600, seconds=0.3, clients=(2,), rounds=1, probes=0)


def run(progress: Progress, *, quick: bool = False) -> Outcome:
    """Measure acknowledging, decoding and latency."""
    size = QUICK if quick else Size()
    progress.expect(1 + size.rounds * (2 + 4 * len(size.clients)) + bool(size.probes))
    progress.step("generating requests")
    requests = Requests(size.spans)
    outcome = Outcome({}, {}, [])
    for clients in size.clients:
        outcome.join(_acknowledging(requests, clients, size, progress))
    outcome.join(_decoding(requests, size, progress))
    if size.probes:
        progress.step("sent to queryable, with Spark")
        outcome.join(_latency(size.probes))
    return outcome


def _acknowledging(requests: Requests, clients: int, size: Size, progress: Progress) -> Outcome:
    contenders = {
        f"{protocol}_{mode}": _contender(protocol, mode, requests, clients, size.seconds)
        for protocol in ("grpc", "http")
        for mode in ("durable", "noop")
    }
    rates = medians(alternate(contenders, size.rounds, progress))
    figures = {f"{name}_spans_per_second_{clients}_clients": rate for name, rate in rates.items()}
    ratios = {
        f"{protocol}_durable_vs_noop_{clients}_clients": rates[f"{protocol}_durable"]
        / rates[f"{protocol}_noop"]
        for protocol in ("grpc", "http")
    }
    goals = [
        Goal.at_least(f"durable beside no disk, {protocol}, {clients} clients", ratio, 0.5)
        for protocol, ratio in zip(("grpc", "http"), ratios.values(), strict=True)
    ]
    return Outcome(dict(figures), ratios, goals)


def _contender(
    protocol: str, mode: str, requests: Requests, clients: int, seconds: float
) -> Callable[[], float]:
    def measure() -> float:
        folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        try:
            with running(folder, mode) as (grpc_port, http_port):
                if protocol == "grpc":
                    return asyncio.run(grpc_rate(grpc_port, clients, requests, seconds))
                return asyncio.run(http_rate(http_port, clients, requests, seconds))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return measure


def _decoding(requests: Requests, size: Size, progress: Progress) -> Outcome:
    payloads = [payload for payload, _ in requests.serialized]
    spans = sum(count for _, count in requests.serialized)
    contenders = {
        "decode_native": lambda: _decode_rate(otlp.decode, payloads, spans),
        "decode_plain": lambda: _decode_rate(plain.decode, payloads, spans),
    }
    rates = medians(alternate(contenders, size.rounds, progress))
    ratio = rates["decode_native"] / rates["decode_plain"]
    return Outcome(
        {f"{name}_spans_per_second": rate for name, rate in rates.items()},
        {"decode_native_vs_plain": ratio},
        [Goal.at_least("decoding beside a loop in Python", ratio, 3.0)],
    )


def _decode_rate(
    decode: Callable[[Signal, list[bytes]], Decoded], payloads: list[bytes], spans: int
) -> float:
    started = perf_counter()
    decode(Signal.SPANS, payloads)
    return spans / (perf_counter() - started)


def _latency(probes: int) -> Outcome:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        seconds = latencies(folder, probes)
    figures = {
        "sent_to_queryable_p50_seconds": statistics.median(seconds),
        "sent_to_queryable_p99_seconds": statistics.quantiles(seconds, n=100)[98],
        "probes": len(seconds),
    }
    return Outcome(figures, {}, [])
