"""One bounded FIFO: what it holds, what it counts, and taking an item back."""

from penstock.batchqueue._partition import CLOSED, MOVING, RETIRED, Partition


def make(*items: object, capacity: int = 4) -> Partition[object]:
    """Return a partition that holds *items*, and that nobody drains."""
    part: Partition[object] = Partition(0, capacity, MOVING)
    part.buffer.extend(items)
    return part


def test_an_item_that_is_taken_back_is_the_very_object() -> None:
    """Equal is not enough, and the other items keep their order."""
    mine, others = [1], ([1], [1])
    part = make(others[0], mine, others[1])
    assert part.withdraw(mine)
    assert len(part.buffer) == 2
    assert part.buffer[0] is others[0]
    assert part.buffer[1] is others[1]


def test_an_item_that_is_gone_cannot_be_taken_back() -> None:
    """Somebody else has it."""
    part = make([1], [2])
    assert not part.withdraw([1])
    assert part.used == 2


def test_an_evicted_item_cannot_be_taken_back() -> None:
    """It was counted as lost already."""
    mine = [1]
    part = make(mine, [2], [3])
    with part.lock:
        assert part.evict(1) == [mine]
    assert not part.withdraw(mine)
    assert (part.used, part.limit, part.dead) == (2, 5, 1)


def test_what_was_taken_waits_no_more() -> None:
    """Taking empties the partition, evicted slots included, and counts what was there."""
    part = make("a", "b", "c")
    with part.lock:
        part.evict(1)
    assert not part.is_empty()
    assert part.take() == (None, ["b", "c"])
    assert part.is_empty()
    assert (part.buffer, part.dead, part.limit, part.drained) == ([], 0, 4, 2)
    assert part.offered == 3


def test_a_successor_goes_on_counting() -> None:
    """What replaces a partition is empty, but offered what the old one was offered."""
    part = make("a", "b", capacity=2)
    part.take()
    with part.lock:
        part.refuse(["c"])
        fresh = part.successor()
    assert (fresh.used, fresh.offered, fresh.capacity, fresh.index) == (0, 3, 2, 0)
    assert fresh.owner is part.keeper


def test_room_is_announced_to_each_watcher_once() -> None:
    """Who wants to know again has to ask again; who gave up is not told."""
    part = make("a", capacity=1)
    told: list[str] = []

    def first() -> None:
        told.append("first")

    def second() -> None:
        told.append("second")

    part.watchers = [first, second]
    part.unwatch(first)
    part.unwatch(first)
    part.take()
    part.take()
    part.unwatch(second)
    assert told == ["second"]


def test_the_stand_ins_of_an_owner_do_nothing_when_woken() -> None:
    """Nobody is there; the two that are gone for good send producers the slow way."""
    for nobody in (MOVING, RETIRED, CLOSED):
        nobody.wake()
    assert [nobody.parked for nobody in (MOVING, RETIRED, CLOSED)] == [False, True, True]
