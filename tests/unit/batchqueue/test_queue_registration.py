"""Handlers come, go and are replaced, and an adaptive queue grows with them."""

import pytest

from penstock import PartitionPolicy, ThreadPolicy
from penstock.errors import QueueClosedError, QueueModeError
from penstock.scheduling import Task, TaskState
from penstock.testing import RecordingHandler, StepExecutor
from tests.unit.rig import Rig, events, kinds

ADAPTIVE = PartitionPolicy.adaptive()


def ignore(_batch: list[object]) -> None:
    """Take a batch and do nothing."""


def test_a_handler_gets_what_came_before_it_was_there() -> None:
    """Items wait for their drain; what counts is who is registered then."""
    rig = Rig()
    queue = rig.queue()
    queue.produce("early")
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    rig.drain()
    assert handler.items == ["early"]


def test_a_handler_added_again_replaces_the_first() -> None:
    """Only the last handler of a type gets its items."""
    rig = Rig()
    queue = rig.queue()
    old, new = RecordingHandler[str](), RecordingHandler[str]()
    queue.add_handler(str, old)
    queue.produce("a")
    rig.drain()
    queue.add_handler(str, new)
    queue.produce("b")
    rig.drain()
    assert (old.items, new.items) == (["a"], ["b"])


def test_a_handler_of_two_types_outlives_the_loss_of_one() -> None:
    """Replacing it for one type leaves it in charge of the other, idle calls included."""
    rig = Rig()
    queue = rig.queue()
    both, other = RecordingHandler[object](), RecordingHandler[object]()
    queue.add_handler(str, both)
    queue.add_handler(int, both)
    queue.add_handler(str, other)
    queue.produce_many(["a", 1])
    rig.drain()
    assert (both.items, other.items) == ([1], ["a"])
    rig.steps.advance(10.0)
    assert both.idle_calls > 0
    assert [entry.handler for entry in queue._dispatch.idlers()] == [both, other]


def test_one_handler_object_has_one_entry() -> None:
    """Registered for many types, it is flushed once, as the one object it is."""
    rig = Rig()
    queue = rig.queue()
    handler = RecordingHandler[object]()
    for kind in (str, int, float):
        queue.add_handler(kind, handler)
    queue.shutdown()
    assert handler.idle_calls == 1


def test_a_handler_that_is_removed_gets_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    """Later items of its type are counted as drops, and partitions are kept."""
    rig = Rig()
    queue = rig.queue(partitions=ADAPTIVE)
    handler = RecordingHandler[str]()
    for kind in kinds(5):
        queue.add_handler(kind, ignore)
    queue.add_handler(str, handler)
    assert queue.remove_handler(str) is True
    assert queue.remove_handler(str) is False
    assert queue.stats().partition_count == 6
    queue.produce("late")
    rig.drain()
    assert handler.items == []
    assert queue.stats().dropped.no_handler == 1
    assert events(caplog) == ["queue.items_dropped"]


def test_a_handler_can_come_back() -> None:
    """Removing is not for good, and a later gap is reported anew."""
    rig = Rig()
    queue = rig.queue()
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    queue.remove_handler(str)
    queue.add_handler(str, handler)
    queue.produce("a")
    rig.drain()
    assert handler.items == ["a"]


def test_each_time_a_handler_goes_its_first_drop_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once per type is logged, but removing the handler starts that over."""
    rig = Rig()
    queue = rig.queue()
    for _ in range(2):
        queue.add_handler(str, ignore)
        queue.remove_handler(str)
        for _ in range(3):
            queue.produce("a")
            rig.drain()
    assert events(caplog) == ["queue.items_dropped"] * 2


def test_an_adaptive_queue_grows_with_its_handlers() -> None:
    """It begins with a partition per thread and has one per handler once there are more."""
    queue = Rig().queue(threads=ThreadPolicy.fixed(4), partitions=ADAPTIVE)
    counts = []
    for kind in kinds(6):
        queue.add_handler(kind, ignore)
        counts.append(queue.stats().partition_count)
    assert counts == [4, 4, 4, 4, 5, 6]
    assert [part.thread for part in queue.stats().partitions] == [0, 1, 2, 3, 0, 1]


def test_a_light_handler_counts_for_its_weight() -> None:
    """Twenty types of weight 0.05 share what one type of weight 1 has for itself."""
    queue = Rig().queue(partitions=ADAPTIVE)
    for kind in kinds(40):
        queue.add_handler(kind, ignore, weight=0.05)
    assert queue.stats().partition_count == 2
    queue.add_handler(str, ignore, weight=3)
    assert queue.stats().partition_count == 5


def test_a_handler_that_is_replaced_counts_once() -> None:
    """The weight is that of the last registration, not the sum of all."""
    queue = Rig().queue(partitions=ADAPTIVE)
    for _ in range(10):
        queue.add_handler(str, ignore)
    queue.add_handler(int, ignore)
    assert queue.stats().partition_count == 2
    queue.add_handler(str, ignore, weight=4)
    assert queue.stats().partition_count == 5


def test_a_queue_never_shrinks() -> None:
    """Removing handlers keeps the partitions; adding as many again adds none."""
    queue = Rig().queue(partitions=ADAPTIVE)
    several = kinds(5)
    for kind in several:
        queue.add_handler(kind, ignore)
    for kind in several:
        queue.remove_handler(kind)
    queue.add_handler(str, ignore)
    assert queue.stats().partition_count == 5


@pytest.mark.parametrize("policy", [PartitionPolicy.fixed(3), PartitionPolicy.thread_multiply(3)])
def test_other_policies_do_not_grow(policy: PartitionPolicy) -> None:
    """Only an adaptive queue looks at its handlers."""
    queue = Rig().queue(partitions=policy)
    for kind in kinds(10):
        queue.add_handler(kind, ignore)
    assert queue.stats().partition_count == 3


def test_on_a_shared_scheduler_growth_goes_by_one_thread() -> None:
    """Such a queue is one drain task, whatever the threads of the scheduler."""
    queue = Rig().queue(
        shared_scheduler=("io", ThreadPolicy.fixed(8)),
        partitions=PartitionPolicy.adaptive(multiplier=2),
    )
    assert queue.stats().partition_count == 1
    for kind in kinds(6):
        queue.add_handler(kind, ignore)
    assert queue.stats().partition_count == 4
    assert {part.thread for part in queue.stats().partitions} == {0}


def test_a_type_moves_to_its_new_place_once_nothing_of_it_waits() -> None:
    """After growth the old partition is replaced, and its counts go on."""
    rig = Rig()
    queue = rig.queue(partitions=ADAPTIVE)
    (kind,) = kinds(1, lambda number: number % 5 == 3)
    handler = RecordingHandler[object]()
    queue.add_handler(kind, handler)
    first, second, third = kind(), kind(), kind()
    queue.produce(first)
    for other in kinds(5, lambda number: number % 5 != 3)[:4]:
        queue.add_handler(other, ignore)
    queue.produce(second)
    assert [part.used for part in queue.stats().partitions] == [2, 0, 0, 0, 0]
    rig.drain()
    queue.produce(third)
    stats = queue.stats()
    assert [part.used for part in stats.partitions] == [0, 0, 0, 1, 0]
    assert (stats.partitions[0].drained, stats.accepted) == (2, 3)
    rig.drain()
    assert handler.items == [first, second, third]


def test_a_queue_with_a_consumer_takes_no_handlers() -> None:
    """The consumer gets everything, so a handler would never be called."""
    queue = Rig().queue(consumer=ignore)
    with pytest.raises(QueueModeError, match="queue 'q' has a single consumer"):
        queue.add_handler(str, ignore)
    with pytest.raises(QueueModeError, match="without consumer="):
        queue.remove_handler(str)


def test_a_queue_that_was_shut_down_takes_no_handlers() -> None:
    """Nothing would come to it any more."""
    queue = Rig().queue()
    queue.shutdown()
    with pytest.raises(QueueClosedError, match="queue 'q' was shut down"):
        queue.add_handler(str, ignore)


def test_a_sleeping_queue_notices_a_handler_with_idle_work() -> None:
    """Without one it sleeps for good; adding one has it come back when on_idle is due."""
    rig = Rig()
    queue = rig.queue()
    rig.drain()
    rig.steps.advance(3600.0)
    handler = RecordingHandler[str]()
    queue.add_handler(str, ignore)
    assert rig.steps.ready() == ()
    queue.add_handler(int, handler)
    rig.drain()
    assert handler.idle_calls == 1


def test_a_handler_added_while_the_drainer_parks_is_noticed() -> None:
    """Idle work that comes between a drainer's last look and its sleep is not forgotten."""
    handler = RecordingHandler[str]()

    class Late(StepExecutor):
        added = False

        def _settle(self, task: Task, delay: float | None) -> None:
            if not self.added:
                self.added = True
                assert (task.state, task.parked) == (TaskState.RUNNING, False)
                queue.add_handler(str, handler)
            super()._settle(task, delay)

    rig = Rig(Late())
    queue = rig.queue()
    rig.drain()
    rig.steps.advance(10.0)
    assert handler.idle_calls > 0


def test_idle_work_that_moves_with_its_type_is_not_forgotten() -> None:
    """When growth moves a type to another thread, that thread calls the handler's on_idle."""
    rig = Rig()
    queue = rig.queue(threads=ThreadPolicy.fixed(2), partitions=ADAPTIVE)
    (kind,) = kinds(1, lambda number: number % 2 == 0 and number % 5 in (1, 3))
    handler = RecordingHandler[object]()
    queue.add_handler(kind, handler)
    queue.produce(kind())
    rig.drain()
    queue.produce(kind())
    for other in (str, int, float, bytes):
        queue.add_handler(other, ignore)
    rig.steps.step(queue._drainers[1])  # it looks, and the handler is not its own yet
    rig.drain()  # the other one drains, and moves the type to it
    assert len(handler.items) == 2
    calls = handler.idle_calls
    rig.steps.advance(3600.0)
    assert handler.idle_calls > calls


def test_idle_work_that_moves_when_a_type_is_removed_is_not_forgotten() -> None:
    """A handler of two types that loses the first is looked after by the second's thread."""
    rig = Rig()
    queue = rig.queue(threads=ThreadPolicy.fixed(2), partitions=PartitionPolicy.fixed(2))
    first, second = kinds(1, lambda n: n % 2 == 0) + kinds(1, lambda n: n % 2 == 1)
    handler = RecordingHandler[object]()
    queue.add_handler(first, handler)
    queue.add_handler(second, handler)
    rig.steps.advance(10.0)
    queue.remove_handler(first)
    calls = handler.idle_calls
    rig.steps.advance(10.0)
    assert handler.idle_calls > calls
