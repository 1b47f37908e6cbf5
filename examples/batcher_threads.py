"""Batches with an answer, for threads; batcher_asyncio.py is the same script for coroutines."""

from penstock.batcher import Batcher, BatchFault, BatchSettings, Completion, ProcessResult
from penstock.errors import BatcherStateError, NotSentError

batches: list[list[int]] = []


def square(numbers: list[int], complete: Completion) -> ProcessResult:
    """Answer each item of a batch; an exception among the answers is that item's own."""
    batches.append(numbers)
    complete.each([n * n if n != 13 else ArithmeticError("not thirteen") for n in numbers])
    return ProcessResult.OK


def show_fault(fault: BatchFault) -> None:
    """Say why the batcher stopped; here it never does."""
    print("faulted:", fault)


def main() -> None:
    """Bring items one by one, get an answer for each, and see what a close leaves."""
    settings = BatchSettings(max_batch_size=10, min_batch_size=10, min_wait_time=60.0)
    batcher = Batcher[int](square, settings, on_batch_faulted=show_fault, name="squares")
    batcher.open()

    # Two full batches go at once; the last five items would wait for company.
    futures = [batcher.submit(number) for number in range(25)]
    batcher.flush()
    answers = [future.exception() or future.result() for future in futures]
    print("batches of", [len(batch) for batch in batches])
    print("answers", answers)
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert [a for a in answers if isinstance(a, int)] == [n * n for n in range(25) if n != 13]
    assert isinstance(answers[13], ArithmeticError)

    # Cancelled before it was sent: nobody ever sees it.
    withdrawn = batcher.submit(100)
    kept = batcher.submit(101)
    assert withdrawn.cancel()

    # A close without drain sends nothing more. What it gives up is safe to bring again.
    report = batcher.close(5.0)
    print("not sent", report.not_sent)
    assert report.not_sent == (101,)
    try:
        kept.result()
    except NotSentError as error:
        print("101:", error)
    try:
        batcher.submit(102)
    except BatcherStateError as error:
        print("102:", error)

    stats = batcher.stats()
    print(f"{stats.ok} ok, {stats.failed} failed, {stats.not_sent} not sent")
    print(f"{stats.cancelled} cancelled, {stats.refused} refused")
    assert (stats.ok, stats.failed, stats.not_sent, stats.cancelled) == (24, 1, 1, 1)
    assert stats.completed == stats.accepted == 27


main()
