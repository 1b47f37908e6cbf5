"""Ending a PostgreSQL server in ways that servers do not end by themselves."""

import os
import signal
from collections.abc import Callable

import psutil

from tests.support.postgres import PostgresServer

__all__ = ["ENDINGS", "crash"]


def crash(server: PostgresServer) -> None:
    """Kill the first process of the server (kill -9); its sessions end when they notice."""
    first = psutil.Process(int((server._data / "postmaster.pid").read_text("ascii").split()[0]))
    sessions = first.children(recursive=True)
    os.kill(first.pid, signal.SIGKILL)
    # As long as one of them lives, a new server refuses to start in that folder.
    _, alive = psutil.wait_procs(sessions, timeout=60)
    assert not alive
    server.kill()


# By name: a restart by its administrator, a crash of all its processes, of the first alone.
ENDINGS: dict[str, Callable[[PostgresServer], None]] = {
    "stop": PostgresServer.stop,
    "kill": PostgresServer.kill,
    "crash": crash,
}
