"""A queue that collects page views and hands them over in batches."""

from dataclasses import dataclass

from penstock import BatchQueueConfig, BatchQueueManager, ThreadPolicy


@dataclass
class PageView:
    """Somebody looked at a page."""

    path: str
    seconds: float


views_by_path: dict[str, int] = {}


def count_views(batch: list[PageView]) -> None:
    """Handle one batch; never runs on two threads at once, so it needs no lock."""
    for view in batch:
        views_by_path[view.path] = views_by_path.get(view.path, 0) + 1


with BatchQueueManager() as queues:
    queue = queues.create("views", BatchQueueConfig[PageView](threads=ThreadPolicy.fixed(1)))
    queue.add_handler(PageView, count_views)
    for number in range(10_000):
        queue.produce(PageView(path=f"/page/{number % 3}", seconds=0.1))

# Leaving the block drained the queue, so everything has been counted.
print(views_by_path)
assert views_by_path == {"/page/0": 3334, "/page/1": 3333, "/page/2": 3333}
