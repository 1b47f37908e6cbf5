"""From sent to queryable: probes through `penstock up`, each a service of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from time import perf_counter
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["latencies"]

_EVERY = 0.25  # seconds between probes
_POLL = 0.02
_PATIENCE = 120.0


def latencies(folder: Path, probes: int) -> list[float]:
    """Return the seconds from sending a span until its service could be queried."""
    ports = _free_ports(3)
    environment = {
        **os.environ,
        "PENSTOCK_LANDING": str(folder / "landing"),
        "PENSTOCK_STORE": str(folder / "metrics.db"),
        "PENSTOCK_LOG_LEVEL": "error",
    }
    command = [sys.executable, "-m", "penstock.cli.main", "up"]
    for name, port in zip(("grpc-port", "http-port", "metrics-port"), ports, strict=True):
        command += [f"--{name}", str(port)]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "ready" in line:
                break
        else:
            raise RuntimeError("penstock up did not start")
        _send(ports[1], "warm-up")
        _wait_for(folder, "warm-up")
        return _probed(folder, ports[1], probes)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def _probed(folder: Path, port: int, probes: int) -> list[float]:
    sent: dict[str, float] = {}
    found: dict[str, float] = {}
    store = open_store(str(folder / "metrics.db"))
    begun = perf_counter()
    try:
        while len(found) < probes and perf_counter() - begun < probes * _EVERY + _PATIENCE:
            if len(sent) < probes and perf_counter() - begun >= len(sent) * _EVERY:
                name = f"probe-{len(sent)}"
                _send(port, name)
                sent[name] = perf_counter()
            now = perf_counter()
            for name, *_ in store.entities("Service"):
                if name in sent and name not in found:
                    found[name] = now - sent[name]
            time.sleep(_POLL)
    finally:
        store.close()
    return list(found.values())


def _wait_for(folder: Path, service: str) -> None:
    store = open_store(str(folder / "metrics.db"))
    end = perf_counter() + _PATIENCE
    try:
        while perf_counter() < end:
            if any(name == service for name, *_ in store.entities("Service")):
                return
            time.sleep(_POLL)
    finally:
        store.close()
    raise RuntimeError("the first probe never arrived")


def _send(port: int, service: str) -> None:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    attribute = resource.resource.attributes.add(key="service.name")
    attribute.value.string_value = service
    now = time.time_ns()
    resource.scope_spans.add().spans.add(
        trace_id=os.urandom(16),
        span_id=os.urandom(8),
        name="GET /",
        kind=2,
        start_time_unix_nano=now - 1_000_000,
        end_time_unix_nano=now,
    )
    headers = {"Content-Type": "application/x-protobuf"}
    url = f"http://127.0.0.1:{port}/v1/traces"
    with urllib.request.urlopen(urllib.request.Request(url, request.SerializeToString(), headers)):
        pass


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
