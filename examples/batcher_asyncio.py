"""Batches from asyncio: await the result of one item, pay for a batch.

The same orders as in `batcher_threads.py`, with the same answers. The processor runs on the
batcher's own thread, so it may block; the event loop does not.
"""

from __future__ import annotations

import asyncio

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


async def ask(batcher: Batcher[tuple[str, int]], order: tuple[str, int]) -> str:
    """Bring one order and await its price."""
    name, count = order
    try:
        return f"{count} {name}: {await batcher.asubmit(order)}"
    except LookupError as error:
        return f"{count} {name}: {error}"


async def main() -> None:
    """Have everything priced, and say what happened."""
    settings = BatchSettings(max_batch_size=5, min_batch_size=5, min_wait_time=0.02)
    async with Batcher(price, settings, on_batch_faulted=stopped, name="prices") as batcher:
        for line in await asyncio.gather(*(ask(batcher, order) for order in ORDERS)):
            print(line)
    stats = batcher.stats()
    print(f"{stats.accepted} orders: {stats.ok} priced, {stats.failed} refused")


if __name__ == "__main__":
    asyncio.run(main())
