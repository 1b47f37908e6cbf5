"""Peak memory of this process and of everything it has started."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["PeakMemory"]

_EVERY = 0.2  # seconds


class PeakMemory:
    """Looks at the resident memory of all processes of the tree, for the length of a block.

    ``peaks`` has the largest sum seen, in MB, by role: driver (this process), jvm, workers.
    """

    def __init__(self) -> None:
        self.peaks = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        this = psutil.Process()
        while not self._is_over.wait(_EVERY):
            now = {"driver": _resident(this), "jvm": 0.0, "workers": 0.0}
            for process in _descendants(this):
                role = _role(process)
                if role is not None:
                    now[role] += _resident(process)
            self.peaks = {role: max(now[role], peak) for role, peak in self.peaks.items()}


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return found


def _role(process: psutil.Process) -> str | None:
    try:
        name = process.name()
    except psutil.Error:
        return None
    if name == "java":
        return "jvm"
    return "workers" if name.startswith("python") else None


def _resident(process: psutil.Process) -> float:
    """Return megabytes that are the process's own: forked workers share most of theirs."""
    try:
        return float(process.memory_full_info().uss) / 1e6
    except psutil.Error:
        return 0.0
