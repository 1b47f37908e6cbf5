"""Your own rules: which partition an item goes to, and which thread drains a partition.

Urgent orders get partition 0, and after the first interval a thread that does nothing else.
Time and threads are stepped here (penstock.testing), so that every run shows the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock import (
    BatchQueueConfig,
    BatchQueueManager,
    DrainBalancer,
    PartitionPolicy,
    ThreadPolicy,
)
from penstock.testing import StepExecutor

EXPRESS = 0


@dataclass
class Order:
    """Something to be done, for somebody."""

    customer: int
    urgent: bool = False


def choose_partition(order: Order, partitions: int) -> int:
    """Return the express lane, or one of the others by customer, so that theirs stay in order."""
    return EXPRESS if order.urgent else 1 + order.customer % (partitions - 1)


class ExpressLane(DrainBalancer):
    """Leaves one thread to the express partition and spreads the rest over the others."""

    def assign(
        self, throughput: Sequence[int], owners: Sequence[int], threads: int
    ) -> Sequence[int] | None:
        """Return the thread of each partition."""
        print("  offered to each partition:", list(throughput), "drained by", list(owners))
        others = threads - 1
        return [0 if p == EXPRESS else 1 + p % others for p in range(len(throughput))]


steps = StepExecutor()
queues = BatchQueueManager(clock=steps.clock, factory=steps)
queue = queues.create(
    "orders",
    BatchQueueConfig[Order](
        threads=ThreadPolicy.fixed(3),
        partitions=PartitionPolicy.fixed(6),
        selector=choose_partition,
        balancer=ExpressLane(),
        rebalance_interval=10.0,
    ),
)
done: list[Order] = []
# One handler object is never entered twice at once, whatever the selector does.
queue.add_handler(Order, done.extend)


def owners_now() -> list[int | None]:
    """Return the thread of each partition."""
    return [partition.thread for partition in queue.stats().partitions]


steps.run_until_idle()
print("at the start, in turn:", owners_now())
assert owners_now() == [0, 1, 2, 0, 1, 2]

queue.produce_many([Order(customer) for customer in range(50)])
queue.produce(Order(7, urgent=True))
steps.advance(10.0)
print("after one interval:   ", owners_now())
assert owners_now() == [0, 2, 1, 2, 1, 2]

report = queue.shutdown()
stats = queue.stats()
print(f"{len(done)} orders done, {stats.partitions_moved} partitions moved")
assert report.complete
assert len(done) == 51
assert stats.partitions[EXPRESS].drained == 1
