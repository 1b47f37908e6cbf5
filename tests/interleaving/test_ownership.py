"""Partitions change hands without ever being shared or left behind."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import BatchQueue, BatchQueueConfig, DrainBalancer, PartitionPolicy, ThreadPolicy
from penstock.batchqueue._ownership import OwnershipTable
from penstock.batchqueue._partition import CLOSED, MOVING, RETIRED, Nobody, Partition
from penstock.testing import FakeClock, RecordingHandler, eventually
from tests.interleaving.forcing import WAIT, Gate, GatedHandler, Stepped, running, types_for

INTERVAL = 10.0


class Idle(Nobody):
    """Someone who owns partitions and counts how often he is woken."""

    def __init__(self, name: str) -> None:
        super().__init__(name, parked=False)
        self.woken = 0

    def wake(self) -> None:
        """Count."""
        self.woken += 1


@pytest.fixture
def clock() -> FakeClock:
    """A clock that the test moves."""
    return FakeClock()


@pytest.fixture
def two() -> tuple[Idle, Idle]:
    """Two owners."""
    return Idle("first"), Idle("second")


@pytest.fixture
def table(clock: FakeClock, two: tuple[Idle, Idle]) -> OwnershipTable[Any]:
    """Four partitions, two for each of them."""
    table = OwnershipTable[Any](10, two, clock)
    table.grow(4)
    return table


def owned(table: OwnershipTable[Any], drainer: Idle) -> set[int]:
    """The partitions that *drainer* may touch."""
    return {part.index for part in table.owned_by(drainer)[1]}


def test_partitions_start_in_turn(table: OwnershipTable[Any], two: tuple[Idle, Idle]) -> None:
    """Partition p begins with drainer p % n."""
    assert table.owners() == [0, 1, 0, 1]
    assert owned(table, two[0]) == {0, 2}


def test_an_idle_owner_gives_up_at_once(table: OwnershipTable[Any], two: tuple[Idle, Idle]) -> None:
    """A drainer between cycles is not waited for, and the new owner is woken."""
    assert table.hand_over({0: 1}, timeout=0) == 1
    assert owned(table, two[1]) == {0, 1, 3}
    assert two[1].woken == 1


def test_a_busy_owner_keeps_its_partition_when_time_is_up(
    table: OwnershipTable[Any], two: tuple[Idle, Idle]
) -> None:
    """If the old owner does not leave its cycle in time, everything goes back, and it is woken."""
    table.enter(two[0])
    assert table.hand_over({0: 1, 1: 0}, timeout=0) == 0
    assert table.owners() == [0, 1, 0, 1]
    assert (two[0].woken, two[1].woken) == (1, 1)
    table.leave(two[0])


def test_the_deadline_of_a_hand_over_is_kept_by_the_clock(
    table: OwnershipTable[Any], two: tuple[Idle, Idle], clock: FakeClock
) -> None:
    """A hand-over that waits ends when its time has passed."""
    moved: list[int] = []
    table.enter(two[0])
    with running(lambda: moved.append(table.hand_over({0: 1}, timeout=5))):
        clock.await_sleepers(1)
        assert table.owners() == [-1, 1, 0, 1]
        clock.advance(5)
    assert moved == [0]
    assert table.owners() == [0, 1, 0, 1]
    table.leave(two[0])


def test_the_new_owner_waits_for_the_interrupted_cycle(
    table: OwnershipTable[Any], two: tuple[Idle, Idle], clock: FakeClock
) -> None:
    """Nobody has the partition until the old owner ends that cycle; a later one may go on."""
    table.enter(two[0])
    with running(lambda: table.hand_over({0: 1}, timeout=60)) as mover:
        clock.await_sleepers(1)
        assert owned(table, two[1]) == {1, 3}
        table.leave(two[0])
        table.enter(two[0])
        mover.join(WAIT)
        assert owned(table, two[1]) == {0, 1, 3}
    table.leave(two[0])


def test_all_old_owners_are_waited_for_together(
    table: OwnershipTable[Any], two: tuple[Idle, Idle], clock: FakeClock
) -> None:
    """Revoke all, wait for all, assign all: nothing is assigned before the last has left."""
    table.enter(two[0])
    table.enter(two[1])
    with running(lambda: table.hand_over({0: 1, 1: 0}, timeout=60)):
        clock.await_sleepers(1)
        assert table.owners() == [-1, -1, 0, 1]
        table.leave(two[0])
        assert table.owners() == [-1, -1, 0, 1]
        table.leave(two[1])
    assert table.owners() == [1, 0, 0, 1]


def test_closing_ends_a_hand_over_and_gives_everything_back(
    table: OwnershipTable[Any], two: tuple[Idle, Idle], clock: FakeClock
) -> None:
    """A shutdown does not wait for a fence."""
    moved: list[int] = []
    table.enter(two[0])
    with running(lambda: moved.append(table.hand_over({0: 1}, timeout=60))):
        clock.await_sleepers(1)
        table.close()
        assert table.owners() == [0, 1, 0, 1]
    assert moved == [0]
    assert table.hand_over({1: 0}, timeout=0) == 0
    table.leave(two[0])


def test_growth_during_the_fence_strands_nothing(
    table: OwnershipTable[Any], two: tuple[Idle, Idle], clock: FakeClock
) -> None:
    """Partitions added while others change hands get an owner, and so do the moved ones."""
    table.enter(two[0])
    with running(lambda: table.hand_over({0: 1, 2: 1}, timeout=60)):
        clock.await_sleepers(1)
        table.grow(6)
        assert table.owners() == [-1, 1, -1, 1, 0, 1]
        table.leave(two[0])
    assert table.owners() == [1, 1, 1, 1, 0, 1]


def test_growth_after_a_rebalance_strands_nothing() -> None:
    """After partitions have moved, growth leaves each with the one that drains it."""
    stepped = Stepped(
        BatchQueueConfig(
            threads=ThreadPolicy.fixed(2),
            partitions=PartitionPolicy.adaptive(),
            balancer=DrainBalancer.throughput_weighted(),
            rebalance_interval=INTERVAL,
        )
    )
    kinds = types_for(0, 1, 2, 3, count=4)
    handlers = {kind: RecordingHandler[Any]() for kind in kinds}
    for kind, handler in handlers.items():
        stepped.queue.add_handler(kind, handler)
    stepped.settle()
    for kind, load in zip(kinds, (90, 10, 80, 10), strict=True):
        stepped.queue.produce_many([kind() for _ in range(load)])
    stepped.steps.advance(INTERVAL)
    moved = stepped.owners()
    assert stepped.queue.stats().rebalances == 1
    assert moved != [0, 1, 0, 1]
    grown = types_for(4, count=5)[0]
    handlers[grown] = RecordingHandler[Any]()
    stepped.queue.add_handler(grown, handlers[grown])
    assert len(stepped.owners()) == 5
    assert -1 not in stepped.owners()
    before = {kind: len(handler.items) for kind, handler in handlers.items()}
    for kind in handlers:
        assert stepped.queue.produce_many([kind(), kind()]) == 2
    stepped.settle()
    assert all(len(h.items) == before[k] + 2 for k, h in handlers.items())
    stepped.close()


def test_a_cycle_sees_what_it_owned_on_entry() -> None:
    """A drainer inside a cycle keeps to its partitions; what it gains comes with the next one."""
    stepped = Stepped(
        BatchQueueConfig(threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2))
    )
    left, right = types_for(0, 1, count=2)
    gate = Gate()
    first, second = GatedHandler(gate), RecordingHandler[Any]()
    stepped.queue.add_handler(left, first)
    stepped.queue.add_handler(right, second)
    stepped.queue.produce(left())
    with running(lambda: stepped.step(0)):
        gate.await_arrival()
        assert stepped.queue._table.hand_over({1: 0}, timeout=0) == 1  # its owner is idle
        stepped.queue.produce(right())
        stepped.step(1)
        assert second.items == []  # no longer the second drainer's, not yet the first one's
        gate.open()
    stepped.settle()
    assert len(second.items) == 1
    stepped.close()


def test_a_partition_with_items_is_not_retired(
    table: OwnershipTable[Any], two: tuple[Idle, Idle]
) -> None:
    """Only an empty partition of one's own is replaced, at the same place, with its counts."""
    part = table.partitions[0]
    part.buffer.append("x")
    assert not table.retire(part, two[0])
    assert not table.retire(table.partitions[2], two[1])
    assert part.take() == (None, ["x"])
    assert table.retire(part, two[0])
    fresh = table.partitions[0]
    assert fresh is not part
    assert (fresh.index, fresh.owner, fresh.offered) == (0, two[0], 1)


class AppendsUnseen(list[Any]):
    """A buffer to which an item is added right after it was looked at."""

    def __init__(self, part: Partition[Any]) -> None:
        super().__init__()
        self.part = part
        self.owner_read: object = None

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - as list has it
        """Answer, then do what a producer does: append, and read the owner."""
        found = super().__getitem__(key)
        self.append("late")
        self.owner_read = self.part.owner
        return found


@pytest.mark.parametrize("stand_in", [RETIRED, CLOSED])
def test_who_appends_unseen_sees_that_the_owner_is_gone(
    table: OwnershipTable[Any], two: tuple[Idle, Idle], stand_in: Nobody
) -> None:
    """The owner goes first and the look comes second, so one of the two sides notices."""
    part = table.partitions[0]
    buffer = part.buffer = AppendsUnseen(part)
    assert table.retire(part, two[0]) if stand_in is RETIRED else table.seal(two[0])
    assert buffer.owner_read is stand_in


def test_a_partition_that_changes_hands_is_not_retired(
    table: OwnershipTable[Any], two: tuple[Idle, Idle], clock: FakeClock
) -> None:
    """The old owner cannot replace what has been revoked from it."""
    part = table.partitions[0]
    table.enter(two[0])
    with running(lambda: table.hand_over({0: 1}, timeout=60)):
        clock.await_sleepers(1)
        assert part.owner is MOVING
        assert not table.retire(part, two[0])
        table.leave(two[0])
    assert table.partitions[0].owner is two[1]


def test_a_saturated_drainer_does_not_hold_up_a_rebalance() -> None:
    """A drainer that never finds its partitions empty still ends its cycles, so the fence falls."""
    clock = FakeClock()
    config = BatchQueueConfig[Any](
        threads=ThreadPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(4),
        balancer=DrainBalancer.throughput_weighted(),
        rebalance_interval=INTERVAL,
        handover_timeout=3600.0,
    )
    queue = BatchQueue[Any]("q", config, clock=clock)
    hot, cold = types_for(0, 2, count=4)  # both with the first drainer
    consumed: list[Any] = []

    def refill(batch: list[Any]) -> None:
        if queue.is_running:
            queue.produce_many(batch)  # never empty

    queue.add_handler(hot, refill)
    queue.add_handler(cold, consumed.extend)
    queue.produce_many([hot() for _ in range(50)])
    queue.produce_many([cold() for _ in range(40)])
    eventually(lambda: len(consumed) == 40)
    clock.await_sleepers(1, within=INTERVAL)  # the rebalancer; the other drainer waits for items
    clock.advance(INTERVAL)
    eventually(lambda: queue.stats().rebalances == 1)
    thread = {p.index: p.thread for p in queue.stats().partitions}
    assert thread[0] != thread[2]
    queue.produce(cold())
    eventually(lambda: len(consumed) == 41)
    assert queue.shutdown(60).finished


def test_a_slow_handler_makes_a_rebalance_roll_back() -> None:
    """Past its deadline a rebalance is undone, counted, and the queue goes on."""
    stepped = Stepped(
        BatchQueueConfig(
            threads=ThreadPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(4),
            balancer=DrainBalancer.throughput_weighted(),
            rebalance_interval=INTERVAL,
            handover_timeout=0.0,
        )
    )
    hot, cold = types_for(0, 2, count=4)
    gate = Gate()
    slow, other = GatedHandler(gate), RecordingHandler[Any]()
    stepped.queue.add_handler(hot, slow)
    stepped.queue.add_handler(cold, other)
    stepped.settle()
    stepped.queue.produce_many([hot(), hot(), hot()])
    stepped.queue.produce_many([cold(), cold()])
    with running(lambda: stepped.step(0)):
        gate.await_arrival()
        stepped.clock.advance(INTERVAL)
        assert stepped.queue._rebalancer is not None
        assert stepped.steps.step(stepped.queue._rebalancer)
        assert stepped.owners() == [0, 1, 0, 1]
        gate.open()
    assert stepped.queue.stats().handovers_abandoned == 1
    stepped.settle()
    assert (len(slow.items), len(other.items)) == (3, 2)
    stepped.close()
