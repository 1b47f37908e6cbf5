"""Futures for items: as cheap as they can be while nobody looks at them.

A ``concurrent.futures.Future`` makes a lock, a condition and a deque when it is made, and
takes the lock for every step. That is most of what a batched item costs, and most futures
are asked for their result only after they have it. So these make their condition when
somebody first needs it, and a batch resolves the others together. Who only waits for a result
needs no condition either: it stands at a gate, a lock that is released when there is one.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from penstock._process import renew_after_fork
from penstock.batcher._log import log
from penstock.batcher._sinks import error_of
from penstock.batcher.completion import CompleteResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.batcher._staging import Entry

__all__ = ["FUTURES", "ItemFuture"]

_WAITING, _TAKEN, _WITHDRAWN = range(3)

# The states of the base class, as its own code spells them.
_PENDING, _FINISHED = "PENDING", "FINISHED"
_DONE = ("CANCELLED", "CANCELLED_AND_NOTIFIED", _FINISHED)
_MADE_WHEN_NEEDED = ("_condition", "_waiters", "_done_callbacks")


class _Shared:
    """The lock of all futures: held once per step of a batch, and when a future is touched."""

    def __init__(self) -> None:
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        # Reentrant: the garbage collector may run a destructor that cancels a future anywhere.
        self.lock = threading.RLock()


_shared = _Shared()


class ItemFuture(Future[Any]):
    """The future of one item: can be cancelled until the item is sent, and not after.

    So a True from :meth:`cancel` means that the processor never gets the item.
    """

    #   F1  `stage` leaves WAITING once, under the shared lock: a future is taken or withdrawn,
    #       never both (test_a_cancel_that_meets_the_claim_is_refused).
    #   F2  A future becomes watched under the shared lock; one that is not is resolved under
    #       it, without notice to anybody. So whoever watches finds it resolved or is notified
    #       (test_a_waiter_that_meets_the_result_is_not_left_waiting). A gate is made under the
    #       shared lock, by who found it unresolved there, and opened by who looks for one there
    #       after resolving it.
    #   F3  `_state` is set last, after `_result`: who reads FINISHED without a lock finds the
    #       result. Both are attributes of one object, each stored and read whole; on builds
    #       without a global lock an object's dictionary orders them.
    #
    # Relies on the names of the base class's fields, which concurrent.futures.wait() uses too,
    # and which are the same from Python 3.2 on (test_the_fields_of_the_base_class_are_known).

    stage = _WAITING
    is_watched = False  # somebody needs what the base class has: done-callbacks, wait()…
    gate: threading.Lock | None = None  # closed until the end; who passes lets the next one pass
    _state = _PENDING
    _result = None
    _exception = None

    if not TYPE_CHECKING:  # pragma: no branch - a type checker knows the base's
        __init__ = object.__init__  # the base's makes what __getattr__ makes later

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the field is
        """Make what the base class made at first, now that somebody asks for it."""
        if name not in _MADE_WHEN_NEEDED:
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        with _shared.lock:
            if not self.is_watched:
                self._waiters: list[Any] = []
                self._done_callbacks: list[Any] = []
                self._condition = threading.Condition()
                self.is_watched = True
        return self.__dict__[name]

    def result(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - the item's result
        """Return the result, or raise the error; wait for it if need be."""
        if self._state != _FINISHED:
            self._stand_at_gate(timeout)
        if self._state == _FINISHED and self._exception is None:
            return self._result
        return super().result(0)

    def _stand_at_gate(self, timeout: float | None) -> None:
        """Wait until it is resolved or cancelled, or the time is over."""
        with _shared.lock:
            if self._state in _DONE:
                return
            gate = self.gate
            if gate is None:
                gate = self.gate = threading.Lock()
                gate.acquire()
        if timeout is None:
            passes = gate.acquire()
        elif timeout > 0:
            passes = gate.acquire(timeout=timeout)
        else:
            passes = gate.acquire(blocking=False)
        if passes:
            gate.release()

    def _invoke_callbacks(self) -> None:
        """Open the gate too: the base class calls this at each end, after setting the state."""
        with _shared.lock:
            gate, self.gate = self.gate, None
        if gate is not None:
            gate.release()
        super()._invoke_callbacks()  # type: ignore[misc] # private to the base class

    def done(self) -> bool:
        """Return whether it has a result, an error, or was cancelled."""
        return self._state in _DONE

    def cancel(self) -> bool:
        """Withdraw the item, if it was not sent yet."""
        with _shared.lock:
            if self.stage == _TAKEN:
                return False
            again, self.stage = self.stage == _WITHDRAWN, _WITHDRAWN
        if not super().cancel():
            return False
        if not again:
            self.set_running_or_notify_cancel()  # for those in concurrent.futures.wait()
        return True

    def running(self) -> bool:
        """Return whether the item is in the processor's hands."""
        return self.stage == _TAKEN and not self.done()


class FutureSink:
    """Resolves the futures that `submit` returned; a context is the future."""

    def claim(self, entries: list[Entry]) -> list[Entry]:
        """Return those that nobody has cancelled, and let nobody from now on."""
        with _shared.lock:
            kept = []
            for entry in entries:  # in one pass: a destructor may cancel one in between
                if entry[4].stage == _WAITING:
                    entry[4].stage = _TAKEN
                    kept.append(entry)
        return kept

    def settle(self, contexts: list[ItemFuture], result: CompleteResult, ll_result: object) -> int:
        """Give every future the same result."""
        if result is CompleteResult.OK:
            return _resolve(contexts, [ll_result] * len(contexts))
        return sum(not _end(future, None, error_of(result, ll_result)) for future in contexts)

    def settle_each(self, contexts: list[ItemFuture], values: Sequence[Any], failed: int) -> int:
        """Give every future its own value; one that is an exception is raised by it."""
        if not failed:
            return _resolve(contexts, values)
        raised = 0
        for future, value in zip(contexts, values, strict=True):
            is_error = isinstance(value, BaseException)
            error = error_of(CompleteResult.ERROR, value) if is_error else None
            raised += not _end(future, value, error)
        return raised


def _resolve(futures: list[ItemFuture], values: Sequence[Any]) -> int:
    """Give every future its value; count those whose done-callbacks raised."""
    watched = []
    gates = []
    with _shared.lock:
        for future, value in zip(futures, values, strict=True):
            if future.is_watched:
                watched.append((future, value))
            else:
                future._result = value  # noqa: SLF001 - see ItemFuture
                future._state = _FINISHED  # noqa: SLF001
                if future.gate is not None:
                    gates.append(future.gate)
    for gate in gates:
        gate.release()
    return sum(not _end(future, value, None) for future, value in watched)


def _end(future: ItemFuture, value: object, error: BaseException | None) -> bool:
    """End *future* the usual way; False if its done-callbacks raised."""
    try:
        # Done-callbacks run in here, and what is no Exception passes through them.
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    except BaseException as raised:  # noqa: BLE001 - the others must be told as well
        log(logging.ERROR, "batcher.callback_failed", error=raised)
        return False
    return True


FUTURES = FutureSink()
