"""Where segments are converted: on the landing's own thread, or in a process beside it.

Decoding takes more time than receiving does, and much of it without letting other threads run. In a
process of its own it takes another core, and a payload that should ever bring the decoder down
does not bring the receiver down.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Protocol

from penstock.land.conversion import Converted, convert
from penstock.land.durable import DISK

if TYPE_CHECKING:
    from penstock.land.durable import Disk
    from penstock.land.folder import LandingFolder
    from penstock.land.log import Segment

__all__ = ["Converter", "ConverterProcess", "ConverterThread"]

_NICER = 5  # acknowledging goes before converting
_GRACE = 5.0


class Converter(Protocol):
    """Converts one segment at a time; called by one thread."""

    def start(self, lock: int) -> None:
        """Get ready. *lock* is the descriptor whose lock says that the folder is in use."""
        ...

    def convert(
        self, segment: Segment, folder: LandingFolder, known: frozenset[bytes]
    ) -> Converted:
        """Return what became of the segment, or raise why it could not be converted."""
        ...

    def close(self) -> None:
        """End; a conversion is not under way."""
        ...


class ConverterThread:
    """Converts on the thread that asks."""

    def __init__(self, disk: Disk = DISK) -> None:
        self._disk = disk

    def start(self, lock: int) -> None:
        """There is nothing to start."""

    def convert(
        self, segment: Segment, folder: LandingFolder, known: frozenset[bytes]
    ) -> Converted:
        """Convert here and now."""
        return convert(segment, folder, self._disk, known)

    def close(self) -> None:
        """There is nothing to end."""


class ConverterProcess:
    """Converts in a process of its own, which is started again should it ever end.

    That process shares the lock on the folder: were the receiver killed in the middle of a
    conversion, the next one waits for its end.
    """

    def __init__(self) -> None:
        self._lock = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: Connection | None = None
        self._results: Connection | None = None

    def start(self, lock: int) -> None:
        """Start the process."""
        self._lock = lock
        task_reader, tasks = Pipe(duplex=False)
        results, result_writer = Pipe(duplex=False)
        given = (task_reader.fileno(), result_writer.fileno())
        command = [sys.executable, "-m", __name__, *map(str, given)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this module
                command, pass_fds=(*given, lock), stdin=subprocess.DEVNULL
            )
        except OSError:
            tasks.close()
            results.close()
            raise
        finally:
            task_reader.close()
            result_writer.close()
        self._tasks, self._results = tasks, results

    def convert(
        self, segment: Segment, folder: LandingFolder, known: frozenset[bytes]
    ) -> Converted:
        """Have it converted, and wait."""
        if self._process is None:
            self.start(self._lock)
        assert self._tasks is not None
        assert self._results is not None
        try:
            self._tasks.send((segment, folder, known))
            result = self._results.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise RuntimeError("the converting process has ended; it is started again") from error
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, Converted)
        return result

    def close(self) -> None:
        """End the process: it does so when nobody can send it anything any more."""
        for connection in (self._tasks, self._results):
            if connection is not None:
                connection.close()
        self._tasks = self._results = None
        process, self._process = self._process, None
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            if process.poll() is None:
                process.kill()
                process.wait()


def _main(task_reader: int, result_writer: int) -> None:
    # Ctrl-C and a service manager's SIGTERM are for the receiver, which ends this.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="penstock: %(message)s", level=logging.WARNING)
    with suppress(OSError):
        os.nice(_NICER)
    tasks = Connection(task_reader, writable=False)
    results = Connection(result_writer, readable=False)
    with suppress(EOFError, BrokenPipeError):
        while True:
            segment, folder, known = tasks.recv()
            results.send(_attempted(segment, folder, known))


def _attempted(
    segment: Segment, folder: LandingFolder, known: frozenset[bytes]
) -> Converted | Exception:
    try:
        return convert(segment, folder, DISK, known)
    except OSError as error:
        return error
    except Exception as error:  # noqa: BLE001 - it may be one that cannot be sent as it is
        return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
