"""The receiver in a process of its own, as `penstock bench receive` measures it.

python -m penstock.bench._receive_server FOLDER MODE: prints its ports, ends with its input. MODE is
"durable", or "noop": the same server, whose requests reach no disk.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.land.converters import ConverterProcess
from penstock.land.landing import Landing, LandingSettings
from penstock.receive.receiver import Receiver
from penstock.receive.settings import ReceiveSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.land.segments import Record
    from penstock.telemetry.schema import Signal

__all__ = ["running"]


class _Nowhere(Landing):
    """Takes everything and keeps nothing."""

    def commit(self, signal: Signal, records: Sequence[Record]) -> None:
        """Do nothing."""


@contextmanager
def running(folder: Path, mode: str) -> Iterator[tuple[int, int]]:
    """Run the server; yield its gRPC and HTTP ports."""
    command = [sys.executable, "-m", "penstock.bench._receive_server", str(folder), mode]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        grpc_port, http_port = map(int, process.stdout.readline().split())
        yield grpc_port, http_port
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


async def _serve(folder: Path, mode: str) -> None:
    kind = Landing if mode == "durable" else _Nowhere
    landing = kind(LandingSettings(folder=folder), converter=ConverterProcess())
    receiver = Receiver(landing, ReceiveSettings(grpc_port=0, http_port=0))
    await receiver.start()
    print(receiver.grpc_port, receiver.http_port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await receiver.stop(30.0)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
