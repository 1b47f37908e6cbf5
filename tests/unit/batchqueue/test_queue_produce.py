"""Items come in: the three strategies, alone and many together, with and without waiting."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    BufferStrategy,
    PartitionPolicy,
    PartitionSelector,
    ThreadPolicy,
)
from penstock.batchqueue import DropCounts
from penstock.errors import InvalidItemError, ReentrantProduceError, SelectorError
from penstock.testing import RecordingHandler, eventually
from tests.unit.rig import PATIENCE, Rig, await_event, events, in_background, kinds

BLOCKING, IF_POSSIBLE, DROP_OLDEST = BufferStrategy

# How items find their partition: by a route per type, by a selector asked each time, or round
# robin with a consumer.
BY_TYPE: dict[str, object] = {}
CUSTOM: dict[str, object] = {
    "partitions": PartitionPolicy.fixed(2),
    "selector": lambda item, _n: len(item) % 2,
}
CONSUMER: dict[str, object] = {"partitions": PartitionPolicy.fixed(2), "consumer": print}
WAYS = pytest.mark.parametrize(
    "way", [BY_TYPE, CUSTOM, CONSUMER], ids=["by type", "custom selector", "consumer"]
)


def listen(queue: BatchQueue[Any], *types: type) -> RecordingHandler[Any]:
    """Add a handler for *types* and return it."""
    handler = RecordingHandler[Any]()
    for kind in types or (str,):
        queue.add_handler(kind, handler)
    return handler


# -- one item -----------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("strategy", BufferStrategy)
def test_an_item_that_finds_room_is_accepted(
    strategy: BufferStrategy, way: dict[str, object]
) -> None:
    """With room, all strategies and selectors are alike."""
    queue = Rig().queue(strategy=strategy, **way)
    assert [queue.produce(item) for item in ("a", "bb", "c")] == [True] * 3
    assert queue.stats().accepted == queue.stats().total_used == 3


@WAYS
def test_if_possible_refuses_what_finds_no_room(
    way: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Refused items are counted, and the first one is logged."""
    queue = Rig().queue(strategy=IF_POSSIBLE, buffer_size=2, **way)
    answers = [queue.produce("item") for _ in range(8)]
    room = 2 if way is not CONSUMER else 4
    assert answers == [True] * room + [False] * (8 - room)
    assert queue.stats().dropped == DropCounts(full=8 - room)
    assert events(caplog) == ["queue.items_dropped"]
    assert caplog.records[0].__dict__["cause"] == "full"


@WAYS
def test_drop_oldest_evicts_to_make_room(
    way: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Every item is accepted and the newest stay; the first loss is logged."""
    rig = Rig()
    handler = RecordingHandler[str]()
    if way is CONSUMER:
        way = {**CONSUMER, "consumer": handler, "selector": lambda _item, _n: 1}
    queue = rig.queue(strategy=DROP_OLDEST, buffer_size=3, **way)
    if "consumer" not in way:
        queue.add_handler(str, handler)
    assert all(queue.produce(f"item{number}") for number in range(8))
    assert queue.stats().dropped == DropCounts(evicted=5)
    assert queue.stats().total_used == 3
    rig.drain()
    assert handler.items == ["item5", "item6", "item7"]
    assert queue.stats().accepted == 8
    assert events(caplog) == ["queue.items_dropped"]
    assert caplog.records[0].__dict__["cause"] == "evicted"


def test_evicted_items_are_let_go() -> None:
    """What was pushed out is not kept alive by the queue, at whatever point of its cycle."""

    class Item:
        alive = 0

        def __init__(self) -> None:
            Item.alive += 1

        def __del__(self) -> None:
            Item.alive -= 1

    queue = Rig().queue(strategy=DROP_OLDEST, buffer_size=4)
    for _ in range(11):
        queue.produce(Item())
    assert Item.alive == 4


def test_drop_oldest_evicts_nothing_while_there_is_room() -> None:
    """Many items at once, of a type without a route or by a selector, take the free slots."""
    for way in (BY_TYPE, {**CUSTOM, "selector": lambda _item, _n: 0}):
        queue = Rig().queue(strategy=DROP_OLDEST, buffer_size=20, **way)
        assert queue.produce_many(range(10)) == 10
        assert queue.produce_many("abc") == 3
        assert queue.produce_many("def") == 3
        assert queue.stats().dropped.evicted == 0
        assert queue.stats().total_used == 16


def test_blocking_with_no_time_to_wait_only_looks() -> None:
    """A timeout of 0, or below, refuses at once when the partition is full."""
    queue = Rig().queue(buffer_size=1)
    assert queue.produce("a", timeout=0)
    assert not queue.produce("b", timeout=0)
    assert not queue.produce("c", timeout=-1.0)
    assert queue.stats().dropped == DropCounts(full=2)


def test_blocking_waits_for_room() -> None:
    """The producer goes on as soon as the drainer has made room."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    handler = listen(queue)
    queue.produce("a")
    waiting = in_background(lambda: queue.produce("b"))
    rig.clock.await_sleepers(1)
    assert not waiting.done()
    rig.steps.step()
    assert waiting.result(PATIENCE) is True
    rig.drain()
    assert handler.items == ["a", "b"]
    assert queue.stats().dropped.total == 0


def test_blocking_gives_up_after_its_timeout() -> None:
    """At the deadline the item is refused and counted."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    queue.produce("a")
    waiting = in_background(lambda: queue.produce("b", timeout=2.0))
    rig.clock.await_sleepers(1)
    rig.clock.advance(1.999)
    assert not waiting.done()
    rig.clock.await_sleepers(1)
    rig.clock.advance(0.002)
    assert waiting.result(PATIENCE) is False
    assert queue.stats().dropped == DropCounts(full=1)


def test_a_timeout_does_not_matter_to_the_other_strategies() -> None:
    """They never wait."""
    refusing = Rig().queue(strategy=IF_POSSIBLE, buffer_size=1)
    evicting = Rig().queue(strategy=DROP_OLDEST, buffer_size=1)
    assert [refusing.produce(item, timeout=60.0) for item in "ab"] == [True, False]
    assert [evicting.produce(item, timeout=60.0) for item in "ab"] == [True, True]


def test_a_parked_drainer_is_woken_by_an_item() -> None:
    """Nothing is ready before, its one drainer is ready after."""
    rig = Rig()
    queue = rig.queue(threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2))
    rig.drain()
    (kind,) = kinds(1, lambda number: number % 2 == 1)
    queue.produce(kind())
    assert rig.steps.ready() == (queue._drainers[1],)
    rig.drain()
    queue.produce_many([kind()])
    assert rig.steps.ready() == (queue._drainers[1],)


@WAYS
def test_after_shutdown_everything_is_refused(
    way: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """One by one or together, with or without a timeout: refused, counted, logged once."""
    queue = Rig().queue(**way)
    queue.produce("known")
    queue.shutdown()
    caplog.clear()
    assert queue.produce("a") is False
    assert queue.produce("b", timeout=60.0) is False
    assert queue.produce_many(["c", "dd"]) == 0
    assert queue.stats().dropped.closed == 4
    assert events(caplog) == ["queue.items_dropped"]
    assert caplog.records[0].__dict__["cause"] == "closed"


# -- what cannot be produced --------------------------------------------------------------------


@WAYS
def test_none_is_not_an_item(way: dict[str, object]) -> None:
    """Alone or among others it is refused, and then none of the others is accepted."""
    queue = Rig().queue(**way)
    with pytest.raises(InvalidItemError, match="None cannot be produced"):
        queue.produce(None)
    for items in (["a", None, "b"], [None], ["a", "b", None]):
        with pytest.raises(InvalidItemError):
            queue.produce_many(items)
    assert queue.stats().accepted == 0


@pytest.mark.parametrize("answer", [-1, 2, True, False, 1.0, None])
@pytest.mark.parametrize("consumer", [None, print])
def test_a_selector_that_misses_is_told_so(
    answer: object, consumer: Callable[..., None] | None
) -> None:
    """A wrong index raises, and nothing of the call was accepted."""
    queue = Rig().queue(
        partitions=PartitionPolicy.fixed(2),
        consumer=consumer,
        selector=lambda item, _n: answer if item == "bad" else 0,
    )
    with pytest.raises(SelectorError, match="must return an int from 0 to 1"):
        queue.produce("bad")
    with pytest.raises(SelectorError, match="chose partition"):
        queue.produce_many(["good", "bad"])
    assert queue.stats().accepted == 0
    assert queue.produce("good")


def test_a_single_partition_needs_no_selector() -> None:
    """With one place to go, the selector is not asked."""

    def fail(_item: object, _n: int) -> int:
        raise AssertionError

    queue = Rig().queue(selector=fail)
    assert queue.produce("a")
    growing = Rig().queue(selector=fail, partitions=PartitionPolicy.adaptive())
    assert growing.produce("a")


# -- many together ------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("make", [list, tuple, iter], ids=["list", "tuple", "iterator"])
def test_many_items_are_accepted_together(
    way: dict[str, object], make: Callable[[list[str]], Any]
) -> None:
    """Any iterable will do, and the answer is how many were accepted."""
    queue = Rig().queue(**way)
    assert queue.produce_many(make(["a", "bb", "c"])) == 3
    assert queue.produce_many(make(["dd", "e"])) == 2
    assert queue.produce_many(make([])) == 0
    assert queue.stats().total_used == 5


def test_the_list_given_is_not_kept() -> None:
    """Changing it afterwards does not change what was accepted."""
    rig = Rig()
    queue = rig.queue()
    handler = listen(queue)
    items = ["a", "b"]
    queue.produce_many(items)
    items.clear()
    rig.drain()
    assert handler.items == ["a", "b"]


def test_items_of_a_type_keep_their_order_among_others() -> None:
    """Mixed types are split, however they are mixed, and each stays in order."""
    rig = Rig()
    queue = rig.queue(partitions=PartitionPolicy.fixed(7))
    handlers = {kind: listen(queue, kind) for kind in (str, int, float)}
    for items in (["a", 1, "b"], ["c", 2, 0.5, 3, "d"], [4, 5], ["e", 6, "f", 7, "g"]):
        assert queue.produce_many(items) == len(items)
    rig.drain()
    assert handlers[str].items == list("abcdefg")
    assert handlers[int].items == [1, 2, 3, 4, 5, 6, 7]
    assert handlers[float].items == [0.5]


def test_with_a_selector_many_items_keep_their_order_per_partition() -> None:
    """Each partition gets its items in the order of the call."""
    rig = Rig()
    consumer = RecordingHandler[str]()
    queue = rig.queue(
        consumer=consumer,
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _n: int(item[1]),
    )
    assert queue.produce_many(["a1", "b0", "c1", "d0", "e1"]) == 5
    rig.drain()
    assert consumer.batches == [["b0", "d0", "a1", "c1", "e1"]]


def test_a_consumer_with_one_partition_gets_many_items_in_their_order() -> None:
    """There is one way in, so items of different types are not parted."""
    rig = Rig()
    consumer = RecordingHandler[object]()
    queue = rig.queue(consumer=consumer)
    assert queue.produce_many([1, "a", 2, "b"]) == 4
    rig.drain()
    assert consumer.batches == [[1, "a", 2, "b"]]


def test_with_a_consumer_many_items_go_where_each_would_go_alone() -> None:
    """A consumer queue that goes by type does so one by one and together."""
    settings: dict[str, object] = {
        "consumer": print,
        "partitions": PartitionPolicy.fixed(8),
        "selector": PartitionSelector.type_hash(),
    }
    alone, together = Rig().queue(**settings), Rig().queue(**settings)
    items = [1, "a", 2.0, b"b", (3,)]
    for item in items:
        alone.produce(item)
    assert together.produce_many(items) == 5
    used = [[part.used for part in queue.stats().partitions] for queue in (alone, together)]
    assert used[0] == used[1]


def test_of_many_items_if_possible_accepts_what_fits() -> None:
    """As many as there is room for, from the front; the rest is counted."""
    rig = Rig()
    queue = rig.queue(strategy=IF_POSSIBLE, buffer_size=3)
    handler = listen(queue)
    queue.produce("known")
    assert queue.produce_many(["a", "b", "c", "d"]) == 2
    assert queue.produce_many(["e"]) == 0
    assert queue.stats().dropped == DropCounts(full=3)
    rig.drain()
    assert handler.items == ["known", "a", "b"]


@pytest.mark.parametrize("consumer", [None, print])
def test_with_a_selector_what_fits_is_counted_per_partition(
    consumer: Callable[..., None] | None,
) -> None:
    """A full partition refuses its share; the other takes its own."""
    queue = Rig().queue(
        strategy=IF_POSSIBLE,
        buffer_size=2,
        consumer=consumer,
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _n: int(item[1]),
    )
    assert queue.produce_many(["a0", "b0", "c0", "d1"]) == 3
    assert [part.used for part in queue.stats().partitions] == [2, 1]
    assert [part.dropped.full for part in queue.stats().partitions] == [1, 0]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_of_many_items_drop_oldest_keeps_the_newest(size: int) -> None:
    """All are accepted, even more than there are slots; the last ones stay, in order."""
    rig = Rig()
    queue = rig.queue(strategy=DROP_OLDEST, buffer_size=size)
    handler = listen(queue, int)
    queue.produce(0)
    assert queue.produce_many(range(1, 8)) == 7
    kept = min(size, 8)
    assert queue.stats().dropped == DropCounts(evicted=8 - kept)
    rig.drain()
    assert handler.items == list(range(8))[-kept:]


def test_of_many_items_blocking_waits_until_all_are_in() -> None:
    """The call returns when the last one has found its place, in order."""
    rig = Rig()
    queue = rig.queue(buffer_size=2)
    handler = listen(queue, int)
    waiting = in_background(lambda: queue.produce_many(range(7)))
    while len(handler.items) < 4:
        rig.clock.await_sleepers(1)
        rig.drain()
    in_time = waiting
    while not in_time.done():
        rig.drain()
    assert waiting.result(PATIENCE) == 7
    rig.drain()
    assert handler.items == list(range(7))


def test_of_many_items_blocking_accepts_what_fits_in_time() -> None:
    """At the deadline the rest is refused; one deadline holds for all types together."""
    rig = Rig()
    one, other = kinds(1, lambda n: n % 2 == 0) + kinds(1, lambda n: n % 2 == 1)
    queue = rig.queue(buffer_size=2, partitions=PartitionPolicy.fixed(2))
    items = [one() for _ in range(3)] + [other() for _ in range(3)]
    waiting = in_background(lambda: queue.produce_many(items, timeout=5.0))
    rig.clock.await_sleepers(1)
    rig.clock.advance(5.0)
    assert waiting.result(PATIENCE) == 4
    assert queue.stats().dropped == DropCounts(full=2)
    assert rig.clock.now() == 1005.0


def test_of_many_items_blocking_only_looks_without_time() -> None:
    """A timeout of 0 accepts what fits, without a thread to wait."""
    queue = Rig().queue(buffer_size=2)
    assert queue.produce_many(range(5), timeout=0) == 2
    assert queue.produce_many(range(5), timeout=0) == 0
    assert queue.stats().dropped == DropCounts(full=8)


def test_while_the_partition_is_locked_many_items_go_in_one_by_one() -> None:
    """Who drains does not hold up who produces: there is no waiting for the lock."""
    queue = Rig().queue(buffer_size=10)
    queue.produce("a")
    (part,) = queue._table.partitions
    with part.lock:
        assert queue.produce_many(["b", "c", "d"]) == 3
    assert queue.stats().total_used == 4


def test_a_route_that_was_retired_meanwhile_is_found_anew() -> None:
    """Many items that meet a replaced partition go to the type's new one."""
    rig = Rig()
    queue = rig.queue(partitions=PartitionPolicy.adaptive())
    (kind,) = kinds(1, lambda number: number % 3 == 2)
    handler = listen(queue, kind)
    queue.produce(kind())
    for other in kinds(2):
        queue.add_handler(other, print)
    rig.drain()
    assert queue._table.partitions[0] is not queue._routes[kind]
    assert queue.produce_many([kind(), kind()]) == 2
    assert [part.used for part in queue.stats().partitions] == [0, 0, 2]
    rig.drain()
    assert len(handler.items) == 3


def test_who_comes_second_takes_the_route_that_is_there() -> None:
    """Two producers that find no route do not part a type's items, even if the queue grew."""
    rig = Rig()
    queue = rig.queue(partitions=PartitionPolicy.adaptive())
    (kind,) = kinds(1, lambda number: number % 3 == 2)
    first = queue._place(kind())
    for other in kinds(3):
        queue.add_handler(other, print)
    assert queue._place(kind()) is first
    assert first is queue._table.partitions[0]


def test_a_route_that_has_changed_is_not_forgotten() -> None:
    """Only the route that led to the partition in question is given up."""
    queue = Rig().queue(partitions=PartitionPolicy.fixed(2))
    (kind,) = kinds(1, lambda number: number % 2 == 0)
    queue.produce(kind())
    right, wrong = queue._table.partitions
    queue._forget_route(kind, wrong)
    assert queue._routes == {kind: right}
    queue._forget_route(kind, right)
    assert queue._routes == {}


# -- from a handler -----------------------------------------------------------------------------


def test_a_handler_that_would_wait_for_itself_is_told_so() -> None:
    """Producing into its own full, blocking queue raises instead of waiting for ever."""
    rig = Rig()
    queue = rig.queue(buffer_size=2)
    outcomes: list[object] = []

    def produce(_batch: list[str]) -> None:
        queue.remove_handler(str)
        for item in ("fits", "fits", "one too many"):
            try:
                outcomes.append(queue.produce(item))
            except ReentrantProduceError as error:
                outcomes.append(error)

    queue.add_handler(str, produce)
    queue.produce("start")
    rig.drain()
    assert outcomes[:2] == [True, True]
    error = outcomes[2]
    assert isinstance(error, ReentrantProduceError)
    assert error.accepted == 0
    assert "partition 0 of 'q' is full: waiting would never end" in str(error)
    assert queue.stats().accepted == 3


def test_a_handler_does_not_wait_for_its_thread_by_way_of_another_queue() -> None:
    """Two queues on one shared thread: a full one cannot be drained while the other waits."""
    raised: list[BaseException] = []
    config = BatchQueueConfig[str](
        shared_scheduler=("tests.one", ThreadPolicy.fixed(1)),
        buffer_size=1,
        error_handler=lambda _batch, error: raised.append(error),
    )
    with BatchQueueManager() as manager:
        first, second = manager.create("first", config), manager.create("second", config)
        first.add_handler(str, lambda _batch: second.produce_many(["fits", "does not"]))
        first.produce("start")
        eventually(lambda: raised)
    (error,) = raised
    assert isinstance(error, ReentrantProduceError)
    assert error.accepted == 1


def test_a_handler_may_wait_for_a_queue_with_other_threads() -> None:
    """A second thread on the shared scheduler makes room, so waiting ends."""
    config = BatchQueueConfig[str](
        shared_scheduler=("tests.two", ThreadPolicy.fixed(2)), buffer_size=1
    )
    got = RecordingHandler[str]()
    with BatchQueueManager() as manager:
        first, second = manager.create("first", config), manager.create("second", config)
        second.add_handler(str, got)
        first.add_handler(str, lambda _batch: second.produce_many("abcdef"))
        first.produce("start")
        eventually(lambda: got.items == list("abcdef"))


def test_a_handler_that_produces_many_learns_how_many_went_in() -> None:
    """The error says how many items of the call had been accepted before, of all types."""
    rig = Rig()
    queue = rig.queue(buffer_size=4, partitions=PartitionPolicy.fixed(2))
    one, other = kinds(1, lambda n: n % 2 == 0) + kinds(1, lambda n: n % 2 == 1)
    accepted: list[int] = []

    def produce(_batch: list[object]) -> None:
        items = [one() for _ in range(3)] + [other() for _ in range(6)]
        with pytest.raises(ReentrantProduceError) as caught:
            queue.produce_many(items)
        accepted.append(caught.value.accepted)
        queue.remove_handler(one)

    queue.add_handler(one, produce)
    queue.produce(one())
    rig.drain()
    assert accepted == [7]
    assert queue.stats().accepted == 8


def test_one_by_one_a_handler_also_learns_how_many_went_in() -> None:
    """The same where the partition's lock was taken and the items went in singly."""
    rig = Rig()
    queue = rig.queue(buffer_size=2)
    listen(queue)
    raised: list[ReentrantProduceError] = []

    def produce_each(_batch: list[int]) -> None:
        with pytest.raises(ReentrantProduceError) as caught:
            queue._produce_each(["a", "b", "c"], None, 10)
        raised.append(caught.value)

    queue.add_handler(int, produce_each)
    queue.produce(1)
    rig.drain()
    assert [error.accepted for error in raised] == [12]


@pytest.mark.parametrize("strategy", [IF_POSSIBLE, DROP_OLDEST])
def test_a_handler_may_produce_if_it_need_not_wait(strategy: BufferStrategy) -> None:
    """The other strategies, and a timeout of 0, work from inside a handler."""
    rig = Rig()
    queue = rig.queue(strategy=strategy, buffer_size=1)
    answers: list[bool] = []
    queue.add_handler(int, lambda _batch: answers.extend(queue.produce(item) for item in "ab"))
    queue.produce(1)
    rig.drain()
    assert answers == [True, strategy is DROP_OLDEST]


def test_a_handler_may_produce_without_waiting() -> None:
    """With a timeout of 0 a full queue is an answer, not an error."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    answers: list[bool] = []
    queue.add_handler(
        int, lambda _batch: answers.extend(queue.produce(item, timeout=0) for item in "ab")
    )
    queue.produce(1)
    rig.drain()
    assert answers == [True, False]


def test_another_thread_may_wait_while_a_handler_runs() -> None:
    """Only the thread inside the handler is refused the wait."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    entered, go = threading.Event(), threading.Event()

    def hold(_batch: list[int]) -> None:
        entered.set()
        await_event(go)

    queue.add_handler(int, hold)
    queue.produce(1)
    draining = in_background(rig.drain)
    await_event(entered)
    queue.produce(2)
    waiting = in_background(lambda: queue.produce(3))
    rig.clock.await_sleepers(1)
    go.set()
    assert waiting.result(PATIENCE) is True
    draining.result(PATIENCE)


# -- from an event loop -------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("strategy", BufferStrategy)
def test_aproduce_accepts_what_finds_room(strategy: BufferStrategy, way: dict[str, object]) -> None:
    """It is produce, for coroutines."""
    queue = Rig().queue(strategy=strategy, **way)

    async def main() -> list[bool]:
        return [await queue.aproduce(item) for item in ("a", "bb", "c")]

    assert asyncio.run(main()) == [True] * 3
    assert queue.stats().total_used == 3


def test_aproduce_refuses_and_evicts_like_produce() -> None:
    """The strategies that do not wait answer at once."""

    async def main(strategy: BufferStrategy) -> tuple[list[bool], DropCounts]:
        queue = Rig().queue(strategy=strategy, buffer_size=1)
        return [await queue.aproduce(item) for item in "ab"], queue.stats().dropped

    assert asyncio.run(main(IF_POSSIBLE)) == ([True, False], DropCounts(full=1))
    assert asyncio.run(main(DROP_OLDEST)) == ([True, True], DropCounts(evicted=1))


def test_aproduce_waits_for_room_without_blocking_the_loop() -> None:
    """Other coroutines run meanwhile, and all who wait get their turn."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    handler = listen(queue)

    async def main() -> list[bool]:
        await queue.aproduce("a")
        waiting = [asyncio.create_task(queue.aproduce(item)) for item in "bcd"]
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        while not all(task.done() for task in waiting):
            rig.drain()
            await asyncio.sleep(0)
        return [task.result() for task in waiting]

    assert asyncio.run(main()) == [True] * 3
    rig.drain()
    assert sorted(handler.items) == ["a", "b", "c", "d"]


def test_aproduce_that_is_cancelled_was_not_accepted() -> None:
    """Giving up the wait leaves nothing behind, and room made later is for others."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    handler = listen(queue)

    async def main() -> None:
        await queue.aproduce("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await queue.aproduce("given up")
        waiting = asyncio.create_task(queue.aproduce("b"))
        await asyncio.sleep(0)
        rig.drain()
        assert await waiting

    asyncio.run(main())
    rig.drain()
    assert handler.items == ["a", "b"]
    assert queue.stats().accepted == 2


def test_room_announced_to_a_cancelled_coroutine_does_no_harm() -> None:
    """The wait may be cancelled after room was made and before the coroutine runs again."""
    rig = Rig()
    queue = rig.queue(buffer_size=1)

    async def main() -> None:
        await queue.aproduce("a")
        waiting = asyncio.create_task(queue.aproduce("b"))
        await asyncio.sleep(0)
        waiting.cancel()
        rig.drain()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert queue.stats().accepted == 1


def test_room_for_a_loop_that_was_closed_is_announced_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Draining goes on when the loop of a coroutine that waited is gone."""
    caplog.set_level(logging.DEBUG, logger="penstock")
    rig = Rig()
    queue = rig.queue(buffer_size=1)
    handler = listen(queue)

    async def begin_to_wait() -> Coroutine[Any, Any, bool]:
        assert await queue.aproduce("a")
        waiting = queue.aproduce("b")
        waiting.send(None)
        return waiting

    waiting = asyncio.run(begin_to_wait())
    rig.drain()
    waiting.close()
    assert handler.items == ["a"]
    assert events(caplog) == ["queue.waiter_gone"]


def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    """However often coroutines give up, a queue that is stuck does not collect them."""
    queue = Rig().queue(buffer_size=1)

    async def main() -> None:
        await queue.aproduce("a")
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await queue.aproduce("b")

    asyncio.run(main())
    (part,) = queue._table.partitions
    assert not part.watchers


@WAYS
def test_aproduce_into_a_queue_that_was_shut_down_is_refused(way: dict[str, object]) -> None:
    """Like produce, it answers False."""
    queue = Rig().queue(**way)
    queue.shutdown()
    assert asyncio.run(queue.aproduce("a")) is False
    assert queue.stats().dropped == DropCounts(closed=1)


def test_a_shutdown_ends_the_wait_of_a_coroutine() -> None:
    """Who waits for room when the queue closes is refused."""
    queue = Rig().queue(buffer_size=1)

    async def main() -> bool:
        await queue.aproduce("a")
        waiting = asyncio.create_task(queue.aproduce("b"))
        await asyncio.sleep(0)
        queue.shutdown()
        return await waiting

    assert asyncio.run(main()) is False
    assert queue.stats().dropped.closed == 1


def test_aproduce_moves_on_with_its_type() -> None:
    """A partition that was replaced while a coroutine knew it is not used any more."""
    rig = Rig()
    queue = rig.queue(partitions=PartitionPolicy.adaptive())
    (kind,) = kinds(1, lambda number: number % 3 == 2)
    listen(queue, kind)
    queue.produce(kind())
    for other in kinds(2):
        queue.add_handler(other, print)
    rig.drain()
    assert asyncio.run(queue.aproduce(kind())) is True
    assert [part.used for part in queue.stats().partitions] == [0, 0, 1]


def test_none_is_not_an_item_for_coroutines_either() -> None:
    """It raises as produce does."""
    with pytest.raises(InvalidItemError):
        asyncio.run(Rig().queue().aproduce(None))
