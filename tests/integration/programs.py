"""Whole programs that the process tests run: each is started by its name, in an interpreter.

A program says what it found as one line of JSON per process; `test_process` reads them.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    BufferStrategy,
    DrainBalancer,
    HandlerConsumer,
    PartitionPolicy,
    ThreadPolicy,
    _process,
)
from penstock.testing import eventually
from tests.integration.forking import PATIENCE, fork, say


def queue_of(manager: BatchQueueManager, name: str = "q", **settings: object) -> BatchQueue[Any]:
    """Make a queue with two threads unless *settings* say otherwise."""
    if "shared_scheduler" not in settings:
        settings.setdefault("threads", ThreadPolicy.fixed(2))
    settings.setdefault("partitions", PartitionPolicy.fixed(4))
    return manager.create(name, BatchQueueConfig(**settings))  # type: ignore[arg-type]


def figures(queue: BatchQueue[Any]) -> dict[str, int]:
    """Return what the queue has counted."""
    stats = queue.stats()
    return {
        "accepted": stats.accepted,
        "consumed": stats.consumed,
        "dropped": stats.dropped.total,
        "used": stats.total_used,
        "drained": sum(stats.drained_by_thread),
    }


def use_in_child(queue: BatchQueue[Any], got: list[int]) -> None:
    """Produce a hundred items and drain them, in a process that has just been forked."""
    start = figures(queue)
    got.clear()
    accepted = queue.produce_many(list(range(60))) + sum(map(queue.produce, range(60, 100)))
    report = queue.shutdown(timeout=PATIENCE / 2)
    say(
        who="child",
        start=start,
        accepted=accepted,
        complete=report.complete,
        got=sorted(got) == list(range(100)),
        end=figures(queue),
    )


# -- fork ---------------------------------------------------------------------------------


def fork_while_producing() -> None:
    """Fork again and again while two threads produce and two drain."""
    got: list[int] = []
    queue = queue_of(BatchQueueManager(), buffer_size=100)
    queue.add_handler(int, got.extend)
    numbers = itertools.count()
    accepted: list[int] = []
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            number = next(numbers)
            if queue.produce(number):
                accepted.append(number)

    producers = [threading.Thread(target=produce) for _ in range(2)]
    for producer in producers:
        producer.start()
    codes = []
    for _ in range(10):
        before = len(got)
        eventually(partial(_is_longer, got, before), PATIENCE)
        codes.append(fork(lambda: use_in_child(queue, got)))
    stop.set()
    for producer in producers:
        producer.join()
    report = queue.shutdown(timeout=PATIENCE)
    say(
        who="parent",
        codes=codes,
        complete=report.complete,
        got=sorted(got) == sorted(accepted),
        counted=figures(queue)["consumed"] == len(accepted) == figures(queue)["accepted"],
    )


def _is_longer(got: list[int], before: int) -> bool:
    return len(got) > before


def locks_of(manager: BatchQueueManager, queue: BatchQueue[Any]) -> list[Any]:
    """Return every lock of *queue*, its drainers, partitions and schedulers."""
    entries = queue._dispatch.entries()
    return [
        manager._lock,
        manager._schedulers._lock,
        queue._registering,
        queue._route_lock,
        queue._closed_lock,
        queue._shutdown._changed,
        queue._table._changed,
        queue._dispatch.lock,
        *(entry.lock for entry in entries),
        *(drainer.lock for drainer in queue._drainers),
        *(part.lock for part in queue._table.partitions),
        *(d.scheduler._changed for d in queue._drainers if d.scheduler),  # type: ignore[attr-defined]
    ]


def fork_while_locked() -> None:
    """Fork at a moment when another thread holds every lock that the queue has."""
    got: list[int] = []
    manager = BatchQueueManager()
    queue = queue_of(manager)
    queue.add_handler(int, got.extend)
    queue.produce(1)
    eventually(lambda: got == [1], PATIENCE)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks_of(manager, queue):
                stack.enter_context(lock)
            held.set()
            release.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(PATIENCE)

    def child() -> None:
        assert manager.get_or_create("q", queue.config) is queue
        queue.add_handler(str, print)
        use_in_child(queue, got)

    code = fork(child)
    release.set()
    holder.join()
    queue.produce(2)
    report = queue.shutdown(timeout=PATIENCE)
    say(who="parent", code=code, complete=report.complete, got=sorted(got))


def fork_while_handling() -> None:
    """Fork while a plain function is handling a batch on another thread."""
    got: list[int] = []
    parent = os.getpid()
    inside, release = threading.Event(), threading.Event()

    def handle(batch: list[int]) -> None:
        if os.getpid() == parent:
            inside.set()
            release.wait(PATIENCE)
        got.extend(batch)

    queue = queue_of(BatchQueueManager())
    queue.add_handler(int, handle)
    queue.produce_many([1, 2, 3])
    inside.wait(PATIENCE)
    code = fork(lambda: use_in_child(queue, got))
    release.set()
    report = queue.shutdown(timeout=PATIENCE)
    say(who="parent", code=code, complete=report.complete, got=sorted(got))


def fork_with_shared_scheduler() -> None:
    """Fork a process whose queue shares its scheduler, and give that back in the child."""
    got: list[int] = []
    manager = BatchQueueManager()
    queue = queue_of(manager, shared_scheduler=("io", ThreadPolicy.fixed(2)))
    queue.add_handler(int, got.extend)

    def child() -> None:
        use_in_child(queue, got)
        say(who="child", schedulers=manager._schedulers.names())

    code = fork(child)
    say(who="parent", code=code, schedulers=manager._schedulers.names())
    queue.shutdown(timeout=PATIENCE)


def fork_with_balancer() -> None:
    """Fork a growing queue that rebalances: the child has as many threads, and rebalances."""
    queue = queue_of(
        BatchQueueManager(),
        partitions=PartitionPolicy.adaptive(),
        balancer=DrainBalancer.throughput_weighted(),
        rebalance_interval=0.01,
    )
    queue.add_handler(int, lambda batch: batch)

    def child() -> None:
        numbers = itertools.count()
        shape = len(queue.stats().drained_by_thread)

        def has_rebalanced() -> bool:
            queue.produce(next(numbers))
            return queue.stats().load_ratio is not None

        eventually(has_rebalanced, PATIENCE / 2)
        say(who="child", threads=shape)

    code = fork(child)
    say(who="parent", code=code, threads=len(queue.stats().drained_by_thread))
    queue.shutdown(timeout=PATIENCE)


def fork_and_warn() -> None:
    """Fork with drain threads running, and tell which warnings came."""
    queue = queue_of(BatchQueueManager())
    got: list[int] = []
    queue.add_handler(int, got.extend)
    queue.produce(1)
    eventually(lambda: got, PATIENCE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        def child() -> None:
            caught.clear()
            use_in_child(queue, got)
            _say_warnings("child", caught)

        fork(child)
        _say_warnings("parent", caught)
    queue.shutdown(timeout=PATIENCE)


def _say_warnings(who: str, caught: list[warnings.WarningMessage]) -> None:
    found = [(w.category.__name__, Path(w.filename).name) for w in caught]
    say(who=who, warnings=found)


def multiprocessing_child() -> None:
    """Use a queue of the parent in a child that multiprocessing forks."""
    got: list[int] = []
    queue = queue_of(BatchQueueManager())
    queue.add_handler(int, got.extend)
    queue.produce(-1)
    eventually(lambda: got == [-1], PATIENCE)
    process = multiprocessing.get_context("fork").Process(target=use_in_child, args=(queue, got))
    process.start()
    process.join(PATIENCE)
    report = queue.shutdown(timeout=PATIENCE)
    say(who="parent", code=process.exitcode, complete=report.complete, got=got)


# -- the end of the interpreter -------------------------------------------------------------


class Marker(HandlerConsumer[Any]):
    """Merges what it gets, and tells the sum when it is flushed."""

    def __init__(self) -> None:
        self.sum = 0
        self.inside = threading.Event()

    def consume(self, batch: list[Any]) -> None:
        """Add *batch* up."""
        self.inside.set()
        self.sum += len(batch)

    def on_idle(self) -> None:
        """Tell the sum."""
        say(who="handler", pid=os.getpid(), sum=self.sum)


def _backlog(count: int) -> None:
    """Leave *count* items in the default manager's queues when the program ends."""
    first, second = (
        queue_of(BatchQueueManager.default(), name, min_idle=60.0, max_idle=60.0)
        for name in ("l1", "l2")
    )
    second.add_handler(str, Marker())

    def forward(batch: list[int]) -> None:
        second.produce_many([str(number) for number in batch])

    first.add_handler(int, forward)
    first.produce_many(list(range(count)))


def exit_with_backlog() -> None:
    """End at once after producing; what the first queue holds flows through the second."""
    _backlog(1000)


def exit_with_backlog_and_code() -> None:
    """End the same way, with an exit code."""
    _backlog(10)
    sys.exit(3)


def exit_with_backlog_and_error() -> None:
    """End the same way, by an exception."""
    _backlog(10)
    msg = "the program failed"
    raise RuntimeError(msg)


def exit_in_forked_child() -> None:
    """Fork two children that end as programs do: one has used the queue, one has not."""
    queue = queue_of(BatchQueueManager.default(), min_idle=60.0, max_idle=60.0)
    marker = Marker()
    queue.add_handler(int, marker)
    queue.produce_many([1, 2, 3])
    eventually(lambda: queue.stats().consumed == 3, PATIENCE)
    for uses in (True, False):
        process = os.fork()
        if process == 0:
            marker.sum = 0
            if uses:
                queue.produce_many([4, 5])
            say(who="user" if uses else "bystander", pid=os.getpid())
            return
        os.waitpid(process, 0)
    say(who="parent", pid=os.getpid())


def _stuck(deadline: float) -> BatchQueue[Any]:
    """Make a queue whose handler has taken one item and never returns."""
    logging.basicConfig(level=logging.WARNING)
    _process.EXIT_DEADLINE = deadline
    queue = queue_of(
        BatchQueueManager.default(),
        threads=ThreadPolicy.fixed(1),
        partitions=PartitionPolicy.fixed(1),
        buffer_size=5,
        strategy=BufferStrategy.BLOCKING,
    )
    inside = threading.Event()

    def never_return(batch: list[Any]) -> None:
        del batch
        inside.set()
        threading.Event().wait()

    queue.add_handler(int, never_return)
    queue.produce(0)
    inside.wait(PATIENCE)
    return queue


def exit_with_stuck_handler() -> None:
    """End with five items behind a handler that never returns."""
    _stuck(0.3).produce_many([1, 2, 3, 4, 5])


def exit_with_blocked_daemon() -> None:
    """End while a daemon thread waits for room that never comes."""
    queue = _stuck(0.3)
    queue.produce_many([1, 2, 3, 4, 5])

    def produce() -> None:
        say(who="daemon", accepted=queue.produce(6))

    threading.Thread(target=produce, daemon=True).start()
    _await_waiter(queue)


def _await_waiter(queue: BatchQueue[Any]) -> None:
    """Wait until a producer waits for room."""
    part = queue._table.partitions[0]
    eventually(lambda: part.room is not None and part.room._waiters, PATIENCE)  # type: ignore[attr-defined]


# -- signals ------------------------------------------------------------------------------------


def interrupt_blocked_producer() -> None:
    """Press Ctrl-C while the main thread waits for room, then go on with the same queue."""
    got: list[int] = []
    inside, release = threading.Event(), threading.Event()

    def handle(batch: list[int]) -> None:
        inside.set()
        release.wait(PATIENCE)
        got.extend(batch)

    queue = queue_of(
        BatchQueueManager(),
        threads=ThreadPolicy.fixed(1),
        partitions=PartitionPolicy.fixed(1),
        buffer_size=2,
    )
    queue.add_handler(int, handle)
    queue.produce(0)
    inside.wait(PATIENCE)
    queue.produce_many([1, 2])
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        _await_waiter(queue)
        signal.pthread_kill(main, signal.SIGINT)

    ctrl_c = threading.Thread(target=interrupt)
    ctrl_c.start()
    interrupted = False
    try:
        queue.produce(3)
    except KeyboardInterrupt:
        interrupted = True
    ctrl_c.join()
    release.set()
    queue.produce(4)
    report = queue.shutdown(timeout=PATIENCE)
    say(who="parent", interrupted=interrupted, complete=report.complete, got=got)


def main() -> None:
    """Run the program that was asked for."""
    signal.alarm(int(2 * PATIENCE))
    globals()[sys.argv[1]]()


if __name__ == "__main__":
    main()
