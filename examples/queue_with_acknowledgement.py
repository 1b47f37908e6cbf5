"""Type dispatch and acknowledgement together: a queue of three types, batches into SQLite.

Producers put spans, logs and metrics into one queue. Each type has a batcher as its handler,
which stores batches in one transaction each; when the transaction has been committed, every
producer is told about its own item. What could not be stored is told as well.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock import BatchQueueConfig, BatchQueueManager, ThreadPolicy
from penstock.batcher import (
    Batcher,
    BatchFault,
    BatchSettings,
    CompleteResult,
    Completion,
    ProcessResult,
)


@dataclass(frozen=True)
class Span:
    """One operation and how long it took."""

    service: str
    milliseconds: int


@dataclass(frozen=True)
class Log:
    """One line of a log."""

    service: str
    text: str | None


@dataclass(frozen=True)
class Metric:
    """One number."""

    service: str
    value: float


TABLES = {
    Span: "CREATE TABLE span (service TEXT NOT NULL, milliseconds INTEGER NOT NULL)",
    Log: "CREATE TABLE log (service TEXT NOT NULL, text TEXT NOT NULL)",
    Metric: "CREATE TABLE metric (service TEXT NOT NULL, value REAL NOT NULL)",
}


class Table:
    """Where the items of one type are stored, a batch per transaction."""

    def __init__(self, path: Path, kind: type) -> None:
        self._path = path
        self._insert = f"INSERT INTO {kind.__name__.lower()} VALUES (?, ?)"  # noqa: S608 - our own names

    def store(self, items: list[Any], complete: Completion) -> ProcessResult:
        """Store a batch whole, or none of it; say which."""
        connection = sqlite3.connect(self._path, timeout=30)
        try:
            with connection:
                connection.executemany(self._insert, map(astuple, items))
        except sqlite3.IntegrityError as error:
            complete(CompleteResult.ERROR, error)
        else:
            complete(CompleteResult.OK)
        finally:
            connection.close()
        return ProcessResult.OK


class Ledger:
    """Counts what producers were told."""

    def __init__(self) -> None:
        self.told: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def acknowledge(self, item: Any, result: CompleteResult, _ll_result: object) -> None:  # noqa: ANN401 - any of three types
        """Be told about one item; a server would answer its client here."""
        with self._lock:
            self.told[type(item).__name__, result.name] += 1


def stopped(fault: BatchFault) -> None:
    """Be told if a table cannot be written to at all."""
    print("stopped:", fault)


def run(path: Path) -> Ledger:
    """Send everything through one queue and return what was told."""
    ledger = Ledger()
    settings = BatchSettings(max_batch_size=50, min_batch_size=50, min_wait_time=0.05)
    batchers = {
        kind: Batcher[Any](
            Table(path, kind).store,
            settings,
            on_batch_faulted=stopped,
            on_item_complete=ledger.acknowledge,
            name=kind.__name__.lower(),
        )
        for kind in TABLES
    }
    with BatchQueueManager() as queues:
        queue = queues.create("telemetry", BatchQueueConfig[Any](threads=ThreadPolicy.fixed(1)))
        for kind, batcher in batchers.items():
            batcher.open()
            queue.add_handler(kind, batcher)  # type dispatch and acknowledgement, in one line
        for number in range(200):
            queue.produce(Span("shop", number))
            queue.produce(Metric("shop", number / 2))
            queue.produce(Log("shop", None if number == 70 else f"line {number}"))
    # The queue is drained; what it handed over is sent and acknowledged now.
    for batcher in batchers.values():
        batcher.close(drain=True)
    return ledger


def main() -> None:
    """Make the tables, run, and compare what is stored with what was told."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "telemetry.db"
        connection = sqlite3.connect(path)
        for table in TABLES.values():
            connection.execute(table)
        connection.commit()
        ledger = run(path)
        for kind in TABLES:
            name = kind.__name__
            (stored,) = connection.execute(f"SELECT count(*) FROM {name.lower()}").fetchone()  # noqa: S608
            assert stored == ledger.told[name, "OK"]
            print(f"{name}: {stored} stored, {ledger.told[name, 'ERROR']} in a batch that failed")
        connection.close()
    assert sum(ledger.told.values()) == 600


if __name__ == "__main__":
    main()
