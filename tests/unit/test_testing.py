"""The tools that penstock gives to tests, its users' included, and the examples in its docs."""

import doctest
import importlib
import math
import pkgutil
import threading

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.scheduling import Task, TaskState
from penstock.testing import FakeClock, RecordingHandler, StepExecutor, eventually
from tests.unit.rig import PATIENCE, Rig, in_background


class Counting(Task):
    """A task that counts its runs and answers with a fixed delay, then rests."""

    def __init__(self, *delays: float | None) -> None:
        super().__init__()
        self.delays = list(delays)
        self.runs = 0
        self.work = False

    def run(self) -> float | None:
        """Count."""
        self.runs += 1
        return self.delays.pop(0) if self.delays else math.inf

    def has_work(self) -> bool:
        """Say whether there is work, once."""
        work, self.work = self.work, False
        return work


# -- doctests -----------------------------------------------------------------------------------


def documented() -> list[str]:
    """Return the modules of penstock that show examples."""
    names = (module.name for module in pkgutil.walk_packages(penstock.__path__, "penstock."))
    finder = doctest.DocTestFinder()
    return [
        name
        for name in names
        if not name.startswith(("penstock.bench", "penstock.cli"))
        and any(test.examples for test in finder.find(importlib.import_module(name)))
    ]


@pytest.mark.parametrize("name", documented())
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    """What a docstring shows is what happens."""
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_there_are_examples() -> None:
    """The search for them finds those that are known to be there."""
    assert {
        "penstock.testing",
        "penstock.scheduling.policy",
        "penstock.batchqueue.policies",
        "penstock.batchqueue.balancing",
        "penstock.batchqueue._drainer",
    } <= set(documented())


def test_everything_that_is_exported_is_there() -> None:
    """The names of __all__ exist, in every module that has one."""
    names = ["penstock", *(m.name for m in pkgutil.walk_packages(penstock.__path__, "penstock."))]
    for name in names:
        if name.startswith(("penstock.bench", "penstock.cli")):
            continue
        module = importlib.import_module(name)
        for exported in getattr(module, "__all__", ()):
            assert hasattr(module, exported), f"{name}.{exported}"
    assert issubclass(PenstockError, Exception)


# -- FakeClock ----------------------------------------------------------------------------------


def test_a_fake_clock_stands_still_until_it_is_moved() -> None:
    """Time is what the test says it is."""
    clock = FakeClock(start=10.0)
    assert (clock.now(), clock.now()) == (10.0, 10.0)
    clock.advance(2.5)
    assert clock.now() == 12.5


def test_a_sleeper_wakes_when_its_time_has_come() -> None:
    """Not before; and the wait then says that the time was over."""
    clock, condition = FakeClock(), threading.Condition()

    def sleep() -> bool:
        with condition:
            return clock.wait(condition, 2.0)

    sleeping = in_background(sleep)
    clock.await_sleepers(1)
    clock.advance(1.9)
    assert not sleeping.done()
    clock.advance(0.2)
    assert sleeping.result(PATIENCE) is False


def test_a_sleeper_wakes_when_it_is_notified() -> None:
    """The wait then says that the time was not over."""
    clock, condition = FakeClock(), threading.Condition()

    def sleep() -> bool:
        with condition:
            return clock.wait(condition, None)

    sleeping = in_background(sleep)
    clock.await_sleepers(1)
    clock.advance(1e9)
    with condition:
        condition.notify()
    assert sleeping.result(PATIENCE) is True


def test_a_wait_whose_time_has_come_does_not_sleep() -> None:
    """Zero seconds are over at once."""
    clock, condition = FakeClock(), threading.Condition()
    with condition:
        assert clock.wait(condition, 0.0) is False


def test_awaiting_sleepers_that_do_not_come_fails() -> None:
    """The message says how many there are."""
    with pytest.raises(AssertionError, match=r"0 threads wait, not 2, after 0.01 s"):
        FakeClock().await_sleepers(2, timeout=0.01)


# -- StepExecutor -------------------------------------------------------------------------------


def test_nothing_runs_before_it_is_stepped() -> None:
    """A task that is ready waits for the test."""
    steps, task = StepExecutor(), Counting()
    steps.attach(task)
    assert (steps.ready(), task.runs) == ((task,), 0)
    assert steps.step() is True
    assert (steps.ready(), task.runs) == ((), 1)
    assert steps.step() is False


def test_a_task_attached_for_later_is_not_ready() -> None:
    """It waits to be woken."""
    steps, task = StepExecutor(), Counting()
    steps.attach(task, at_once=False)
    assert steps.ready() == ()
    task.wake()
    task.wake()
    assert steps.ready() == (task,)


def test_the_test_chooses_who_is_next() -> None:
    """Any ready task can be stepped, in any order; one that is not ready cannot."""
    steps, first, second = StepExecutor(), Counting(), Counting()
    steps.attach(first)
    steps.attach(second)
    assert steps.step(second)
    assert not steps.step(second)
    assert (first.runs, second.runs) == (0, 1)
    assert steps.ready() == (first,)


def test_run_until_idle_counts_its_steps() -> None:
    """Tasks that want to go on at once do; timers wait for the clock."""
    steps, task = StepExecutor(), Counting(0.0, -1.0, 5.0)
    steps.attach(task)
    assert steps.run_until_idle() == 3
    assert task.parked


def test_run_until_idle_gives_up_on_a_task_without_end() -> None:
    """A test does not hang on a task that always wants to go on."""
    steps, task = StepExecutor(), Counting(*[0.0] * 100)
    steps.attach(task)
    with pytest.raises(AssertionError, match="still busy after 10 steps"):
        steps.run_until_idle(limit=10)


def test_a_wake_during_a_run_leads_to_another_step() -> None:
    """As with threads, no wake-up is lost."""

    class Waking(Counting):
        def run(self) -> float | None:
            if not self.runs:
                self.wake()
                assert self.state is TaskState.RERUN
            return super().run()

    steps, task = StepExecutor(), Waking()
    steps.attach(task)
    assert steps.run_until_idle() == 2


def test_work_that_came_while_parking_leads_to_another_step() -> None:
    """has_work is asked after the task was parked."""
    steps, task = StepExecutor(), Counting()
    task.work = True
    steps.attach(task)
    assert steps.run_until_idle() == 2


def test_a_task_that_ended_is_not_stepped_again() -> None:
    """Waking it changes nothing."""
    steps, task = StepExecutor(), Counting(None)
    steps.attach(task)
    steps.run_until_idle()
    task.wake()
    assert (steps.ready(), task.state) == ((), TaskState.ENDED)


def test_advance_runs_what_falls_due_on_the_way() -> None:
    """Each at its own time, in order, and the clock ends where it was sent."""
    steps = StepExecutor(FakeClock(start=0.0))
    seen: list[tuple[str, float]] = []

    class Noting(Counting):
        def __init__(self, name: str, *delays: float) -> None:
            super().__init__(*delays)
            self.name = name

        def run(self) -> float | None:
            seen.append((self.name, steps.clock.now()))
            return super().run()

    steps.attach(Noting("slow", 3.0, 3.0))
    steps.attach(Noting("fast", 2.0, 2.0, 99.0))
    steps.advance(10.0)
    assert seen == [
        ("slow", 0.0),
        ("fast", 0.0),
        ("fast", 2.0),
        ("slow", 3.0),
        ("fast", 4.0),
        ("slow", 6.0),
    ]
    assert steps.clock.now() == 10.0


def test_a_wake_makes_a_timer_void() -> None:
    """A task that ran early does not run at its old time."""
    steps, task = StepExecutor(), Counting(5.0)
    steps.attach(task)
    steps.run_until_idle()
    task.wake()
    steps.run_until_idle()
    steps.advance(10.0)
    assert task.runs == 2


def test_help_steps_until_the_caller_has_what_it_wants() -> None:
    """Or until nothing is ready."""
    steps, task = StepExecutor(), Counting(*[0.0] * 5)
    steps.attach(task)
    assert steps.help(lambda: task.runs == 3)
    assert task.runs == 3
    assert steps.help(lambda: False)
    assert task.runs == 6
    assert not steps.help(lambda: False)


def test_what_a_task_raises_reaches_the_test() -> None:
    """The step fails, and the task can be woken and stepped again."""

    class Failing(Counting):
        def run(self) -> float | None:
            super().run()
            raise LookupError

    steps, task = StepExecutor(), Failing()
    steps.attach(task)
    for runs in (1, 2):
        with pytest.raises(LookupError):
            steps.step()
        assert (task.runs, task.parked) == (runs, True)
        task.wake()


def test_an_executor_is_its_own_factory() -> None:
    """Every scheduler that a manager asks for is the same executor; closing it ends nothing."""
    steps = StepExecutor()
    assert steps("name", 4, steps.clock) is steps
    assert steps.close(0.0) is True
    assert steps.has_only_this_thread() is False


# -- RecordingHandler and eventually ------------------------------------------------------------


def test_a_recording_handler_keeps_what_it_gets() -> None:
    """Batches apart and items together, and how often it was idle."""
    handler = RecordingHandler[str]()
    handler.consume(["a", "b"])
    handler.consume(["c"])
    handler.on_idle()
    assert handler.batches == [["a", "b"], ["c"]]
    assert (handler.items, handler.idle_calls) == (["a", "b", "c"], 1)


def test_a_recording_handler_raises_what_it_is_told() -> None:
    """After it has kept the batch."""
    handler = RecordingHandler[str](fail=ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        handler.consume(["a"])
    assert handler.items == ["a"]


def test_a_recording_handler_works_on_a_queue() -> None:
    """As a handler, and as a consumer."""
    rig = Rig()
    handler = RecordingHandler[str]()
    rig.queue("consumer", consumer=handler).produce("a")
    rig.queue("handlers").add_handler(str, handler)
    rig.manager.shutdown_all()
    assert (handler.items, handler.idle_calls) == (["a"], 2)


def test_eventually_waits_for_a_condition() -> None:
    """It asks until the answer is yes."""
    answers = iter([False, 0, [], "yes"])
    eventually(lambda: next(answers))
    assert next(answers, None) is None


def test_eventually_fails_when_the_time_is_over() -> None:
    """On the clock that it is given."""
    clock = FakeClock()

    def never() -> bool:
        clock.advance(1.0)
        return False

    with pytest.raises(AssertionError, match=r"not true within 3.0 s: <function .*never"):
        eventually(never, timeout=3.0, clock=clock)


def test_who_waits_for_something_else_than_time_may_be_left_out() -> None:
    """A thread without a deadline is a sleeper, but none whose time comes."""
    clock, condition = FakeClock(), threading.Condition()

    def wait() -> None:
        with condition:
            clock.wait(condition, None)

    thread = threading.Thread(target=wait)
    thread.start()
    clock.await_sleepers(1)
    with pytest.raises(AssertionError, match="0 threads wait"):
        clock.await_sleepers(1, timeout=0.01, within=60.0)
    with condition:
        condition.notify_all()
    thread.join()
