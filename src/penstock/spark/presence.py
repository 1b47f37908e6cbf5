"""Whether a job on this machine still lives, whatever has become of what it left behind.

While a job lives it holds a lock on a small file among the machine's temporary ones. The system
lets go of the lock when the process ends, however it ends, which a process id would not tell:
ids are used again, and in a container every job may have the same one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["Presence"]


class Presence:
    """The sign of life of one lease holder."""

    def __init__(self, holder: str) -> None:
        digest = hashlib.sha256(holder.encode()).hexdigest()[:24]
        self._path = Path(tempfile.gettempdir()) / f"penstock-job-{digest}.lock"
        self._descriptor: int | None = None

    def show(self) -> None:
        """Be seen until :meth:`end`; where there is no room for the file, not at all."""
        with suppress(OSError):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def end(self) -> None:
        """Be gone."""
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def is_alive(self) -> bool | None:
        """Return whether the holder lives; None if that cannot be told from here.

        The file of a holder that is dead is removed.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # it runs elsewhere, or as another user
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        else:
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
