"""The way of a request to the disk: checked, recognised, queued, grouped, synced, answered."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.batcher import Batcher, BatchSettings, CompleteResult, ProcessResult
from penstock.batchqueue import (
    BatchQueueConfig,
    BatchQueueManager,
    BufferStrategy,
)
from penstock.clock import SYSTEM_CLOCK, wall_time
from penstock.land.digests import RecentDigests
from penstock.land.segments import Record, digest_of
from penstock.receive.outcome import Outcome, Verdict
from penstock.receive.requests import KINDS, Request
from penstock.scheduling import ThreadPolicy
from penstock.telemetry.requests import MalformedError, validate
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import ParamSpec, Protocol, TypeVar

    from penstock.batcher import BatchFault, Completion
    from penstock.receive.settings import ReceiveSettings
    from penstock.telemetry.requests import Counts

    P = ParamSpec("P")
    T = TypeVar("T")

    class Lands(Protocol):
        """Where groups of requests land; `penstock.land.landing.Landing` is one."""

        def commit(self, signal: Signal, records: Sequence[Record]) -> None:
            """Put *records* on the disk, or raise OSError."""
            ...

        def has_room(self) -> bool:
            """Whether more may come."""
            ...


__all__ = ["Intake", "aside"]

log = logging.getLogger("penstock.receive")

_REASONS = {
    "trace_id": "trace_id is not 16 bytes",
    "span_id": "span_id is not 8 bytes",
    "parent_span_id": "parent_span_id is neither empty nor 8 bytes",
    "time": "a time is past the year 2262",
    "count": "a count is beyond 2^63",
    "bounds": "bucket bounds are not finite and ascending",
}
_EXHAUSTED = Verdict.EXHAUSTED
_STOPPING = Outcome(Verdict.UNAVAILABLE, "the receiver is stopping; send this again")
_SMALL = 64 << 10  # bytes that are looked through in about a millisecond


async def aside(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what takes long if there is much to look through, so that it holds up nobody else."""
    if size <= _SMALL:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


class Intake:
    """Accepts requests on an event loop.

    A request is one item of a BatchQueue, whose handlers are a Batcher for each signal; a batch
    is a group commit. Nothing here waits but `accept` itself.
    """

    # All fields belong to the event loop's thread, but for what the queue and the batchers hold.
    #   E1  a request is answered ACCEPTED only after its group was committed
    #       (test_the_answer_comes_after_the_commit).
    #   E2  of equal requests under way one is committed; all get its outcome
    #       (test_equal_requests_at_once_are_committed_once).
    #   E3  what is under way is bounded in bytes and requests
    #       (test_beyond_the_bound_clients_are_told_to_come_later).

    def __init__(self, landing: Lands, settings: ReceiveSettings, remember: float = 600.0) -> None:
        self._landing = landing
        self._settings = settings
        self._recent = RecentDigests(remember)
        self._under_way: dict[bytes, asyncio.Future[None]] = {}
        self._bytes = 0
        self._is_draining = False
        self.outcomes: Counter[tuple[Signal, Verdict]] = Counter()
        self.records: Counter[Signal] = Counter()
        self.rejected: Counter[tuple[Signal, str]] = Counter()
        self.repeated: Counter[Signal] = Counter()
        self.queues = BatchQueueManager()
        self._queue = self.queues.create(
            "receive",
            BatchQueueConfig[Request](
                threads=ThreadPolicy.fixed(1),
                buffer_size=settings.in_flight_requests,
                strategy=BufferStrategy.IF_POSSIBLE,
            ),
        )
        self.batchers: Mapping[Signal, Batcher[Request]] = {
            signal: self._batcher(signal) for signal in Signal
        }

    def _batcher(self, signal: Signal) -> Batcher[Request]:
        batcher: Batcher[Request] = Batcher(
            partial(self._commit, signal),
            BatchSettings(
                max_batch_size=self._settings.group_bytes, sizer=lambda r: len(r.record.payload)
            ),
            on_batch_faulted=_told,
            on_item_complete=_settle,
            name=f"receive.{signal}",
        )
        batcher.open()
        self._queue.add_handler(KINDS[signal], batcher)
        return batcher

    @property
    def under_way_bytes(self) -> int:
        """What waits for the disk."""
        return self._bytes

    @property
    def is_draining(self) -> bool:
        """Whether the end was asked for."""
        return self._is_draining

    def remember(self, digests: Iterable[tuple[float, bytes]]) -> None:
        """Take note of requests that landed before, with their times, the oldest first."""
        for at, digest in digests:
            self._recent.add(digest, at)

    @contextmanager
    def reserved(self) -> Iterator[Callable[[int], Outcome | None]]:
        """Count bytes that are on their way in, for the length of the block.

        The function that is yielded counts some more of them, or returns why there is no room.
        """
        held = 0

        def reserve(size: int) -> Outcome | None:
            nonlocal held
            if self._bytes and self._bytes + size > self._settings.in_flight_bytes:  # E3
                message = f"{self._bytes:,} bytes wait for the disk; send this later"
                return Outcome(_EXHAUSTED, message)
            held += size
            self._bytes += size
            return None

        try:
            yield reserve
        finally:
            self._bytes -= held

    async def accept(self, signal: Signal, payload: bytes) -> Outcome:
        """Return how the request ends, once that is known."""
        outcome = await self._accept(signal, payload)
        self.outcomes[signal, outcome.verdict] += 1
        return outcome

    def refuse(self, signal: Signal, outcome: Outcome) -> Outcome:
        """Count a request that ends before it gets here."""
        self.outcomes[signal, outcome.verdict] += 1
        return outcome

    async def _accept(self, signal: Signal, payload: bytes) -> Outcome:
        if self._is_draining:
            return _STOPPING
        try:
            with self.reserved() as reserve:
                full = reserve(len(payload))
                if full is not None:
                    return full
                counts = await aside(len(payload), validate, signal, payload)
        except MalformedError as error:
            return Outcome(Verdict.MALFORMED, str(error))
        rejected = sum(counts.rejected.values())
        accepted = Outcome(Verdict.ACCEPTED, _explained(counts.rejected), rejected)
        if counts.records > rejected:
            digest = digest_of(signal, payload)
            if self._recent.has(digest, wall_time()):
                self.repeated[signal] += 1
                return accepted
            refusal = await self._land(signal, Record(digest, payload), counts)
            if refusal is not None:
                return refusal
        else:
            self._count_rejected(signal, counts)
        return accepted

    async def _land(self, signal: Signal, record: Record, counts: Counts) -> Outcome | None:
        """Return None when the request is on the disk, otherwise why it is not."""
        done = self._under_way.get(record.digest)
        if done is None:
            if self._is_draining:
                return _STOPPING
            if not self._landing.has_room():
                message = "the landing folder has reached its disk cap; send this later"
                return Outcome(_EXHAUSTED, message)
            done = self._begin(signal, record, counts)
            if done is None:
                return Outcome(_EXHAUSTED, "too many requests wait for the disk; send this later")
        else:
            self.repeated[signal] += 1
        try:
            async with asyncio.timeout(self._settings.answer_timeout):
                await asyncio.shield(done)
        except TimeoutError:
            patience = f"{self._settings.answer_timeout:g} s"
            message = f"not on the disk within {patience}; send this again, it counts once"
            return Outcome(Verdict.UNAVAILABLE, message)
        except NotCommittedError as error:
            return Outcome(Verdict.UNAVAILABLE, str(error))
        return None

    def _begin(self, signal: Signal, record: Record, counts: Counts) -> asyncio.Future[None] | None:
        """Send a request on its way; None if the queue is full."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._queue.produce(KINDS[signal](record, done)):
            return None
        self._under_way[record.digest] = done
        self._bytes += len(record.payload)
        done.add_done_callback(partial(self._ended, signal, record, counts))
        return done

    def _ended(
        self, signal: Signal, record: Record, counts: Counts, done: asyncio.Future[None]
    ) -> None:
        del self._under_way[record.digest]
        self._bytes -= len(record.payload)
        if not done.cancelled() and done.exception() is None:
            self._recent.add(record.digest, wall_time())
            # Here they count once, however many clients wait for the answer, or none any more.
            self.records[signal] += counts.records - sum(counts.rejected.values())
            self._count_rejected(signal, counts)

    def _count_rejected(self, signal: Signal, counts: Counts) -> None:
        for reason, count in counts.rejected.items():
            self.rejected[signal, reason] += count

    # -- on the batchers' threads -----------------------------------------------------------

    def _commit(
        self, signal: Signal, requests: list[Request], complete: Completion
    ) -> ProcessResult:
        try:
            self._landing.commit(signal, [request.record for request in requests])
        except OSError as error:
            complete(CompleteResult.ERROR, f"cannot be stored now: {error.strerror or error}")
        except Exception as error:
            log.exception("receive.commit_failed: %s", signal)
            complete(CompleteResult.ERROR, f"cannot be stored: {error!r}")
        else:
            complete(CompleteResult.OK)
        return ProcessResult.OK

    # -- the end ------------------------------------------------------------------------------

    async def drain(self, allowed: float) -> int:
        """Refuse what comes, let go what is under way; return how many are left in the end.

        It takes *allowed* seconds at most.
        """
        self._is_draining = True
        deadline = SYSTEM_CLOCK.now() + allowed
        waiting = list(self._under_way.values())
        if waiting:
            await asyncio.wait(waiting, timeout=allowed)
        left = len(self._under_way)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._close, lambda: deadline - SYSTEM_CLOCK.now())
        return left

    def _close(self, remaining: Callable[[], float]) -> None:
        self.queues.shutdown_all(timeout=max(0.0, remaining()))
        for batcher in self.batchers.values():
            batcher.close(max(0.0, remaining()), drain=True)


class NotCommittedError(Exception):
    """A request is not known to be on the disk; the message says why."""


def _settle(request: Request, result: CompleteResult, ll_result: object) -> None:
    """Tell the event loop how a request ended; called on a batcher's thread."""
    why = None
    if result is not CompleteResult.OK:
        why = f"{ll_result or 'the receiver is stopping'}; send this again, it counts once"
    with suppress(RuntimeError):  # the loop is closed: nobody waits for an answer any more
        request.done.get_loop().call_soon_threadsafe(_resolve, request.done, why)


def _resolve(done: asyncio.Future[Any], why: str | None) -> None:
    if done.done():
        return
    if why is None:
        done.set_result(None)
    else:
        done.set_exception(NotCommittedError(why))
        done.exception()  # whoever waited may be gone


def _told(fault: BatchFault) -> None:
    log.error("receive.batcher_faulted: %s: %s", fault.batcher, fault.error)


def _explained(rejected: Mapping[str, int]) -> str:
    return "; ".join(f"{count} left out: {_REASONS[reason]}" for reason, count in rejected.items())
