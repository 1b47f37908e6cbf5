"""Batches from threads: submit an item, get the future of its own result.

Four threads bring orders one by one. They are priced in batches of up to five, or of whatever
has come within 20 ms. `batcher_asyncio.py` is the same program for asyncio.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock.batcher import Batcher, BatchFault, BatchSettings, Completion, ProcessResult

PRICES = {"pen": 2, "ink": 7, "paper": 3}
ORDERS = [(name, count) for count in range(1, 6) for name in ("pen", "ink", "quill", "paper")]


def price(orders: list[tuple[str, int]], complete: Completion) -> ProcessResult:
    """Price a batch: each order gets its own answer, an exception being one."""
    complete.each(
        [
            PRICES[name] * count if name in PRICES else LookupError(f"we have no {name}")
            for name, count in orders
        ]
    )
    return ProcessResult.OK


def stopped(fault: BatchFault) -> None:
    """Be told if a batch could not be processed at all; reset() would go on."""
    print("stopped:", fault)


def ask(batcher: Batcher[tuple[str, int]], order: tuple[str, int]) -> str:
    """Bring one order and wait for its price."""
    name, count = order
    try:
        return f"{count} {name}: {batcher.submit(order).result()}"
    except LookupError as error:
        return f"{count} {name}: {error}"


def main() -> None:
    """Have everything priced, and say what happened."""
    settings = BatchSettings(max_batch_size=5, min_batch_size=5, min_wait_time=0.02)
    with (
        Batcher(price, settings, on_batch_faulted=stopped, name="prices") as batcher,
        ThreadPoolExecutor(4) as threads,
    ):
        for line in threads.map(lambda order: ask(batcher, order), ORDERS):
            print(line)
    stats = batcher.stats()
    print(f"{stats.accepted} orders: {stats.ok} priced, {stats.failed} refused")


if __name__ == "__main__":
    main()
