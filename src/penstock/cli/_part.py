"""A command as part of `penstock up`: it says when it is ready, and ends with its parent."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

__all__ = ["LIFELINE", "READY", "announce_ready", "follow_parent", "is_part"]

READY = "PENSTOCK_PART_READY"
LIFELINE = "PENSTOCK_PART_LIFELINE"


def is_part() -> bool:
    """Whether this process is a part, and has not announced itself yet."""
    return READY in os.environ


def announce_ready() -> None:
    """Tell the parent, if there is one; later calls do nothing."""
    descriptor = os.environ.pop(READY, None)
    if descriptor is not None:
        with suppress(OSError):  # the parent is gone
            os.write(int(descriptor), b"1")
            os.close(int(descriptor))


def follow_parent() -> None:
    """End as by SIGTERM when the parent has ended, however it did."""
    descriptor = os.environ.pop(LIFELINE, None)
    if descriptor is not None:
        thread = threading.Thread(
            target=_wait_for_the_end, args=(int(descriptor),), name="penstock.parent", daemon=True
        )
        thread.start()


def _wait_for_the_end(descriptor: int) -> None:
    with suppress(OSError):
        while os.read(descriptor, 1):  # nothing is ever written: it returns at the end
            pass
    # To the main thread: it may be in a wait that only a signal to itself interrupts.
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)
