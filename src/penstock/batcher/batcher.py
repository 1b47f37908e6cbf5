"""The batcher: items in one by one, batches out, and an outcome for every item."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock._checks import seconds
from penstock._process import drain_at_exit, renew_after_fork
from penstock.batcher._closing import Closing
from penstock.batcher._core import Core, Hooks
from penstock.batcher._lifecycle import Event, State
from penstock.batcher._log import log
from penstock.batcher._submission import Submission
from penstock.batcher._worker import Worker
from penstock.batcher.completion import (
    Abandonment,
    BatchFault,
    CompleteResult,
    Completion,
    ProcessResult,
)
from penstock.batcher.settings import BatchSettings
from penstock.batcher.stats import BatcherStats, DrainReport
from penstock.clock import SYSTEM_CLOCK, Clock, wait_until
from penstock.errors import BatcherStateError, ConfigError
from penstock.scheduling import SharedSchedulers, ThreadScheduler

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from penstock.batcher._sinks import OnItemComplete
    from penstock.scheduling import Scheduler, SchedulerFactory, Task

__all__ = ["Batcher"]

T = TypeVar("T")

_default_schedulers = SharedSchedulers()


class Batcher(Submission[T], Generic[T]):
    """Collects items into batches by size and age and hands these to *process_batch*.

    ``process_batch(items, complete)`` is called by one thread at a time. It answers at once
    with a ProcessResult, and ends the batch with ``complete(result, ll_result)`` whenever it
    is done, from any thread. Anything but OK, and raising, faults the batcher:
    ``on_batch_faulted`` is told, and nothing is accepted or sent until :meth:`reset`.

    As a context manager, sync and async, it opens on entering; on leaving it sends what it
    has, unless an exception is on its way, and closes. It is also a handler for a
    BatchQueue, see :meth:`consume`.
    """

    # One lock, the core's; it is not held in user code. The numbered invariants stand in the
    # modules that keep them: L _lifecycle, G _staging, N _intake, C _core, W _worker,
    # F _futures, X _closing, D decorator.

    def __init__(  # noqa: PLR0913 - what tests put in place of the defaults
        self,
        process_batch: Callable[[list[T], Completion], ProcessResult],
        settings: BatchSettings,
        *,
        on_batch_faulted: Callable[[BatchFault], object],
        on_item_complete: OnItemComplete | None = None,
        name: str = "batcher",
        clock: Clock = SYSTEM_CLOCK,
        schedulers: SharedSchedulers | None = None,
        factory: SchedulerFactory = ThreadScheduler,
    ) -> None:
        _check_callable("process_batch", process_batch, "items, complete")
        _check_callable("on_batch_faulted", on_batch_faulted, "fault")
        if on_item_complete is not None:
            _check_callable("on_item_complete", on_item_complete, "item, result, ll_result")
        if not isinstance(settings, BatchSettings):
            msg = f"settings must be BatchSettings, not {settings!r}"
            raise ConfigError(msg)
        if not isinstance(name, str) or not name:
            msg = f"a batcher's name must be a non-empty str, not {name!r}"
            raise ConfigError(msg)
        hooks = Hooks(process_batch, on_batch_faulted, self._release)
        core = Core(name, settings, clock.now, hooks)
        super().__init__(core, clock, on_item_complete)
        self._closing = Closing(core, clock)
        self._schedulers = schedulers or _default_schedulers
        self._factory = factory
        renew_after_fork(self)
        drain_at_exit(self)

    # -- opening and closing ----------------------------------------------------------

    def open(self) -> None:
        """Accept items from now on.

        Raises:
            BatcherStateError: It is open already, or faulted (see :meth:`reset`).
        """
        with self._core.lock:
            granted = self._core.life.move(Event.OPEN)
        if not granted:
            raise self._state_error("open() needs a batcher that is closed and not faulted")
        self._start()

    def _state_error(self, need: str) -> BatcherStateError:
        return BatcherStateError(f"{need}; {self.name!r} is {self._core.life.describe()}")

    def _start(self) -> None:
        core = self._core
        worker = Worker(core, self._lodge)
        try:
            worker.attach()
        except BaseException:
            with core.lock:
                core.life.move(Event.OPEN_FAILED)
            raise
        with core.lock:
            core.worker = worker
            core.wake_at = 0
            core.life.move(Event.OPEN_DONE)

    def close(self, timeout: float | None = None, *, drain: bool = False) -> DrainReport:
        """Refuse new items, wait for the batches in the processor's hands, abandon the rest.

        Items that were not sent complete as ABANDONED with no ``ll_result``. Batches that the
        processor still has when the time is over complete as ABANDONED with
        ``Abandonment.INDETERMINATE``; what it says about them later is ignored.

        Another call waits for the first. Inside one of the batcher's own callbacks the call
        does not wait: it abandons what was not sent, and the rest ends by itself; so it does
        if a KeyboardInterrupt ends the waiting.

        Args:
            timeout: Seconds (default: the settings' ``close_timeout``).
            drain: First send everything that waits, within the same time. Not inside a
                callback, nor on the only thread of a scheduler that the batcher shares.

        Raises:
            ConfigError: *timeout* is no number of seconds.
        """
        allowed = self.settings.close_timeout if timeout is None else seconds("timeout", timeout)
        return self._closing.close(allowed, drain=drain)

    def reset(self) -> DrainReport:
        """Recover from a fault: abandon all that was not sent, then be open again.

        Batches in the processor's hands keep their own outcome; to wait for them, ``close()``
        first. May be called inside ``on_batch_faulted``.

        Raises:
            BatcherStateError: It is not faulted, or is being closed.
        """
        core = self._core
        with core.lock:
            granted = core.life.move(Event.RESET)
            was_closed = core.life.state is State.OPENING
        if not granted:
            raise self._state_error("reset() needs a faulted batcher that is not being closed")
        if not was_closed:
            return self._closing.reset()
        self._start()
        return self._closing.nothing()

    def flush(self, timeout: float | None = None) -> bool:
        """Send what has been accepted so far without delay, and wait until it has completed.

        Inside one of the batcher's own callbacks, and on the only thread of a scheduler that
        the batcher shares, the call only has it sent.

        Returns:
            Whether all of it was sent and has completed; False if the time was over first, if
            the batcher faulted or closed meanwhile, and inside a callback.
        """
        if timeout is not None:
            timeout = seconds("timeout", timeout)
        core = self._core
        with core.lock:
            if not core.life.is_sending:
                return False
            target = core.taken + len(core.staging.entries)
            core.flush_to = target
            before = (core.counts.faults, core.counts.results[Abandonment.NOT_SENT])
            worker = core.want()
            is_stuck = core.must_not_wait()
        core.rouse(worker)
        if is_stuck:
            return False

        def is_over() -> bool:
            return core.is_flushed(target) or not core.life.is_sending

        self._closing.help(is_over)
        with core.lock:
            wait_until(self._clock, core.life.changed, is_over, timeout)
            after = (core.counts.faults, core.counts.results[Abandonment.NOT_SENT])
            return before == after and core.is_flushed(target)

    # -- looking ------------------------------------------------------------------------

    def stats(self) -> BatcherStats:
        """Return what the batcher holds, has done and has given up."""
        core = self._core
        with core.lock:
            counts, queued = core.counts, len(core.staging.entries)
            return BatcherStats(
                name=self.name,
                state=core.life.state.value,
                is_faulted=core.life.is_faulted,
                queued=queued,
                queued_size=core.staging.size,
                pending_batches=len(core.pending),
                accepted=core.taken + queued,
                ok=counts.results[CompleteResult.OK],
                failed=counts.results[CompleteResult.ERROR],
                not_sent=counts.results[Abandonment.NOT_SENT],
                indeterminate=counts.results[Abandonment.INDETERMINATE],
                cancelled=counts.cancelled,
                batches=counts.batches,
                sent_because={reason.value: n for reason, n in counts.reasons.items()},
                refused={why.value: n for why, n in counts.refused.items()},
                stray_completions=counts.strays,
                callback_errors=counts.callback_errors,
            )

    @property
    def is_open(self) -> bool:
        """Whether the batcher accepts items."""
        return self._core.life.is_accepting

    @property
    def is_faulted(self) -> bool:
        """Whether the batcher stopped because a batch failed, and was not reset since."""
        return self._core.life.is_faulted

    def __repr__(self) -> str:
        core = self._core
        return (
            f"<Batcher {self.name!r} {core.life.describe()}, {len(core.staging.entries)} queued, "
            f"{len(core.pending)} pending>"
        )

    # -- context managers ---------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(drain=kind is None)

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose(drain=kind is None)

    async def aclose(self, timeout: float | None = None, *, drain: bool = False) -> DrainReport:  # noqa: ASYNC109 - it is close()'s, which gives up in an orderly way
        """Close like :meth:`close`, without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - costs every importer 50 ms and few need it

        return await asyncio.to_thread(self.close, timeout, drain=drain)

    async def aflush(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it is flush()'s
        """Flush like :meth:`flush`, without blocking the event loop."""
        import asyncio  # noqa: PLC0415 - costs every importer 50 ms and few need it

        return await asyncio.to_thread(self.flush, timeout)

    # -- threads and processes ------------------------------------------------------------

    def _lodge(self, worker: Task) -> Scheduler:
        """Attach *worker* to the shared scheduler, or to one of its own."""
        shared = self.settings.shared_scheduler
        scheduler = (
            self._factory(self.name, 1, self._clock)
            if shared is None
            else self._schedulers.acquire(*shared)
        )
        try:
            scheduler.attach(worker, at_once=False)
        except BaseException:
            self._let_go(scheduler, 0.0)
            raise
        return scheduler

    def _let_go(self, scheduler: Scheduler, timeout: float) -> None:
        if self.settings.shared_scheduler is None:
            scheduler.close(timeout)
        else:
            self._schedulers.release(self.settings.shared_scheduler[0])

    def _release(self, worker: Worker, timeout: float) -> None:
        """Let go of the threads of an opening that has ended."""
        scheduler = worker.detach()
        if scheduler is not None:
            self._let_go(scheduler, timeout)

    def renew_after_fork(self) -> None:
        """Start empty in a child process; what was accepted before is the parent's."""
        core = self._core
        core.life.settle_after_fork()
        core.forget()
        if core.life.state is State.OPENED:
            core.worker = Worker(core, self._lodge)
            core.wake_at = 0

    def drain_at_exit(self, timeout: float) -> float:
        """Close because the interpreter ends; return the seconds it took."""
        if self._core.life.state is State.CREATED:
            return 0.0
        # On the real clock: one that a test has stopped would never end the wait.
        report = Closing(self._core, SYSTEM_CLOCK).close(timeout, drain=True)
        if not report.complete:
            log(
                logging.WARNING,
                "batcher.exit_incomplete: the interpreter ended with %d items of batcher %r not "
                "sent and %d in the processor's hands",
                len(report.not_sent),
                self.name,
                len(report.indeterminate),
                extra={"batcher": self.name},
            )
        return report.elapsed


def _check_callable(field: str, value: object, parameters: str) -> None:
    if not callable(value):
        msg = f"{field} must be callable({parameters}), not {value!r}"
        raise ConfigError(msg)
