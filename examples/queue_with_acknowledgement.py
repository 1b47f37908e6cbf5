"""Three types through one queue into SQLite, with an acknowledgement for every row stored.

The queue takes items from many threads and sorts them by type. The batcher behind it makes
transactions of them: one per batch, all three types together. An item is acknowledged when its
transaction is on disk.
"""

import sqlite3
import tempfile
import threading
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TypeAlias

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
class Order:
    """Somebody buys something."""

    number: int
    cents: int


@dataclass(frozen=True)
class Payment:
    """Somebody pays for it."""

    number: int
    cents: int


@dataclass(frozen=True)
class Refund:
    """Somebody gets the money back."""

    number: int
    cents: int


Row: TypeAlias = Order | Payment | Refund
TYPES: tuple[type[Row], ...] = (Order, Payment, Refund)
PRODUCERS, EACH = 4, 500


class Ledger:
    """A table in a file, and who has been acknowledged."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.acknowledged: Counter[str] = Counter()
        self.transactions = 0
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE ledger (kind TEXT, number INTEGER, cents INTEGER)")
        database.close()

    def store(self, rows: list[Row], complete: Completion) -> ProcessResult:
        """Write one batch in one transaction; then, and only then, say that it is done."""
        database = sqlite3.connect(self._file)
        try:
            with database:
                database.executemany(
                    "INSERT INTO ledger VALUES (?, ?, ?)",
                    [(type(row).__name__, *astuple(row)) for row in rows],
                )
        except sqlite3.Error as error:
            complete(CompleteResult.ERROR, error)
        else:
            self.transactions += 1
            complete(CompleteResult.OK)
        finally:
            database.close()
        return ProcessResult.OK

    def acknowledge(self, row: Row, result: CompleteResult, _ll_result: object) -> None:
        """Count how an item ended; a receiver would answer its client here."""
        with self._lock:
            self.acknowledged[f"{type(row).__name__} {result.value}"] += 1

    def count(self) -> dict[str, int]:
        """Return how many rows of each kind are in the file."""
        database = sqlite3.connect(self._file)
        rows = database.execute("SELECT kind, count(*) FROM ledger GROUP BY kind ORDER BY kind")
        counts = dict(rows.fetchall())
        database.close()
        return counts


def show_fault(fault: BatchFault) -> None:
    """Say why the batcher stopped; here it never does."""
    print("faulted:", fault)


def main(folder: Path) -> None:
    """Produce from several threads, close in the direction of the data, and compare."""
    ledger = Ledger(folder / "ledger.db")
    batcher = Batcher[Row](
        ledger.store,
        BatchSettings(max_batch_size=500, min_batch_size=200, min_wait_time=0.05, capacity=2000),
        on_batch_faulted=show_fault,
        on_item_complete=ledger.acknowledge,
        name="ledger",
    )

    # Inside out: leaving drains the queue into the batcher, then the batcher into the file.
    with batcher, BatchQueueManager() as queues:
        queue = queues.create("rows", BatchQueueConfig[Row](threads=ThreadPolicy.fixed(1)))
        for kind in TYPES:
            queue.add_handler(kind, batcher)

        def produce() -> None:
            for number in range(EACH):
                for kind in TYPES:
                    assert queue.produce(kind(number=number, cents=number % 100))

        producers = [threading.Thread(target=produce) for _ in range(PRODUCERS)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()

    stored = ledger.count()
    print("stored:", stored)
    print("acknowledged:", dict(sorted(ledger.acknowledged.items())))
    print("in fewer transactions than rows:", ledger.transactions < sum(stored.values()))
    expected = PRODUCERS * EACH
    assert stored == {kind.__name__: expected for kind in TYPES}
    assert ledger.acknowledged == {f"{kind.__name__} ok": expected for kind in TYPES}
    assert batcher.stats().ok == expected * len(TYPES)
    assert ledger.transactions < expected


with tempfile.TemporaryDirectory() as temporary:
    main(Path(temporary))
