"""How to test a handler without threads, without sleeping and without luck.

The manager gets a clock that only the test moves, and an executor that only runs a drain task
when the test says so. These are ordinary test functions; a runner would find them by name.
"""

from penstock import BatchQueue, BatchQueueConfig, BatchQueueManager, HandlerConsumer, ThreadPolicy
from penstock.clock import Clock
from penstock.testing import StepExecutor


class Writer(HandlerConsumer[str]):
    """The handler under test: writes once a minute, or when nothing more comes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written_at = clock.now()
        self._held: list[str] = []
        self.written: list[list[str]] = []

    def consume(self, batch: list[str]) -> None:
        """Hold lines back until the minute is over."""
        self._held += batch
        if self._clock.now() - self._written_at >= 60.0:
            self.on_idle()

    def on_idle(self) -> None:
        """Write what was held back."""
        if self._held:
            self.written.append(self._held)
            self._held = []
        self._written_at = self._clock.now()


def make_queue(*, max_idle: float) -> tuple[StepExecutor, Writer, BatchQueue[str]]:
    """Return everything that a test needs."""
    steps = StepExecutor()
    writer = Writer(steps.clock)
    queues = BatchQueueManager(clock=steps.clock, factory=steps)
    config = BatchQueueConfig[str](
        threads=ThreadPolicy.fixed(1), min_idle=max_idle, max_idle=max_idle, error_handler=fail
    )
    queue = queues.create("lines", config)
    queue.add_handler(str, writer)
    return steps, writer, queue


def fail(batch: list[str], error: BaseException) -> None:
    """Let an error in a handler end the test instead of being logged."""
    raise AssertionError(batch) from error


def test_lines_that_come_together_are_written_together() -> None:
    """Nothing runs before the test says so: both lines are in one batch."""
    steps, writer, queue = make_queue(max_idle=1.0)
    queue.produce("a")
    queue.produce("b")
    assert writer.written == []
    steps.run_until_idle()
    assert writer.written == []
    steps.advance(5.0)
    assert writer.written == [["a", "b"]]
    queue.shutdown()


def test_a_busy_minute_is_written_when_it_is_over() -> None:
    """Idle calls are far away here, so it is the minute that leads to the write."""
    steps, writer, queue = make_queue(max_idle=3600.0)
    queue.produce("early")
    steps.run_until_idle()
    steps.advance(60.0)
    queue.produce("late")
    steps.run_until_idle()
    assert writer.written == [["early", "late"]]
    queue.shutdown()


def test_shutdown_writes_what_was_held_back() -> None:
    """The last on_idle comes after the last item."""
    _, writer, queue = make_queue(max_idle=3600.0)
    queue.produce("last")
    report = queue.shutdown()
    assert report.complete
    assert writer.written == [["last"]]
    assert queue.produce("too late") is False
    assert queue.stats().dropped.closed == 1


if __name__ == "__main__":
    for test in (
        test_lines_that_come_together_are_written_together,
        test_a_busy_minute_is_written_when_it_is_over,
        test_shutdown_writes_what_was_held_back,
    ):
        test()
        print("passed:", test.__name__)
