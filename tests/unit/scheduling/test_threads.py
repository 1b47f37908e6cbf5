"""The threads that run tasks: one at a time each, woken when there is work, gone when closed."""

import logging
import math
import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.errors import SchedulerClosedError
from penstock.scheduling import Task, TaskState, ThreadScheduler
from penstock.testing import FakeClock, eventually
from tests.unit.rig import PATIENCE, await_event, events

Run = Callable[[], float | None]


class Script(Task):
    """A task that runs one function after the other, and after the last one only rests."""

    def __init__(self, *runs: Run) -> None:
        super().__init__()
        self.runs = list(runs)
        self.times = 0
        self.ran = threading.Semaphore(0)
        self.threads: list[threading.Thread] = []

    def run(self) -> float | None:
        """Run the next function of the script."""
        self.times += 1
        self.threads.append(threading.current_thread())
        try:
            return self.runs.pop(0)() if self.runs else math.inf
        finally:
            self.ran.release()

    def has_work(self) -> bool:
        """Say that there is nothing to do."""
        return False

    def await_runs(self, count: int = 1) -> None:
        """Wait until it has run *count* times more."""
        for _ in range(count):
            assert self.ran.acquire(timeout=PATIENCE), "the task was not run"


class Stop:
    """A run that tells when it is entered, and ends when it is let go."""

    def __init__(self, delay: float | None = math.inf) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.delay = delay

    def __call__(self) -> float | None:
        """Wait inside the run."""
        self.entered.set()
        await_event(self.go)
        return self.delay


@pytest.fixture
def clock() -> FakeClock:
    """Return the clock of the schedulers of this module."""
    return FakeClock()


@pytest.fixture
def make(clock: FakeClock) -> Iterator[Callable[..., ThreadScheduler]]:
    """Make schedulers that are closed when the test is over."""
    made: list[ThreadScheduler] = []

    def scheduler(threads: int = 1, name: str = "t") -> ThreadScheduler:
        made.append(ThreadScheduler(name, threads, clock))
        return made[-1]

    yield scheduler
    ended = [scheduler.close(PATIENCE) for scheduler in made]
    assert all(ended)


Make = Callable[..., ThreadScheduler]


# -- the numbered invariants ------------------------------------------------------------


def test_a_task_is_never_run_by_two_threads(make: Make) -> None:
    """S1: however often it is woken during a run, no second thread enters the task."""
    scheduler = make(threads=2)
    inside: list[int] = []
    stop = Stop()

    def run() -> float | None:
        inside.append(len(inside))
        delay = stop()
        inside.pop()
        return delay

    def run_again() -> float:
        assert inside == [], "a second thread entered the task"
        return math.inf

    task = Script(run, run_again)
    scheduler.attach(task)
    await_event(stop.entered)
    for _ in range(3):
        scheduler.wake(task)
    # Tasks are taken in the order in which they became ready: were the first one ready again,
    # the idle thread would have come by it before it came to this one.
    other = Script()
    scheduler.attach(other)
    other.await_runs()
    assert task.times == 1
    stop.go.set()
    task.await_runs(2)
    assert task.times == 2


def test_a_wake_during_a_run_leads_to_another_run(make: Make) -> None:
    """S2: who wakes a running task can count on a run that begins after the wake."""
    scheduler = make()
    stop = Stop()
    task = Script(stop)
    scheduler.attach(task)
    await_event(stop.entered)
    task.wake()
    assert task.state is TaskState.RERUN
    stop.go.set()
    task.await_runs(2)
    assert task.times == 2


def test_work_published_while_parking_is_found(make: Make, clock: FakeClock) -> None:
    """S2: work that came after the last look, but before `parked` was set, leads to a run."""

    class Late(Script):
        asked_while_parked: bool | None = None
        work = False

        def has_work(self) -> bool:
            if self.asked_while_parked is None:
                self.asked_while_parked = self.parked
            return self.work

    def publish() -> float:
        # What a producer does: the work first, the look at `parked` second. It is not parked
        # yet, so nobody wakes it.
        task.work = True
        assert not task.parked
        return math.inf

    def find() -> float:
        task.work = False
        return math.inf

    task = Late(publish, find)
    make().attach(task)
    task.await_runs(2)
    clock.await_sleepers(1)
    assert task.asked_while_parked is True
    assert task.times == 2


def test_close_ends_idle_threads(make: Make, clock: FakeClock) -> None:
    """S3: neither a thread without anything to wait for nor one with a timer outlasts close."""
    scheduler = make(threads=3)
    scheduler.attach(Script(lambda: 3600.0))
    clock.await_sleepers(3)
    assert scheduler.close(PATIENCE)
    assert not any(thread.is_alive() for thread in scheduler._threads)


def test_a_raising_task_does_not_end_its_thread(
    make: Make, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """S4: what a task raises is logged, and a second later the same thread runs it again."""

    def fail() -> float:
        raise SystemExit(3)

    task = Script(fail)
    make().attach(task)
    task.await_runs()
    clock.await_sleepers(1)
    assert events(caplog) == ["scheduler.task_failed"]
    assert caplog.records[0].exc_info is not None
    clock.advance(0.999)
    clock.await_sleepers(1)
    assert task.times == 1
    clock.advance(0.001)
    task.await_runs()
    assert task.threads[0] is task.threads[1]


@pytest.mark.parametrize("woken", [False, True])
def test_a_task_that_cannot_say_if_it_has_work_is_run_again_later(
    make: Make, clock: FakeClock, caplog: pytest.LogCaptureFixture, *, woken: bool
) -> None:
    """S4 holds for the question after the run as well, also if the task is woken meanwhile."""

    class Unsure(Script):
        def has_work(self) -> bool:
            if self.times == 1:
                if woken:
                    self.wake()
                raise SystemExit(3)
            return False

    task = Unsure()
    make().attach(task)
    task.await_runs()
    if not woken:
        clock.await_sleepers(1)
        clock.advance(1.0)
    task.await_runs()
    assert events(caplog) == ["scheduler.task_failed"]


def test_a_log_handler_that_raises_does_not_end_the_thread(make: Make, clock: FakeClock) -> None:
    """S4 holds even if the failure cannot be logged."""

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit(str(record))

    def fail() -> float:
        raise ValueError

    task, handler = Script(fail), Raising()
    logging.getLogger("penstock.scheduling").addHandler(handler)
    try:
        make().attach(task)
        task.await_runs()
        clock.await_sleepers(1)
    finally:
        logging.getLogger("penstock.scheduling").removeHandler(handler)
    clock.advance(1.0)
    task.await_runs()


# -- waking and timers --------------------------------------------------------------------


def test_a_task_attached_at_once_runs_by_itself(make: Make) -> None:
    """Attaching is enough to be run."""
    task = Script()
    make().attach(task)
    task.await_runs()


def test_a_task_attached_for_later_waits_to_be_woken(make: Make) -> None:
    """No thread is started before there is something to run."""
    scheduler = make()
    task = Script()
    scheduler.attach(task, at_once=False)
    assert (task.parked, task.state, task.times) == (True, TaskState.PARKED, 0)
    assert scheduler._threads == []
    task.wake()
    task.await_runs()


def test_a_task_without_a_scheduler_can_be_woken() -> None:
    """Waking a task that nobody runs yet does nothing."""
    task = Script()
    task.wake()
    assert task.state is TaskState.PARKED


def test_a_task_that_is_ready_is_not_made_ready_twice(make: Make) -> None:
    """Several wakes before a run lead to one run."""
    scheduler = make()
    stop, task = Stop(), Script()
    scheduler.attach(Script(stop))
    await_event(stop.entered)
    scheduler.attach(task)
    scheduler.wake(task)
    scheduler.wake(task)
    last = Script()
    scheduler.attach(last)
    stop.go.set()
    last.await_runs()
    assert task.times == 1


def test_a_delay_of_zero_means_at_once(make: Make) -> None:
    """A task that is not done runs again without anybody moving the clock."""
    task = Script(lambda: 0.0, lambda: -1.0)
    make().attach(task)
    task.await_runs(3)


def test_a_task_that_ended_is_never_run_again(make: Make) -> None:
    """None means that it is over, also for those who wake it later."""
    scheduler = make()
    task, other = Script(lambda: None), Script()
    scheduler.attach(task)
    task.await_runs()
    eventually(lambda: task.state is TaskState.ENDED)
    task.wake()
    scheduler.attach(other)
    other.await_runs()
    assert (task.times, task.state) == (1, TaskState.ENDED)


def test_timers_fire_in_the_order_of_their_time(make: Make, clock: FakeClock) -> None:
    """The task that is due first runs first, whoever asked first."""
    scheduler = make()
    order: list[str] = []

    def named(name: str, delay: float) -> Script:
        def note() -> float:
            order.append(name)
            return math.inf

        return Script(lambda: delay, note)

    tasks = [named("late", 2.0), named("soon", 1.0), named("latest", 3.0)]
    for task in tasks:
        scheduler.attach(task)
        task.await_runs()
        clock.await_sleepers(1)
    clock.advance(1.0)
    tasks[1].await_runs()
    assert order == ["soon"]
    clock.await_sleepers(1)
    clock.advance(2.0)
    tasks[0].await_runs()
    tasks[2].await_runs()
    assert order == ["soon", "late", "latest"]


def test_an_earlier_timer_shortens_the_wait_of_an_idle_thread(make: Make, clock: FakeClock) -> None:
    """A thread that waits for a late timer is told when an earlier one is set."""

    class Held(Script):
        asked = Stop()

        def has_work(self) -> bool:
            self.asked()  # so the thread that sets the timer is not the one to wait for it
            return False

    scheduler = make(threads=2)
    late, soon = Script(lambda: 100.0), Held(lambda: 1.0)
    scheduler.attach(late)
    late.await_runs()
    clock.await_sleepers(2)
    scheduler.attach(soon)
    await_event(soon.asked.entered)
    clock.advance(1.0)
    soon.await_runs(2)
    assert late.times == 1
    soon.asked.go.set()


def test_a_wake_makes_the_timer_void(make: Make, clock: FakeClock) -> None:
    """A task that was woken before its time does not run again when that time comes."""
    scheduler = make()
    task = Script(lambda: 5.0)
    scheduler.attach(task)
    task.await_runs()
    clock.await_sleepers(1)
    task.wake()
    task.await_runs()
    clock.await_sleepers(1)
    clock.advance(5.0)
    other = Script()
    scheduler.attach(other)
    other.await_runs()
    assert task.times == 2


def test_a_task_that_is_put_off_again_and_again_has_one_timer(make: Make, clock: FakeClock) -> None:
    """Waking it early does not pile up timers; it runs at the last time it asked for."""
    scheduler = make()
    task = Script(*(lambda: 5.0 for _ in range(4)))
    scheduler.attach(task)
    task.await_runs()
    for _ in range(3):
        clock.await_sleepers(1)
        clock.advance(1.0)
        task.wake()
        task.await_runs()
    clock.await_sleepers(1)
    assert len(scheduler._timers) == 1
    clock.advance(2.0)  # what it asked for first; it has asked for later since
    other = Script()
    scheduler.attach(other)
    other.await_runs()
    assert task.times == 4
    clock.await_sleepers(1)
    clock.advance(3.0)
    task.await_runs()
    assert task.times == 5


def test_a_shorter_delay_than_before_counts(make: Make, clock: FakeClock) -> None:
    """A task that asks to run sooner than before is run sooner; its old timer is void."""
    scheduler = make()
    task = Script(lambda: 5.0, lambda: 3.0, lambda: 10.0)
    scheduler.attach(task)
    task.await_runs()
    task.wake()
    task.await_runs()
    clock.await_sleepers(1)
    clock.advance(3.0)
    task.await_runs()
    clock.await_sleepers(1)
    clock.advance(2.0)
    other = Script()
    scheduler.attach(other)
    other.await_runs()
    assert task.times == 3
    assert [due for due, _, _ in scheduler._timers] == [clock.now() + 8.0]


def test_a_timer_that_falls_due_while_its_task_runs_is_void(make: Make, clock: FakeClock) -> None:
    """The task is at work already; what it answers then decides when it runs again."""
    scheduler = make(threads=2)
    stop = Stop()
    task = Script(lambda: 1.0, stop)
    scheduler.attach(task)
    task.await_runs()
    clock.await_sleepers(2)
    task.wake()
    await_event(stop.entered)
    clock.advance(1.0)
    other = Script()
    scheduler.attach(other)
    other.await_runs()
    assert task.times == 2
    stop.go.set()
    task.await_runs()
    clock.await_sleepers(2)
    assert task.times == 2


def test_a_timer_that_falls_due_while_a_thread_looks_is_not_waited_for() -> None:
    """Time goes on between two looks at the clock; a thread never waits for what is over."""

    class Ticking(FakeClock):
        def now(self) -> float:
            self._now += 0.6
            return self._now

    scheduler = ThreadScheduler("ticking", 1, Ticking())
    task = Script(lambda: 1.0)
    scheduler.attach(task)
    task.await_runs(2)
    assert scheduler.close(PATIENCE)


def test_more_tasks_than_threads_all_get_their_turn(make: Make) -> None:
    """Two threads run five tasks, each as often as it asks."""
    scheduler = make(threads=2)
    tasks = [Script(*(lambda: 0.0 for _ in range(10))) for _ in range(5)]
    for task in tasks:
        scheduler.attach(task)
    for task in tasks:
        task.await_runs(11)
    assert [task.times for task in tasks] == [11] * 5
    assert len({thread for task in tasks for thread in task.threads}) <= 2


# -- threads --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "names"),
    [(1, ["penstock-l1"]), (2, ["penstock-l1-0", "penstock-l1-1"])],
)
def test_threads_are_daemons_named_after_their_scheduler(
    make: Make, threads: int, names: list[str]
) -> None:
    """A thread dump says whose thread it is, with an index if there are several."""
    scheduler = make(threads=threads, name="l1")
    task = Script()
    scheduler.attach(task)
    task.await_runs()
    assert [thread.name for thread in scheduler._threads] == names
    assert all(thread.daemon for thread in scheduler._threads)


def test_the_repr_says_how_many_threads_run(make: Make) -> None:
    """Threads start with the first task."""
    scheduler = make(threads=2, name="io")
    assert repr(scheduler) == "<ThreadScheduler 'io', 0 of 2 threads>"
    task = Script()
    scheduler.attach(task)
    task.await_runs()
    assert repr(scheduler) == "<ThreadScheduler 'io', 2 of 2 threads>"


# -- closing --------------------------------------------------------------------------------


def test_a_closed_scheduler_takes_no_task(make: Make) -> None:
    """Attaching after close raises and names the scheduler."""
    scheduler = make(name="io")
    assert scheduler.close(0.0)
    with pytest.raises(SchedulerClosedError, match="scheduler 'io' is closed"):
        scheduler.attach(Script())


def test_what_is_ready_runs_before_the_threads_end(make: Make) -> None:
    """Closing drops timers, not tasks that were ready."""
    scheduler = make()
    stop, ready = Stop(), Script(lambda: 0.0, lambda: 7.0)
    scheduler.attach(Script(stop))
    await_event(stop.entered)
    scheduler.attach(ready)
    stop.go.set()
    assert scheduler.close(PATIENCE)
    assert ready.times == 2


def test_close_says_if_a_task_did_not_end_in_time(make: Make) -> None:
    """A stuck task makes close return False at its deadline; later it can be asked again."""
    scheduler = make()
    stop = Stop()
    scheduler.attach(Script(stop))
    await_event(stop.entered)
    assert not scheduler.close(0.0)
    stop.go.set()
    assert scheduler.close(PATIENCE)


def test_a_task_may_close_its_own_scheduler(make: Make) -> None:
    """Close does not wait for the thread it is called on."""
    scheduler = make()
    results: list[bool] = []

    def close() -> None:
        results.append(scheduler.close(PATIENCE))

    task = Script(close)
    scheduler.attach(task)
    task.await_runs()
    assert results == [True]


# -- without threads --------------------------------------------------------------------------


def _refuse(_thread: threading.Thread) -> None:
    msg = "can't create new thread at interpreter shutdown"
    raise RuntimeError(msg)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no thread start, as when the interpreter ends."""
    monkeypatch.setattr(threading.Thread, "start", _refuse)


@pytest.mark.usefixtures("no_threads")
def test_without_threads_help_runs_the_tasks_on_the_caller(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """What no thread can run, runs on the thread that asks, until nothing is ready."""
    scheduler = make()
    tasks = [Script(lambda: 0.0), Script(lambda: None)]
    for task in tasks:
        scheduler.attach(task)
    assert scheduler.help(lambda: False)
    assert not scheduler.help(lambda: False)
    assert [task.times for task in tasks] == [2, 1]
    assert tasks[0].threads == [threading.current_thread()] * 2
    assert set(events(caplog)) == {"scheduler.no_thread"}


@pytest.mark.usefixtures("no_threads")
def test_help_ends_when_the_caller_has_what_it_wants(make: Make) -> None:
    """Help asks before each task whether it is still needed."""
    scheduler = make()
    task = Script(*(lambda: 0.0 for _ in range(10)))
    scheduler.attach(task)
    scheduler.help(lambda: task.times == 3)
    assert task.times == 3


@pytest.mark.usefixtures("no_threads")
def test_help_runs_timers_that_are_due(make: Make, clock: FakeClock) -> None:
    """A timer whose time has come counts as ready."""
    scheduler = make()
    task = Script(lambda: 1.0)
    scheduler.attach(task)
    scheduler.help(lambda: False)
    scheduler.help(lambda: False)
    assert task.times == 1
    clock.advance(1.0)
    scheduler.help(lambda: False)
    assert task.times == 2


def test_help_leaves_tasks_to_the_threads_there_are(make: Make) -> None:
    """With a thread alive, the caller runs nothing itself."""
    scheduler = make()
    stop, task = Stop(), Script()
    scheduler.attach(Script(stop))
    await_event(stop.entered)
    scheduler.attach(task)
    assert not scheduler.help(lambda: False)
    assert task.times == 0
    stop.go.set()
    task.await_runs()


def test_a_thread_that_could_not_start_is_tried_again_at_the_next_wake(make: Make) -> None:
    """A task that is ready but has no thread counts as parked, so that producers wake it."""
    scheduler = make()
    task = Script()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        scheduler.attach(task)
    assert (task.state, task.parked) == (TaskState.READY, True)
    task.wake()
    task.await_runs()


def test_a_scheduler_knows_if_the_caller_is_its_only_thread(make: Make) -> None:
    """True for a task on a scheduler of one thread; not with two, and not from outside."""
    one, two = make(threads=1), make(threads=2)
    seen: list[bool] = []

    def look(scheduler: ThreadScheduler) -> Run:
        def run() -> float:
            seen.append(scheduler.has_only_this_thread())
            return math.inf

        return run

    for scheduler, asked in ((one, one), (two, two), (two, one)):
        task = Script(look(asked))
        scheduler.attach(task)
        task.await_runs()
    assert seen == [True, False, False]
    assert not one.has_only_this_thread()


# -- fork -----------------------------------------------------------------------------------


def test_after_a_fork_a_scheduler_is_empty_and_works(make: Make, clock: FakeClock) -> None:
    """The child forgets threads, ready tasks and timers, and starts threads on first use."""
    scheduler = make()
    scheduler._threads = [threading.Thread(name="only in the parent")]
    ready, timed, after = Script(), Script(), Script()
    scheduler.attach(ready)
    with scheduler._changed:
        scheduler._park(timed, 1.0)
    scheduler.renew_after_fork()
    assert repr(scheduler) == "<ThreadScheduler 't', 0 of 1 threads>"
    clock.advance(1.0)
    scheduler.attach(after)
    after.await_runs()
    clock.await_sleepers(1)
    assert (ready.times, timed.times) == (0, 0)


def test_a_scheduler_that_was_closed_stays_closed_after_a_fork(make: Make) -> None:
    """The child of a process does not reopen what its parent had closed."""
    scheduler = make()
    scheduler.close(0.0)
    scheduler.renew_after_fork()
    with pytest.raises(SchedulerClosedError):
        scheduler.attach(Script())
