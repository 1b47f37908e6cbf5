"""Producing from coroutines: a full queue makes the coroutine wait, not the loop."""

import asyncio
import threading

from penstock import BatchQueue, BatchQueueConfig, BatchQueueManager, ThreadPolicy

received: list[int] = []
may_go_on = threading.Event()


def store(batch: list[int]) -> None:
    """Be slow: the first batch waits until the loop has shown that it is still alive."""
    may_go_on.wait()
    received.extend(batch)


async def keep_loop_busy() -> int:
    """Take a hundred turns on the loop, then let the handler go on."""
    turns = 0
    while turns < 100:
        await asyncio.sleep(0)
        turns += 1
    may_go_on.set()
    return turns


async def main() -> None:
    """Produce far more than fits."""
    with BatchQueueManager() as queues:
        config = BatchQueueConfig[int](threads=ThreadPolicy.fixed(1), buffer_size=3, consumer=store)
        queue = queues.create("numbers", config)
        await fill(queue)

        # A wait that is given up leaves nothing behind.
        try:
            async with asyncio.timeout(0.01):
                await queue.aproduce(-1)
        except TimeoutError:
            print("full: gave up after 10 ms,", queue.stats().total_used, "items wait")

        produced, turns = await asyncio.gather(
            asyncio.gather(*(queue.aproduce(number) for number in range(20))),
            keep_loop_busy(),
        )
        print(f"the loop took {turns} turns while producers waited")
        assert all(produced)

    # Leaving the block drained the queue.
    numbers = sorted(number for number in received if number < 100)
    print("received:", numbers)
    assert numbers == list(range(20))  # and no -1


async def fill(queue: BatchQueue[int]) -> None:
    """Produce until the handler holds a batch and the buffer behind it is full."""
    number = 100
    while queue.stats().in_flight == 0 or queue.stats().total_used < 3:
        if queue.stats().total_used < 3:
            await queue.aproduce(number)
            number += 1
        await asyncio.sleep(0)


asyncio.run(main())
