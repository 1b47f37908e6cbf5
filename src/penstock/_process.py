"""What must happen to live objects when the process forks or ends.

Objects register themselves here and are held weakly. They are called in the order in
which they were created: a scheduler is made new before the queue that runs on it, and
queues drain in the order in which data flows through them.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import weakref
from typing import Protocol

__all__ = ["EXIT_DEADLINE", "drain_at_exit", "renew_after_fork"]

EXIT_DEADLINE = 5.0
"""Seconds that all open queues together may spend draining when the interpreter ends."""


class Renewable(Protocol):
    """Something with threads or locks that do not survive a fork."""

    def renew_after_fork(self) -> None:
        """Become usable in the child process, empty and without threads."""
        ...


class Drainable(Protocol):
    """Something that holds work which should be finished before the interpreter ends."""

    def drain_at_exit(self, timeout: float) -> float:
        """Finish within *timeout* seconds; return the seconds it took."""
        ...


logger = logging.getLogger(__name__)

_order = itertools.count()
_renewables: weakref.WeakValueDictionary[int, Renewable] = weakref.WeakValueDictionary()
_drainables: weakref.WeakValueDictionary[int, Drainable] = weakref.WeakValueDictionary()


def renew_after_fork(subject: Renewable) -> None:
    """Call ``subject.renew_after_fork()`` in every child of this process."""
    _renewables[next(_order)] = subject


def drain_at_exit(subject: Drainable) -> None:
    """Call ``subject.drain_at_exit()`` when the interpreter ends, if it still lives."""
    _drainables[next(_order)] = subject


def _renew_all() -> None:
    for _, subject in sorted(_renewables.items()):
        subject.renew_after_fork()


def _drain_all() -> None:
    left = EXIT_DEADLINE
    for _, subject in sorted(_drainables.items()):
        try:
            left = max(0.0, left - subject.drain_at_exit(left))
        except Exception:
            logger.exception("process.exit_drain_failed")


if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows only
    os.register_at_fork(after_in_child=_renew_all)
atexit.register(_drain_all)
