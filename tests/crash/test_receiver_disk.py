"""The disk of a running receiver is full, really: clients are told to come again, and may.

A limit on the size of files stands in for a small disk where nobody may make one.
"""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from tests.support.receiver import ReceiverProcess, check_folder, get, post, span_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 100_000
LARGE = 300_000
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MOST_GROWTH = 64 << 20  # bytes of memory, while requests are refused


def limit_files() -> None:
    """Let this process write no file that is longer; the limit can be lifted."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))


def lift_the_limit(receiver: ReceiverProcess) -> None:
    """Let the receiver, and what it has started, write what it likes."""
    assert receiver.process is not None
    process = psutil.Process(receiver.process.pid)
    for each in (process, *process.children()):
        each.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def memory_of(receiver: ReceiverProcess) -> int:
    """Return the bytes that the receiver holds."""
    assert receiver.process is not None
    held: int = psutil.Process(receiver.process.pid).memory_info().rss
    return held


def refusal_over_grpc(receiver: ReceiverProcess, payload: bytes) -> tuple[grpc.StatusCode, float]:
    """Return how the request is refused, and when it should come again."""
    with grpc.insecure_channel(f"127.0.0.1:{receiver.grpc_port}") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(EXPORT)(payload, timeout=30.0)
        details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
        retry = RetryInfo()
        assert Status.FromString(details).details[0].Unpack(retry)
        return caught.value.code(), retry.retry_delay.ToTimedelta().total_seconds()


def test_what_cannot_be_written_is_refused_until_it_can(tmp_path: Path) -> None:
    """Over both protocols, with a time to come again; memory is bounded, nothing is lost."""
    receiver = ReceiverProcess(tmp_path / "landing", tmp_path / "stderr")
    try:
        receiver.start(limit_files)
        assert post(receiver.http_port, span_request([1])).status == 200
        assert get(receiver.http_port, "/readyz").status == 200
        before = memory_of(receiver)
        large = span_request([2], padding=LARGE)
        for _ in range(20):
            answer = post(receiver.http_port, large)
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert b"File too large" in answer.body
        code, wait = refusal_over_grpc(receiver, large)
        assert (code, wait) == (grpc.StatusCode.UNAVAILABLE, 1.0)
        assert memory_of(receiver) - before < MOST_GROWTH
        assert get(receiver.http_port, "/readyz").status == 503
        assert get(receiver.http_port, "/healthz").status == 200
        lift_the_limit(receiver)
        receiver.wait_for(lambda: get(receiver.http_port, "/readyz").status == 200)
        assert post(receiver.http_port, large).status == 200
        assert receiver.stop() == 0, receiver.said()
    finally:
        receiver.kill()
    assert set(check_folder(tmp_path / "landing", [1, 2])) == {1, 2}
    assert "Traceback" not in receiver.said()


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Have a file system of *size* bytes at *folder*, or skip the test."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "penstock-test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607 - as mount is found


def test_a_full_disk_is_back_pressure_and_not_loss(tmp_path: Path) -> None:
    """Requests are refused while there is no room, and accepted when there is, in one process."""
    folder = tmp_path / "disk" / "landing"
    with small_disk(tmp_path / "disk", 4 << 20):
        receiver = ReceiverProcess(folder, tmp_path / "stderr", ("--segment-age", "0.2"))
        try:
            receiver.start()
            acknowledged = fill_and_free(receiver, tmp_path / "disk" / "ballast")
            assert receiver.stop() == 0, receiver.said()
            check_folder(folder, acknowledged)
        finally:
            receiver.kill()
    assert "Traceback" not in receiver.said()


def fill_and_free(receiver: ReceiverProcess, ballast: Path) -> set[int]:
    """Send while the disk fills up, is full, and has room again; return what was acknowledged."""
    acknowledged: set[int] = set()

    def send(number: int) -> int:
        answer = post(receiver.http_port, span_request([number], padding=20_000))
        if answer.status == 200:
            acknowledged.add(number)
        else:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        return answer.status

    assert [send(number) for number in range(1, 11)] == [200] * 10
    fill(ballast)
    refused = [number for number in range(11, 61) if send(number) != 200]
    assert len(refused) > 20
    before = memory_of(receiver)
    assert {send(number) for number in refused for _ in range(3)} == {503}
    assert memory_of(receiver) - before < MOST_GROWTH
    ballast.unlink()
    receiver.wait_for(lambda: get(receiver.http_port, "/readyz").status == 200)
    assert {send(number) for number in refused} == {200}
    return acknowledged


def fill(ballast: Path) -> None:
    """Take all the room but for a little."""
    with ballast.open("wb") as file:
        room = os.statvfs(ballast).f_bavail * os.statvfs(ballast).f_bsize
        file.write(bytes(max(0, room - 100_000)))
