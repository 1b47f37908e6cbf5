"""Requests that have landed, by digest, so that one that is sent again is recognised.

A client repeats a request whose answer was lost. Digests are remembered for a while; of each
segment that is converted they stay behind in a small file, so that a restart forgets nothing.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.land.log import SUFFIX as SEGMENT_SUFFIX
from penstock.land.segments import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.land.durable import Disk

__all__ = ["SUFFIX", "RecentDigests", "keep_digests", "kept_digests", "prune_digests"]

SUFFIX = ".digests"


class RecentDigests:
    """Digests of the last *keep* seconds, *most* at most. For one thread."""

    def __init__(self, keep: float, most: int = 1_000_000) -> None:
        self._keep = keep
        self._most = most
        self._known: set[bytes] = set()
        self._order: deque[tuple[float, bytes]] = deque()  # the oldest first

    def __len__(self) -> int:
        return len(self._known)

    def add(self, digest: bytes, at: float) -> None:
        """Remember *digest*; *at* (seconds) must not go back from one call to the next."""
        if digest not in self._known:
            self._known.add(digest)
            self._order.append((at, digest))
        self._forget(at - self._keep)

    def has(self, digest: bytes, at: float) -> bool:
        """Whether the request has landed within the time before *at*."""
        self._forget(at - self._keep)
        return digest in self._known

    def _forget(self, before: float) -> None:
        order = self._order
        while order and (order[0][0] < before or len(order) > self._most):
            self._known.discard(order.popleft()[1])


def keep_digests(path: Path, digests: Iterable[bytes], disk: Disk) -> None:
    """Write the digests of a segment into a file of its own."""
    disk.place(path, [b"".join(digests)])


def kept_digests(path: Path) -> list[bytes]:
    """Read such a file; a damaged one has as many as are whole, and one that is gone has none."""
    data = b""
    with suppress(FileNotFoundError):
        data = path.read_bytes()
    whole = len(data) // DIGEST_BYTES * DIGEST_BYTES
    return [data[start : start + DIGEST_BYTES] for start in range(0, whole, DIGEST_BYTES)]


def prune_digests(folder: Path, before: float, disk: Disk) -> None:
    """Delete the files that were written before *before* (seconds since 1970).

    Not those of a segment that is still there: they say what of it is to land.
    """
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):
            is_old = path.stat().st_mtime < before
            if is_old and not path.with_suffix(SEGMENT_SUFFIX).exists():
                disk.remove(path)
