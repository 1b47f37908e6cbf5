"""A function of many, called with one."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.batcher import BatchedFunction, batched
from penstock.batcher.decorator import _log_fault
from penstock.errors import ConfigError, ReentrantCallError, ResultCountError
from penstock.testing import StepExecutor
from tests.unit.batcher.rig import events, faulted, in_background

Function = Callable[[list[int]], Sequence[int]]


def stepped(function: Function, **limits: Any) -> tuple[BatchedFunction[int, int], StepExecutor]:
    """Return *function* batched, and what runs it."""
    steps = StepExecutor()
    return batched(clock=steps.clock, factory=steps, **limits)(function), steps


def double(numbers: list[int]) -> list[int]:
    """Return twice each."""
    return [2 * number for number in numbers]


def test_callers_share_a_batch() -> None:
    """Each gets its own result; the function is called once."""
    calls: list[list[int]] = []

    def counted(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return double(numbers)

    function, steps = stepped(counted, max_batch_size=3, max_wait=60.0)
    futures = [function.submit(number) for number in (1, 2, 3)]
    steps.run_until_idle()
    assert [future.result(0) for future in futures] == [2, 4, 6]
    assert calls == [[1, 2, 3]]
    function.close()


def test_a_batch_goes_when_its_first_item_has_waited() -> None:
    """max_wait is the most a lone caller pays."""
    function, steps = stepped(double, max_batch_size=3, max_wait=0.5)
    future = function.submit(1)
    steps.advance(0.25)
    assert not future.done()
    steps.advance(0.25)
    assert future.result(0) == 2
    function.close()


def test_a_call_waits_for_its_result() -> None:
    """From any thread, on real ones, and without any set-up."""

    @batched(max_batch_size=2, max_wait=60.0)
    def together(numbers: list[int]) -> list[int]:
        """Return twice each."""
        return double(numbers)

    first, second = in_background(lambda: together(1)), in_background(lambda: together(2))
    assert sorted([first.result(10), second.result(10)]) == [2, 4]
    assert together.__doc__ == "Return twice each."
    assert getattr(together, "__name__", None) == "together"
    assert together.close().complete
    assert "together" in repr(together)


def test_a_call_can_be_awaited() -> None:
    """With the same results, in batches with all other callers."""
    function = batched(max_batch_size=10, max_wait=60.0)(double)

    async def main() -> list[int]:
        return list(await asyncio.gather(*(function.acall(number) for number in range(10))))

    assert asyncio.run(main()) == [2 * number for number in range(10)]
    assert function.stats().batches == 1
    function.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_a_function_that_raises_fails_its_batch_alone(error: BaseException) -> None:
    """Its callers get the error; the next batch is as good as new."""

    def picky(numbers: list[int]) -> list[int]:
        if 0 in numbers:
            raise error
        return double(numbers)

    function, steps = stepped(picky, max_batch_size=1)
    bad, good = function.submit(0), function.submit(1)
    steps.run_until_idle()
    assert bad.exception(0) is not None
    assert good.result(0) == 2
    function.close()


def test_an_exception_among_the_results_is_its_callers() -> None:
    """The others have theirs."""
    error = ValueError("one")
    function, steps = stepped(lambda _: [error, 2], max_batch_size=2)  # type: ignore[list-item]
    one, two = function.submit(1), function.submit(2)
    steps.run_until_idle()
    assert one.exception(0) is error
    assert two.result(0) == 2
    function.close()


def test_another_number_of_results_is_an_error_for_all() -> None:
    """Nobody gets somebody else's."""
    function, steps = stepped(lambda _: [1], max_batch_size=2)
    futures = [function.submit(1), function.submit(2)]
    steps.run_until_idle()
    for future in futures:
        assert isinstance(future.exception(0), ResultCountError)
    function.close()


def test_a_function_that_calls_itself_is_told() -> None:
    """It would wait for the batch that it is working on."""
    caught: list[BaseException] = []

    def recursive(numbers: list[int]) -> list[int]:
        try:
            batch_of_one(numbers[0])
        except ReentrantCallError as error:
            caught.append(error)
        return numbers

    batch_of_one, steps = stepped(recursive, max_batch_size=1)
    batch_of_one.submit(1)
    steps.run_until_idle()
    assert "was called by itself" in str(caught[0])
    batch_of_one.close()


def test_the_first_call_opens_and_a_call_after_close_opens_again() -> None:
    """There is nothing to set up, and nothing is lost by closing."""
    function, steps = stepped(double, max_batch_size=1)
    assert function.stats().state == "created"
    first = function.submit(1)
    steps.run_until_idle()
    function.close()
    assert function.stats().state == "created"
    second = function.submit(2)
    steps.run_until_idle()
    assert (first.result(0), second.result(0)) == (2, 4)
    function.close()


def test_two_first_calls_at_once_open_it_once() -> None:
    """Whoever comes second finds it open."""
    function, steps = stepped(double, max_batch_size=2)
    with function._opening:
        calls = [in_background(lambda: function.submit(1)) for _ in range(2)]
        function._batcher.open()
    futures = [call.result(10) for call in calls]
    steps.run_until_idle()
    assert [future.result(0) for future in futures] == [2, 2]
    function.close()


def test_the_lock_is_renewed_in_a_child_process() -> None:
    """Another thread of the parent may have held it."""
    function, _ = stepped(double)
    before = function._opening
    function.renew_after_fork()
    assert function._opening is not before
    assert isinstance(function._opening, type(threading.Lock()))


@pytest.mark.parametrize("wrong", [None, 3])
def test_only_a_function_can_be_batched(wrong: Any) -> None:
    """The message says what is needed."""
    with pytest.raises(ConfigError, match="needs a plain function"):
        batched()(wrong)


def test_a_coroutine_function_cannot_be_batched() -> None:
    """It would have to run on somebody's loop; acall is for those who await."""

    async def wrong(numbers: list[int]) -> list[int]:
        return numbers

    with pytest.raises(ConfigError, match="needs a plain function"):
        batched()(wrong)  # type: ignore[arg-type]


def test_its_own_fault_callback_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Its processor never fails, but a batcher needs somebody to tell."""
    _log_fault(faulted().faults[0])
    assert events(caplog)[-1] == "batcher.batched_function_faulted"
