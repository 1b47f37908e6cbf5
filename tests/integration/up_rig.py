"""`penstock up` and `penstock demo` as processes, and what is left of them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.testing import eventually

PATIENCE = 180.0  # seconds; only a failing test waits this long
COMMAND = (sys.executable, "-m", "penstock.cli.main")
# A short life does not pay for the JVM's best compiler.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
_PORTS = re.compile(r"gRPC \S+:(\d+), HTTP \S+:(\d+) ")


def surroundings(**more: str) -> dict[str, str]:
    """Return an environment that says nothing to penstock but *more*."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**kept, "JDK_JAVA_OPTIONS": QUICK_JAVA, **more}


@dataclass
class Started:
    """A command that runs in *folder*; what it says goes to a file there."""

    process: subprocess.Popen[bytes]
    errors: Path

    @property
    def said(self) -> str:
        """All that it said so far."""
        return self.errors.read_text("utf-8")

    def await_line(self, text: str) -> None:
        """Wait until it says *text*; fail if it ends before."""

        def has_come() -> bool:
            has_ended = self.process.poll() is not None
            assert text in self.said or not has_ended, self.said
            return text in self.said

        eventually(has_come, PATIENCE)

    def ports(self) -> tuple[int, int]:
        """Return where it receives: gRPC, HTTP."""
        found = _PORTS.search(self.said)
        assert found is not None, self.said
        return int(found[1]), int(found[2])

    def family(self) -> list[psutil.Process]:
        """Return all processes below it."""
        with suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.process.pid).children(recursive=True))
        return []

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; return its exit code. Nothing of it is left then."""
        family = self.family()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        assert_gone(family)
        return code


def assert_gone(family: list[psutil.Process]) -> None:
    """Fail unless all of *family* have ended, or do in a moment."""
    _, left = psutil.wait_procs(family, 10)
    assert left == []


@contextmanager
def started(folder: Path, *arguments: str, **environment: str) -> Iterator[Started]:
    """Start a command; whatever is left of it at the end is killed."""
    errors = folder / "errors"
    with errors.open("wb") as file, (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=surroundings(**environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=file,
        )
    command = Started(process, errors)
    try:
        yield command
    finally:
        family = command.family()
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
