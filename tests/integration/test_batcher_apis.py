"""Threads and asyncio: the same script, the same results."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from penstock.batcher import (
    Batcher,
    BatchSettings,
    CompleteResult,
    Completion,
    ProcessResult,
    batched,
)
from penstock.errors import InvalidItemError, InvalidSizeError, ItemTooLargeError, PenstockError

# What is brought, its size, and what becomes of it.
SCRIPT: list[tuple[Any, Any, Any]] = [
    *((number, 1, 2 * number) for number in range(1, 40)),
    ("double", 3, "doubledouble"),
    (None, 1, InvalidItemError),
    (1, 0, InvalidSizeError),
    (2, 99, ItemTooLargeError),
    ({}, 1, TypeError),
    (b"x", 10, b"xx"),
    (50, None, 100),
]

SETTINGS = BatchSettings(
    max_batch_size=10,
    min_batch_size=7,
    min_wait_time=0.005,
    max_pending_batches=2,
    oversize="reject",
    capacity=20,
)


def twice(item: Any) -> Any:  # noqa: ANN401 - whatever is in the script
    """Return twice the item, or what is wrong with it."""
    try:
        return item * 2
    except TypeError as error:
        return error


def process(items: list[Any], complete: Completion) -> ProcessResult:
    """Answer each item of a batch."""
    complete.each([twice(item) for item in items])
    return ProcessResult.OK


def outcome(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - a value or a type
    """Return what *call* returns, or the type of what it raises."""
    try:
        return call()
    except (PenstockError, TypeError) as error:
        return type(error)


def make() -> Batcher[Any]:
    """Make the batcher of the script."""
    return Batcher(process, SETTINGS, on_batch_faulted=lambda _: None)


def by_futures() -> list[Any]:
    """Run the script with submit."""
    with make() as batcher:
        futures = [outcome(partial(batcher.submit, item, size)) for item, size, _ in SCRIPT]
        return [f if isinstance(f, type) else outcome(partial(f.result, 10)) for f in futures]


def by_many_threads() -> list[Any]:
    """Run the script with submit, every item on some thread."""
    with make() as batcher, ThreadPoolExecutor(5) as threads:
        return list(
            threads.map(lambda line: outcome(lambda: batcher.submit(*line[:2]).result(10)), SCRIPT)
        )


def by_asyncio() -> list[Any]:
    """Run the script with asubmit."""

    async def one(batcher: Batcher[Any], item: Any, size: Any) -> Any:  # noqa: ANN401 - see SCRIPT
        try:
            return await batcher.asubmit(item, size)
        except (PenstockError, TypeError) as error:
            return type(error)

    async def main() -> list[Any]:
        async with make() as batcher:
            return list(await asyncio.gather(*(one(batcher, i, s) for i, s, _ in SCRIPT)))

    return asyncio.run(main())


@pytest.mark.parametrize("way", [by_futures, by_many_threads, by_asyncio])
def test_every_way_gives_the_same_results(way: Callable[[], list[Any]]) -> None:
    """Whether it is waited for, or awaited."""
    assert way() == [expected for _, _, expected in SCRIPT]


def test_callbacks_are_told_the_same() -> None:
    """What is an exception for a future is ERROR for a callback."""
    told: dict[int, tuple[CompleteResult, Any]] = {}

    def keep(line: int, result: CompleteResult, ll_result: Any) -> None:  # noqa: ANN401 - see SCRIPT
        told[line] = (result, type(ll_result) if result is CompleteResult.ERROR else ll_result)

    with make() as batcher:
        accepted = [
            line
            for line, (item, size, _) in enumerate(SCRIPT)
            if batcher.enqueue(item, size, keep, line).name == "OK"
        ]
    expected = [(SCRIPT[line][2], line) for line in accepted]
    assert [(told[line][1], line) for line in accepted] == expected
    assert len(accepted) == len(SCRIPT) - 3


def test_a_batched_function_gives_the_same_both_ways() -> None:
    """Called or awaited."""

    @batched(max_batch_size=10, max_wait=0.002)
    def double(numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]

    async def main() -> list[int]:
        return list(await asyncio.gather(*(double.acall(number) for number in range(50))))

    with ThreadPoolExecutor(4) as threads:
        called = list(threads.map(double, range(50)))
    assert called == asyncio.run(main())
    double.close()
