"""Any order of calls, and what must hold after each: the batcher against a model of it."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.batcher import (
    Abandonment,
    Batcher,
    BatchSettings,
    CompleteResult,
    Completion,
    EnqueueResult,
    ProcessResult,
)
from penstock.errors import (
    BatcherFullError,
    BatcherStateError,
    IndeterminateError,
    ItemTooLargeError,
    NotSentError,
)
from penstock.testing import StepExecutor

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.batcher import BatchFault

PRODUCERS = st.integers(0, 2)
SIZES = st.integers(1, 6)
RESULTS = st.sampled_from(list(CompleteResult))
ANSWERS = st.sampled_from(
    [ProcessResult.NOT_OPEN, ProcessResult.ERROR, ValueError("no"), SystemExit(1)]
)


class Item:
    """Something to batch: whose it is, its turn, and its size."""

    def __init__(self, producer: int, number: int, size: int) -> None:
        self.producer = producer
        self.number = number
        self.size = size

    def __repr__(self) -> str:
        return f"{self.producer}.{self.number}({self.size})"


@st.composite
def batch_settings(draw: st.DrawFn) -> BatchSettings:
    """Draw settings that matter: tight limits, and whole waits on a binary clock."""
    largest = draw(st.integers(3, 8))
    return BatchSettings(
        max_pending_batches=draw(st.integers(1, 3)),
        max_batch_size=largest,
        min_batch_size=draw(st.integers(1, largest)),
        min_wait_time=draw(st.sampled_from([0.0, 0.5, 2.0])),
        capacity=draw(st.none() | st.integers(4, 12)),
        enqueue_timeout=0,
        oversize=draw(st.sampled_from(["alone", "reject"])),
        on_async_error=draw(st.sampled_from(["continue", "fault"])),
        sizer=lambda item: item.size,
    )


class BatcherMachine(RuleBasedStateMachine):
    """Everything a user can do, one call at a time, the worker being one of the callers."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = StepExecutor()
        self.numbers = itertools.count(1)
        self.accepted: list[Item] = []
        self.ends: Counter[Item] = Counter()
        self.outcomes: dict[Item, tuple[CompleteResult, Any]] = {}
        self.futures: dict[Item, Future[Any]] = {}
        self.cancelled: set[Item] = set()
        self.sent: list[list[Item]] = []
        self.open_batches: list[Completion] = []
        self.ended_batches: list[Completion] = []
        self.answer: ProcessResult | BaseException = ProcessResult.OK
        self.completes_at_once = False
        self.closes_inside = False
        self.ended_at: int | None = None  # callbacks so far, when a close said it was finished
        self.callbacks = 0

    @initialize(settings=batch_settings())
    def make(self, settings: BatchSettings) -> None:
        """Make a batcher and open it."""
        self.settings = settings
        self.batcher: Batcher[Item] = Batcher(
            self.process,
            settings,
            on_batch_faulted=self.told_of_fault,
            on_item_complete=self.completed,
            clock=self.steps.clock,
            factory=self.steps,
        )
        self.batcher.open()

    # -- the user's functions ----------------------------------------------------------

    def process(self, items: list[Item], complete: Completion) -> ProcessResult:
        """Keep the batch, check its bounds, and answer as planned."""
        assert items
        size = sum(item.size for item in items)
        assert size <= self.settings.max_batch_size or len(items) == 1
        assert not self.cancelled.intersection(items)
        self.sent.append(items)
        answer, self.answer = self.answer, ProcessResult.OK
        if self.completes_at_once:
            complete.each([ValueError("x") if item.size == 2 else item for item in items])
            self.ended_batches.append(complete)
        elif answer is ProcessResult.OK:
            self.open_batches.append(complete)
        else:
            self.ended_batches.append(complete)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def completed(self, item: Item, result: CompleteResult, ll_result: object) -> None:
        """Count the end of an item."""
        self.callbacks += 1
        self.ends[item] += 1
        self.outcomes[item] = (result, ll_result)
        if self.closes_inside:
            self.closes_inside = False
            assert not self.batcher.close(drain=True).finished

    def told_of_fault(self, _fault: BatchFault) -> None:
        """Be told."""
        self.callbacks += 1

    # -- rules: items ----------------------------------------------------------------------

    def new(self, producer: int, size: int) -> Item:
        """Make the producer's next item."""
        return Item(producer, next(self.numbers), size)

    @rule(producer=PRODUCERS, size=SIZES)
    def enqueue(self, producer: int, size: int) -> None:
        """Bring an item with a callback."""
        item = self.new(producer, size)
        was_open = self.batcher.is_open
        result = self.batcher.enqueue(item, item.size, self.completed, item)
        assert (result is EnqueueResult.INVALID_STATE) is not was_open or result in (
            EnqueueResult.FULL,
            EnqueueResult.TOO_LARGE,
        )
        if result is EnqueueResult.OK:
            self.accepted.append(item)

    @rule(producer=PRODUCERS, size=SIZES)
    def submit(self, producer: int, size: int) -> None:
        """Bring an item for a future."""
        item = self.new(producer, size)
        try:
            future = self.batcher.submit(item)
        except (BatcherStateError, BatcherFullError, ItemTooLargeError):
            return
        self.accepted.append(item)
        self.futures[item] = future
        future.add_done_callback(lambda _f: self.ends.update([item]))

    @rule(producer=PRODUCERS, sizes=st.lists(SIZES, max_size=4))
    def consume(self, producer: int, sizes: list[int]) -> None:
        """Bring items as a queue does: all of them end, accepted or not."""
        items = [self.new(producer, size) for size in sizes]
        callbacks, ended_at = self.callbacks, self.ended_at
        self.batcher.consume(items)
        self.accepted += items
        if ended_at is not None:  # refused at once, which is no call of the batcher's past
            self.ended_at = ended_at + self.callbacks - callbacks

    @precondition(lambda self: self.futures)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel an item: True means that it was not sent and never is."""
        item = data.draw(st.sampled_from(list(self.futures)))
        was_sent = any(item in batch for batch in self.sent)
        if self.futures[item].cancel():
            assert not was_sent
            self.cancelled.add(item)

    # -- rules: the worker, the processor and time ---------------------------------------------

    @rule()
    def step(self) -> None:
        """Let the worker take one turn."""
        self.steps.step()

    @rule(seconds=st.sampled_from([0.25, 0.5, 2.0]))
    def advance(self, seconds: float) -> None:
        """Let time pass; then nothing that could go is older than it may be."""
        self.steps.advance(seconds)
        self.steps.run_until_idle()
        core = self.batcher._core
        if core.life.is_sending and len(core.pending) < self.settings.max_pending_batches:
            assert core.staging.size < self.settings.min_batch_size
            for entry in itertools.islice(core.staging.entries, 1):
                assert self.steps.clock.now() - entry[2] < self.settings.min_wait_time

    @precondition(lambda self: self.open_batches)
    @rule(
        data=st.data(), result=RESULTS, ll_result=st.sampled_from([None, "word", ValueError("x")])
    )
    def complete(self, data: st.DataObject, result: CompleteResult, ll_result: object) -> None:
        """End a batch, in any order."""
        batch = data.draw(st.sampled_from(self.open_batches))
        self.open_batches.remove(batch)
        self.ended_batches.append(batch)
        batch(result, ll_result)

    @precondition(lambda self: self.ended_batches)
    @rule(data=st.data(), result=RESULTS)
    def complete_again(self, data: st.DataObject, result: CompleteResult) -> None:
        """End a batch twice, or after it was given up."""
        batch = data.draw(st.sampled_from(self.ended_batches))
        ends = self.ends.copy()
        assert not batch(result)
        assert self.ends == ends

    @rule(answer=ANSWERS)
    def fail_next(self, answer: ProcessResult | BaseException) -> None:
        """Have the next batch fail in the processor's hands."""
        self.answer = answer

    @rule(at_once=st.booleans())
    def complete_at_once(self, at_once: bool) -> None:  # noqa: FBT001 - a parameter of the rule
        """Have the processor end batches before it returns, or later."""
        self.completes_at_once = at_once

    # -- rules: the batcher's life ---------------------------------------------------------

    @rule()
    def flush(self) -> None:
        """Send what is there."""
        waiting = {item for item in self.accepted if not self.ends[item]}
        if self.batcher.flush(0):
            assert all(self.ends[item] for item in waiting)

    @rule(drain=st.booleans())
    def close(self, drain: bool) -> None:  # noqa: FBT001 - a parameter of the rule
        """Close without waiting: everything that was accepted has ended."""
        report = self.batcher.close(0.0, drain=drain)
        assert report.finished
        self.note_end()

    @rule()
    def close_inside_the_next_callback(self) -> None:
        """Close in the middle of things."""
        self.closes_inside = True

    @precondition(lambda self: self.batcher.stats().state == "created")
    @rule()
    def open(self) -> None:
        """Open again, as far as that goes."""
        self.ended_at = None
        try:
            self.batcher.open()
        except BatcherStateError:
            assert self.batcher.is_faulted

    @precondition(lambda self: self.batcher.is_faulted)
    @rule()
    def reset(self) -> None:
        """Recover from a fault."""
        before = self.batcher.stats()
        self.ended_at = None
        try:
            self.batcher.reset()
        except BatcherStateError:
            assert before.state not in ("opened", "created") or self.batcher.is_faulted
            return
        assert self.batcher.is_open
        assert self.batcher.stats().queued == 0

    def note_end(self) -> None:
        """Nothing is left, and from here on nobody may be called."""
        assert all(self.ends[item] == 1 for item in self.accepted)
        self.ended_batches += self.open_batches
        self.open_batches.clear()
        self.ended_at = self.callbacks

    # -- what holds after every call -----------------------------------------------------------

    @invariant()
    def no_item_ends_twice(self) -> None:
        """And none ends that was not accepted, unless a queue brought it."""
        assert all(count == 1 for count in self.ends.values())
        assert set(self.ends) <= set(self.accepted)

    @invariant()
    def producers_keep_their_order(self) -> None:
        """Each one's items are in batches in the order in which they were brought."""
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for item in itertools.chain.from_iterable(self.sent):
            numbers[item.producer].append(item.number)
        assert all(order == sorted(set(order)) for order in numbers.values())

    @invariant()
    def nothing_is_lost(self) -> None:
        """What was accepted waits, is pending, or has ended."""
        if not hasattr(self, "batcher"):
            return
        core = self.batcher._core
        held = [entry[0] for entry in core.staging.entries]
        held += [entry[0] for batch in core.pending.values() for entry in batch.entries]
        ended = [item for item in self.accepted if self.ends[item]]
        # A cancelled item has ended, and waits until the worker comes by it.
        assert set(held) | set(ended) == set(self.accepted)
        assert set(held) & set(ended) <= self.cancelled
        stats = self.batcher.stats()
        assert stats.pending_batches <= self.settings.max_pending_batches
        assert stats.queued_size == sum(entry[1] for entry in core.staging.entries)

    @invariant()
    def nobody_is_called_after_the_end(self) -> None:
        """A close that is finished is the end of all callbacks."""
        assert self.ended_at is None or self.callbacks == self.ended_at

    @invariant()
    def outcomes_are_true(self) -> None:
        """Who was told "not sent" was not sent; whoever was sent is never told so."""
        sent = set(itertools.chain.from_iterable(self.sent))
        for item, (result, ll_result) in self.outcomes.items():
            if result is CompleteResult.ABANDONED and item in sent:
                not_open = Abandonment.of(ll_result) is Abandonment.NOT_SENT
                assert not not_open or self.was_turned_down(item)
            elif result is not CompleteResult.ABANDONED:
                assert item in sent
        for item, future in self.futures.items():
            if future.done() and not future.cancelled():
                error = future.exception()
                if isinstance(error, NotSentError):
                    assert item not in sent or self.was_turned_down(item)
                elif isinstance(error, IndeterminateError):
                    assert item in sent

    def was_turned_down(self, item: Item) -> bool:
        """Return whether a processor that was not open has seen the item."""
        return any(item in batch for batch in self.sent)

    def teardown(self) -> None:
        """Close for good: everything has ended, once."""
        if not hasattr(self, "batcher"):
            return
        self.closes_inside = False
        self.batcher.close(0.0)
        self.note_end()


BatcherMachine.TestCase.settings = hypothesis_settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestBatcher = BatcherMachine.TestCase
