"""What the programs of the process tests share: how they fork, and how they say what they found."""

from __future__ import annotations

import json
import os
import posix
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 30.0
"""Seconds after which a process that hangs is ended by an alarm."""


def say(**found: object) -> None:
    """Write one line, whole, also when several processes write."""
    os.write(1, json.dumps(found).encode() + b"\n")


def fork(child: Callable[[], object]) -> int:
    """Run *child* in a forked process that ends without cleaning up; return its exit code."""
    process = os.fork()
    if process == 0:
        signal.alarm(int(PATIENCE))
        code = 1
        try:
            child()
            code = 0
        except BaseException as error:  # noqa: BLE001 - it must not go on as a second parent
            say(who="child", failed=repr(error))
        finally:
            # Not os._exit: coverage patches that to save first, also what its parent measured, and
            # a thread that does not exist here may have held the lock of that at the fork. What a
            # child runs is therefore not measured, and has unit tests of its own.
            posix._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)
