"""Creating, opening and closing a batcher."""

import gc
import threading
import weakref
from typing import Any

import pytest

from penstock.batcher import Batcher, BatchSettings, CompleteResult, Completion, ProcessResult
from penstock.errors import BatcherStateError, ConfigError
from penstock.scheduling import SharedSchedulers, ThreadPolicy
from penstock.testing import FakeClock, StepExecutor
from tests.unit.batcher.rig import ABANDONED, OK, Rig, in_background, opened


class Thing:
    """An item that can be seen to go away."""


def nothing(*_: object) -> Any:
    """Do nothing."""


# -- creating -------------------------------------------------------------------------------


@pytest.mark.srs("42_001")
def test_a_scheduler_that_is_none_is_refused() -> None:
    """What a batcher is to run on must be a scheduler's name and threads, or left out."""
    with pytest.raises(ConfigError, match="shared_scheduler"):
        BatchSettings(shared_scheduler=("shared", None))  # type: ignore[arg-type]


@pytest.mark.srs("42_002", "42_003", "42_010")
@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("process_batch", (None, BatchSettings(), nothing, nothing, "b")),
        ("on_batch_faulted", (nothing, BatchSettings(), None, nothing, "b")),
        ("on_item_complete", (nothing, BatchSettings(), nothing, 3, "b")),
        ("settings", (nothing, {"max_batch_size": 3}, nothing, nothing, "b")),
        ("name", (nothing, BatchSettings(), nothing, nothing, "")),
    ],
)
def test_a_batcher_without_what_it_needs_is_refused(field: str, arguments: Any) -> None:
    """The message names the argument."""
    process, settings, on_fault, on_item, name = arguments
    with pytest.raises(ConfigError, match=field):
        Batcher(
            process,
            settings,
            on_batch_faulted=on_fault,
            on_item_complete=on_item,
            name=name,
        )


@pytest.mark.srs("42_005", "42_006", "42_007", "42_009", "42_020")
def test_a_new_batcher_is_closed_and_empty() -> None:
    """It holds nothing, runs nothing, and refuses items until it is opened."""
    before = threading.active_count()
    rig = Rig()
    stats = rig.batcher.stats()
    assert (stats.state, stats.is_faulted) == ("created", False)
    assert (stats.queued, stats.queued_size, stats.pending_batches, stats.accepted) == (0, 0, 0, 0)
    assert not rig.batcher.is_open
    assert threading.active_count() == before
    assert repr(rig.batcher) == "<Batcher 'rig' created, 0 queued, 0 pending>"


# -- opening --------------------------------------------------------------------------------


@pytest.mark.srs("42_018", "42_024", "42_025")
def test_an_opened_batcher_accepts_items() -> None:
    """Opening takes effect before it returns."""
    rig = opened()
    assert rig.batcher.is_open
    assert rig.batcher.stats().state == "opened"
    rig.enqueue("a")


@pytest.mark.srs("42_026")
def test_a_batcher_is_opened_once() -> None:
    """A second opening is refused, and changes nothing."""
    rig = opened()
    with pytest.raises(BatcherStateError, match=r"open\(\) needs a batcher that is closed"):
        rig.batcher.open()
    rig.enqueue("a")


@pytest.mark.srs("42_021", "42_023")
def test_an_opening_that_fails_leaves_the_batcher_closed() -> None:
    """Whatever the scheduler raised goes to the caller; a later opening may succeed."""
    rig = Rig()
    steps, rig.batcher._factory = rig.batcher._factory, lambda *_: 1 / 0  # type: ignore[assignment]
    with pytest.raises(ZeroDivisionError):
        rig.batcher.open()
    assert rig.batcher.stats().state == "created"
    rig.batcher._factory = steps
    rig.batcher.open()
    assert rig.batcher.is_open


@pytest.mark.srs("42_107", "42_108", "42_022")
def test_an_opened_batcher_sleeps_until_the_first_item() -> None:
    """No timer runs and nothing is ready: an idle batcher costs nothing."""
    rig = opened()
    assert rig.steps.ready() == ()
    rig.steps.advance(1000.0)
    assert rig.sent == []
    rig.enqueue("a")
    assert len(rig.steps.ready()) == 1


@pytest.mark.srs("42_019", "42_035")
def test_a_closed_batcher_can_be_opened_again() -> None:
    """It begins empty and works as before."""
    rig = opened(min_batch_size=10, max_batch_size=10, min_wait_time=60.0)
    rig.enqueue("a")
    rig.batcher.close()
    rig.batcher.open()
    assert rig.batcher.stats().queued == 0
    rig.enqueue(*range(10))
    rig.run()
    assert rig.sent == [list(range(10))]


@pytest.mark.srs("45_013", "45_014", "45_015", "45_016")
def test_a_shared_scheduler_is_held_while_the_batcher_is_open() -> None:
    """Two batchers keep it alive; the last to close lets it go."""
    steps = StepExecutor()
    shared = SharedSchedulers(steps.clock, steps)
    settings = BatchSettings(shared_scheduler=("common", ThreadPolicy.fixed(1)))
    first, second = (
        Batcher[int](nothing, settings, on_batch_faulted=nothing, name=name, schedulers=shared)
        for name in ("first", "second")
    )
    assert shared.names() == ()
    first.open()
    second.open()
    assert shared.names() == ("common",)
    first.close()
    assert shared.names() == ("common",)
    second.close()
    assert shared.names() == ()


def test_a_shared_scheduler_is_given_back_when_opening_fails() -> None:
    """Nobody holds what nobody uses."""

    class Closed(StepExecutor):
        def attach(self, task: object, *, at_once: bool = True) -> None:
            raise RuntimeError(task, at_once)

    steps = Closed()
    shared = SharedSchedulers(steps.clock, steps)
    settings = BatchSettings(shared_scheduler=("common", ThreadPolicy.fixed(1)))
    batcher = Batcher[int](nothing, settings, on_batch_faulted=nothing, schedulers=shared)
    with pytest.raises(RuntimeError):
        batcher.open()
    assert shared.names() == ()


@pytest.mark.srs("42_008", "42_013", "42_030")
def test_an_open_batcher_has_one_thread_and_a_closed_one_none() -> None:
    """The thread comes with the first item and goes with the close."""
    done = threading.Event()

    def process(items: list[int], complete: Completion) -> ProcessResult:
        del items
        complete(CompleteResult.OK)
        done.set()
        return ProcessResult.OK

    before = set(threading.enumerate())
    batcher = Batcher(process, BatchSettings(), on_batch_faulted=nothing, name="lone")
    batcher.open()
    assert set(threading.enumerate()) == before
    batcher.submit(1)
    batcher.submit(2).result(10)
    (thread,) = set(threading.enumerate()) - before
    assert thread.name == "penstock-lone"
    batcher.close()
    assert set(threading.enumerate()) == before


# -- closing --------------------------------------------------------------------------------


def test_closing_a_batcher_that_is_not_open_does_nothing() -> None:
    """The report is empty and finished."""
    report = Rig().batcher.close()
    assert report.complete
    assert (report.ok, report.failed, report.elapsed) == (0, 0, 0.0)


@pytest.mark.srs("42_102", "42_103", "42_031", "42_032", "42_034")
def test_a_close_abandons_what_was_not_sent() -> None:
    """Staged or queued, each item gets ABANDONED and no ll_result, and is in the report."""
    rig = opened(max_batch_size=2, min_batch_size=2, min_wait_time=60.0)
    rig.enqueue("a")
    rig.run()  # the worker has looked at it: staged
    rig.enqueue("b", "c")  # and not at these: queued
    report = rig.batcher.close()
    assert rig.outcomes == [(item, ABANDONED, None) for item in "abc"]
    assert report.not_sent == ("a", "b", "c")
    assert report.finished
    assert not report.complete
    assert rig.batcher.stats().queued == 0
    assert rig.batcher.stats().queued_size == 0
    assert rig.sent == []


@pytest.mark.srs("42_028", "42_074", "42_093")
def test_a_close_waits_for_the_batches_in_the_processors_hands() -> None:
    """They keep their own result; only then is the rest abandoned."""
    rig = opened(max_batch_size=1)
    rig.enqueue("sent", "unsent")
    rig.run()
    closing = in_background(lambda: rig.batcher.close(60.0))
    rig.clock.await_sleepers(1)
    assert rig.outcomes == []
    rig.completions[0](OK, "fine")
    report = closing.result(10)
    assert rig.outcomes == [("sent", OK, "fine"), ("unsent", ABANDONED, None)]
    assert (report.ok, report.not_sent, report.indeterminate) == (1, ("unsent",), ())
    assert report.finished


@pytest.mark.srs("42_029")
def test_no_timer_outlives_a_close() -> None:
    """An item that waited for its age is abandoned, and its time comes without effect."""
    rig = opened(min_batch_size=5, max_batch_size=5, min_wait_time=1.0)
    rig.enqueue("a")
    rig.run()
    rig.batcher.close()
    rig.steps.advance(10.0)
    assert rig.sent == []
    rig.batcher.open()
    rig.enqueue("b")
    rig.steps.advance(0.5)
    assert rig.sent == []


@pytest.mark.srs("42_049", "42_106", "45_011")
def test_a_close_waits_for_nothing_when_nothing_goes_on() -> None:
    """Neither an accepted item nor a look of the worker holds it up."""
    rig = opened(min_batch_size=5, max_batch_size=5, min_wait_time=60.0)
    rig.enqueue("a")
    rig.run()
    assert rig.batcher.close(60.0).elapsed == 0.0


def test_a_close_gives_up_on_the_processor_when_its_time_is_over() -> None:
    """Its batches end as ABANDONED and indeterminate; what it says later is ignored."""
    rig = opened(max_batch_size=1, max_pending_batches=2)
    rig.enqueue("a", "b", "c")
    rig.run()
    closing = in_background(lambda: rig.batcher.close(5.0))
    rig.clock.await_sleepers(1)
    rig.clock.advance(5.0)
    report = closing.result(10)
    assert report.not_sent == ("c",)
    assert report.indeterminate == ("a", "b")
    assert report.finished
    assert [(item, result) for item, result, _ in rig.outcomes] == [
        (item, ABANDONED) for item in "cab"
    ]
    assert not rig.complete(0)
    assert rig.batcher.stats().stray_completions == 1
    assert rig.batcher.stats().indeterminate == 2
    assert len(rig.outcomes) == 3


def test_a_close_can_send_what_waits_first() -> None:
    """With drain=True nothing is abandoned if the processor keeps up, in batches as ever."""
    rig = opened(max_batch_size=2, min_batch_size=2, min_wait_time=60.0, max_pending_batches=9)
    rig.on_send = lambda _items, complete: complete(OK, None)
    rig.enqueue(*"abcde")
    report = rig.batcher.close(drain=True)
    assert rig.sent == [["a", "b"], ["c", "d"], ["e"]]
    assert report.complete
    assert report.ok == 5


def test_a_drain_that_takes_too_long_abandons_the_rest() -> None:
    """One deadline covers the drain and the wait for the processor."""
    rig = opened(max_batch_size=1)
    rig.enqueue("a", "b")
    closing = in_background(lambda: rig.batcher.close(5.0, drain=True))
    rig.clock.await_sleepers(1)
    assert rig.batcher.stats().state == "draining"
    assert rig.batcher.enqueue("c", 1, rig.completed).name == "INVALID_STATE"
    rig.clock.advance(5.0)
    report = closing.result(10)
    assert (report.not_sent, report.indeterminate) == (("b",), ("a",))


def test_a_drain_ends_with_a_fault() -> None:
    """What cannot be sent any more is abandoned without waiting for the deadline."""
    rig = opened(max_batch_size=1)
    rig.answer = ProcessResult.ERROR
    rig.enqueue("a", "b")
    report = rig.batcher.close(60.0, drain=True)
    assert (report.failed, report.not_sent, report.elapsed) == (1, ("b",), 0.0)
    assert rig.batcher.stats().state == "created"
    assert rig.batcher.is_faulted


def test_a_faulted_batcher_does_not_drain() -> None:
    """Asked to, it closes like any other."""
    rig = opened(max_batch_size=1)
    rig.answer = ProcessResult.ERROR
    rig.enqueue("a", "b")
    rig.run()
    assert rig.batcher.close(60.0, drain=True).not_sent == ("b",)


@pytest.mark.srs("42_012")
def test_leaving_the_context_sends_what_waits_and_closes() -> None:
    """An open batcher does not outlive its block."""
    rig = Rig(min_batch_size=9, max_batch_size=9, min_wait_time=60.0)
    rig.on_send = lambda _items, complete: complete(OK, None)
    with rig.batcher as batcher:
        assert batcher is rig.batcher
        rig.enqueue("a")
    assert rig.sent == [["a"]]
    assert rig.batcher.stats().state == "created"


def test_leaving_the_context_with_an_error_abandons_what_waits() -> None:
    """Who failed half-way gets the other half back."""
    rig = Rig(min_batch_size=9, max_batch_size=9, min_wait_time=60.0)

    def fail() -> None:
        with rig.batcher:
            rig.enqueue("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert rig.outcomes == [("a", ABANDONED, None)]


@pytest.mark.srs("42_014", "42_015", "42_016", "42_033", "42_091", "42_104", "45_006", "45_007")
def test_nothing_is_kept_of_what_has_completed() -> None:
    """Neither the item nor its context, in whatever way it ended, nor the batcher itself."""
    steps = StepExecutor()
    answers = [ProcessResult.OK, ProcessResult.ERROR]
    completed: list[Completion] = []

    def process(items: list[Any], complete: Completion) -> ProcessResult:
        items.clear()
        completed.append(complete)
        return answers.pop(0)

    batcher = Batcher(
        process,
        BatchSettings(max_batch_size=1),
        on_batch_faulted=nothing,
        factory=steps,
        clock=steps.clock,
    )
    batcher.open()
    refs = []
    for thing in (Thing(), Thing(), Thing()):
        refs.append(weakref.ref(thing))
        batcher.enqueue(thing, 1, nothing, thing)
    del thing
    steps.run_until_idle()
    completed[0](OK)
    steps.run_until_idle()  # the second fails, the third is not sent
    batcher.close()
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]
    gone = weakref.ref(batcher)
    completed.clear()
    del batcher
    gc.collect()
    assert gone() is None


@pytest.mark.srs("45_010", "45_011")
def test_a_worker_of_an_ended_opening_does_nothing() -> None:
    """On a shared scheduler its timer may come after the close, and after another opening."""
    clock = FakeClock()
    rig = Rig(StepExecutor(clock), min_batch_size=5, max_batch_size=5, min_wait_time=1.0)
    rig.batcher.open()
    worker = rig.batcher._core.worker
    assert worker is not None
    rig.enqueue("a")
    rig.batcher.close()
    rig.batcher.open()
    rig.enqueue("b")
    assert worker.run() is None
    assert rig.batcher.stats().queued == 1


def test_a_wake_that_comes_after_the_close_is_harmless() -> None:
    """Somebody wanted the worker before the close, and says so after it."""
    rig = opened()
    worker = rig.batcher._core.worker
    assert worker is not None
    rig.batcher.close()
    worker.wake()
    assert rig.steps.ready() == ()
