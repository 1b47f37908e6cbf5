"""What a queue tells about itself, as values and through a queue's life."""

from dataclasses import FrozenInstanceError
from types import MappingProxyType
from typing import Any

import pytest

from penstock import BatchQueueStats, BufferStrategy, DrainReport, PartitionPolicy, ThreadPolicy
from penstock.batchqueue import DropCounts, PartitionStats, TypeStats
from penstock.batchqueue._snapshot import _partition
from penstock.testing import RecordingHandler
from tests.unit.rig import Rig, kinds


def partition(index: int, used: int, capacity: int = 10) -> PartitionStats:
    """Return a partition of which only the filling matters."""
    return PartitionStats(
        index=index,
        used=used,
        capacity=capacity,
        accepted=used,
        drained=0,
        dropped=DropCounts(full=3),
        thread=0,
    )


def snapshot(*used: int, **changed: object) -> BatchQueueStats:
    """Return the statistics of a queue whose partitions hold *used* items."""
    partitions = tuple(partition(index, items) for index, items in enumerate(used))
    values: dict[str, Any] = {
        "name": "q",
        "state": "running",
        "buffer_size": 10,
        "partitions": partitions,
        "types": MappingProxyType({}),
        "accepted": sum(used),
        "consumed": 0,
        "errors": 0,
        "failed": 0,
        "dropped": DropCounts(),
        "drained_by_thread": (0,),
        "load_ratio": None,
        "rebalances": 0,
        "partitions_moved": 0,
        "handovers_abandoned": 0,
    }
    return BatchQueueStats(**{**values, **changed})


def test_drops_add_up_by_when_they_happened() -> None:
    """Refused items were never accepted, lost ones were; both together are all."""
    drops = DropCounts(full=1, closed=2, evicted=4, no_handler=8, abandoned=16)
    assert (drops.refused, drops.lost, drops.total) == (3, 28, 31)
    assert DropCounts().total == 0


def test_a_partition_says_how_full_it_is_and_what_it_was_offered() -> None:
    """Usage is a percentage; what was offered includes what was refused."""
    part = partition(0, used=4, capacity=16)
    assert part.used_percentage == 25.0
    assert part.offered == 7


def test_the_queue_adds_its_partitions_up() -> None:
    """Capacity, usage and percentage are those of all partitions together."""
    stats = snapshot(1, 5, 0, 4)
    assert (stats.partition_count, stats.total_capacity, stats.total_used) == (4, 40, 10)
    assert stats.total_used_percentage == 25.0


def test_the_fullest_partitions_come_first() -> None:
    """Ties are broken by index; asking for more than there are gives all, for less none."""
    stats = snapshot(1, 5, 0, 5)
    assert [part.index for part in stats.top_n(3)] == [1, 3, 0]
    assert [part.index for part in stats.top_n(99)] == [1, 3, 0, 2]
    assert stats.top_n(0) == stats.top_n(-1) == ()


def test_in_flight_is_what_was_taken_out_but_not_handled_yet() -> None:
    """Accepted, minus waiting, consumed and lost; never below zero in a snapshot in motion."""
    lost = DropCounts(evicted=1, no_handler=1, full=100)
    assert snapshot(3, accepted=10, consumed=4, dropped=lost).in_flight == 1
    assert snapshot(3, accepted=3, consumed=4).in_flight == 0


def test_statistics_do_not_change() -> None:
    """A snapshot is frozen, its types included."""
    rig = Rig()
    queue = rig.queue()
    queue.produce("a")
    before = queue.stats()
    queue.produce("b")
    assert before.total_used == 1
    with pytest.raises(FrozenInstanceError):
        before.consumed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        before.types[str] = TypeStats()  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "complete"),
    [
        ({}, True),
        ({"consumed": 3}, True),
        ({"undelivered": ("x",)}, False),
        ({"in_handlers": 1}, False),
        ({"unflushed": ("handler",)}, False),
        ({"finished": False}, False),
    ],
)
def test_a_report_is_complete_if_nothing_is_left(
    changed: dict[str, Any],
    complete: bool,  # noqa: FBT001 - a column
) -> None:
    """All consumed, all flushed, and over."""
    values: dict[str, Any] = {
        "queue": "q",
        "consumed": 0,
        "undelivered": (),
        "in_handlers": 0,
        "unflushed": (),
        "elapsed": 0.0,
        "finished": True,
    }
    assert DrainReport(**{**values, **changed}).complete is complete


# -- through a queue's life -----------------------------------------------------------------


def test_a_new_queue_has_nothing_to_tell() -> None:
    """All counts begin at zero; the partitions and their threads are there."""
    stats = Rig().queue("metrics.l1", partitions=PartitionPolicy.fixed(2), buffer_size=5).stats()
    assert (stats.name, stats.state, stats.buffer_size) == ("metrics.l1", "running", 5)
    assert (stats.accepted, stats.consumed, stats.errors, stats.failed) == (0, 0, 0, 0)
    assert stats.dropped == DropCounts()
    assert stats.types == {}
    assert [part.thread for part in stats.partitions] == [0, 0]
    assert (stats.load_ratio, stats.rebalances, stats.partitions_moved) == (None, 0, 0)


def test_every_item_is_found_in_one_count() -> None:
    """Waiting, consumed, failed, evicted or without handler: per queue, partition and type."""
    rig = Rig()
    queue = rig.queue(
        error_handler=lambda _batch, _error: None,
        strategy=BufferStrategy.DROP_OLDEST,
        buffer_size=4,
    )
    queue.add_handler(str, RecordingHandler())
    queue.add_handler(int, RecordingHandler(fail=ValueError()))
    for item in ("evicted", "a", 1, 2, 3.5):
        queue.produce(item)
    rig.drain()
    queue.produce_many(["b", "c"])
    stats = queue.stats()
    assert dict(stats.types) == {
        str: TypeStats(accepted=4, consumed=1, waiting=2, dropped=DropCounts(evicted=1)),
        int: TypeStats(accepted=2, consumed=2, errors=1, failed=2),
        float: TypeStats(accepted=1, dropped=DropCounts(no_handler=1)),
    }
    (part,) = stats.partitions
    assert (part.used, part.accepted, part.drained) == (2, 7, 4)
    assert part.dropped == DropCounts(evicted=1)
    assert (stats.accepted, stats.consumed, stats.errors, stats.failed) == (7, 3, 1, 2)
    assert stats.dropped == DropCounts(evicted=1, no_handler=1)
    assert stats.drained_by_thread == (4,)
    assert stats.in_flight == 0


def test_refused_items_count_by_cause_and_type() -> None:
    """A full partition and a queue that was shut down are two causes."""
    rig = Rig()
    queue = rig.queue(strategy=BufferStrategy.IF_POSSIBLE, buffer_size=1)
    queue.add_handler(str, RecordingHandler())
    for item in ("in", "full", "full"):
        queue.produce(item)
    queue.shutdown()
    queue.produce("closed")
    stats = queue.stats()
    drops = DropCounts(full=2, closed=1)
    assert stats.dropped == drops
    assert stats.types[str] == TypeStats(accepted=1, consumed=1, dropped=drops)
    assert stats.partitions[0].dropped == DropCounts(full=2)
    assert stats.partitions[0].offered == 3
    assert stats.state == "closed"
    assert stats.partitions[0].thread is None


def test_a_handler_at_work_is_in_flight() -> None:
    """Asked from inside a handler, the queue counts that batch as in flight."""
    rig = Rig()
    queue = rig.queue()
    seen: list[int] = []
    queue.add_handler(str, lambda _batch: seen.append(queue.stats().in_flight))
    queue.produce_many(["a", "b"])
    rig.drain()
    assert seen == [2]


def test_types_that_share_a_partition_are_told_apart() -> None:
    """What waits is counted per type, also where several types wait together."""
    queue = Rig().queue()
    queue.produce_many(["a", "b", 1])
    assert {kind: one.waiting for kind, one in queue.stats().types.items()} == {str: 2, int: 1}


def test_a_consumer_queue_does_not_look_at_types() -> None:
    """Its totals are there, its types are empty."""
    rig = Rig()
    queue = rig.queue(consumer=RecordingHandler())
    queue.produce_many(["a", 1])
    rig.drain()
    stats = queue.stats()
    assert (stats.consumed, dict(stats.types)) == (2, {})


def test_each_partition_names_its_thread() -> None:
    """Placement goes round the threads; what each drained is counted by thread."""
    rig = Rig()
    queue = rig.queue(threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(4))
    (third,) = kinds(1, lambda number: number % 4 == 3)
    queue.add_handler(third, RecordingHandler())
    queue.produce(third())
    rig.drain()
    stats = queue.stats()
    assert [part.thread for part in stats.partitions] == [0, 1, 0, 1]
    assert stats.drained_by_thread == (0, 1)


def test_a_partition_of_another_queue_has_no_thread_here() -> None:
    """Only a queue's own drainers have an index in its statistics."""
    first, second = Rig().queue("a"), Rig().queue("b")
    (part,) = first._table.partitions
    assert _partition(part, second._drainers).thread is None
