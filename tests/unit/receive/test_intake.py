"""The way of a request to the disk, with a landing that is held where the test wants it."""

from __future__ import annotations

import asyncio
import errno
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.clock import wall_time
from penstock.land.segments import digest_of
from penstock.receive.intake import Intake, aside
from penstock.receive.outcome import Outcome, Verdict
from penstock.receive.settings import ReceiveSettings
from penstock.telemetry.requests import validate
from penstock.telemetry.schema import Signal
from tests.unit.receive.rig import PATIENCE, HeldLanding, payload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from penstock.telemetry.requests import Counts

SETTINGS = ReceiveSettings(answer_timeout=PATIENCE)
ACCEPTED = Outcome(Verdict.ACCEPTED)
SPANS = Signal.SPANS


@asynccontextmanager
async def intake_of(
    landing: HeldLanding, settings: ReceiveSettings = SETTINGS, remember: float = 600.0
) -> AsyncIterator[Intake]:
    """Run an intake, and end it with its landing released."""
    intake = Intake(landing, settings, remember)
    try:
        yield intake
    finally:
        landing.gate.set()
        await intake.drain(PATIENCE)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until *condition* holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - other threads are part of the condition
            await asyncio.sleep(0)


async def entered(landing: HeldLanding) -> None:
    """Wait until one more commit stands at the gate."""
    assert await asyncio.to_thread(landing.entered.acquire, timeout=PATIENCE)


def run(test: Coroutine[None, None, None]) -> None:
    """Run a test on a loop of its own."""
    asyncio.run(test)


@pytest.mark.parametrize("signal", Signal)
def test_a_request_is_committed_as_it_came(signal: Signal) -> None:
    """With its digest, under its signal; and counted."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(signal, "a", 3)
        async with intake_of(landing) as intake:
            assert await intake.accept(signal, sent) == ACCEPTED
            assert intake.records == {signal: 3}
        ((where, (record,)),) = landing.groups
        assert (where, record.payload) == (signal, sent)
        assert record.digest == digest_of(signal, sent)

    run(scenario())


def test_the_answer_comes_after_the_commit() -> None:
    """E1: while the group is not committed there is no answer, however long that takes."""

    async def scenario() -> None:
        landing = HeldLanding()
        landing.gate.clear()
        async with intake_of(landing) as intake:
            answer = asyncio.create_task(intake.accept(SPANS, payload(SPANS, "a")))
            await entered(landing)
            for _ in range(100):
                await asyncio.sleep(0)
            assert not answer.done()
            assert intake.records[SPANS] == 0
            landing.gate.set()
            assert await answer == ACCEPTED
            assert len(landing.groups) == 1

    run(scenario())


def test_equal_requests_at_once_are_committed_once() -> None:
    """E2: all of them wait for the one that is under way, and get its outcome."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(SPANS, "a", 5)
        landing.gate.clear()
        async with intake_of(landing) as intake:
            answers = [asyncio.create_task(intake.accept(SPANS, sent)) for _ in range(4)]
            await entered(landing)
            await until(lambda: intake.repeated[SPANS] == 3)
            landing.gate.set()
            assert await asyncio.gather(*answers) == [ACCEPTED] * 4
            assert intake.records[SPANS] == 5
        assert landing.payloads() == [sent]

    run(scenario())


def test_equal_requests_at_once_fail_together() -> None:
    """E2: none is told that it is on the disk if it is not."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(SPANS, "a")
        landing.gate.clear()
        landing.error = OSError(errno.ENOSPC, "No space left on device")
        async with intake_of(landing) as intake:
            answers = [asyncio.create_task(intake.accept(SPANS, sent)) for _ in range(3)]
            await until(lambda: intake.repeated[SPANS] == 2)
            landing.gate.set()
            verdicts = {outcome.verdict for outcome in await asyncio.gather(*answers)}
            assert verdicts == {Verdict.UNAVAILABLE}

    run(scenario())


def test_beyond_the_bound_clients_are_told_to_come_later() -> None:
    """E3: in bytes. What was refused is taken when there is room again."""

    async def scenario() -> None:
        landing, first, second = HeldLanding(), payload(SPANS, "a"), payload(SPANS, "b")
        landing.gate.clear()
        settings = replace(SETTINGS, in_flight_bytes=len(first) + len(second) - 1)
        async with intake_of(landing, settings) as intake:
            answer = asyncio.create_task(intake.accept(SPANS, first))
            await entered(landing)
            assert intake.under_way_bytes == len(first)
            refused = await intake.accept(SPANS, second)
            assert refused.verdict is Verdict.EXHAUSTED
            assert f"{len(first)} bytes wait for the disk" in refused.message
            landing.gate.set()
            assert await answer == ACCEPTED
            assert intake.under_way_bytes == 0
            assert await intake.accept(SPANS, second) == ACCEPTED
        assert landing.payloads() == [first, second]

    run(scenario())


def test_a_request_larger_than_the_bound_is_taken_alone() -> None:
    """E3 must not turn away for ever what is small enough for a request."""

    async def scenario() -> None:
        landing = HeldLanding()
        async with intake_of(landing, replace(SETTINGS, in_flight_bytes=1)) as intake:
            assert await intake.accept(SPANS, payload(SPANS, "a")) == ACCEPTED

    run(scenario())


def test_beyond_the_bound_of_requests_clients_are_told_to_come_later() -> None:
    """E3: in requests: a queue that is full refuses, and the refused one is not under way."""

    async def scenario() -> None:
        landing = HeldLanding()
        async with intake_of(landing) as intake:
            intake.queues.shutdown_all(timeout=PATIENCE)  # takes nothing any more, as a full one
            refused = await intake.accept(SPANS, payload(SPANS, "a"))
            assert refused.verdict is Verdict.EXHAUSTED
            assert "too many requests wait" in refused.message
            assert intake.under_way_bytes == 0

    run(scenario())


def test_a_landing_without_room_is_full() -> None:
    """The disk cap becomes back-pressure; nothing is queued for it."""

    async def scenario() -> None:
        landing = HeldLanding()
        landing.is_full = True
        async with intake_of(landing) as intake:
            refused = await intake.accept(SPANS, payload(SPANS, "a"))
            assert refused.verdict is Verdict.EXHAUSTED
            assert "disk cap" in refused.message
            landing.is_full = False
            assert await intake.accept(SPANS, payload(SPANS, "a")) == ACCEPTED

    run(scenario())


def test_the_queue_has_room_for_as_many_requests_as_is_said() -> None:
    """E3: the setting is the queue's capacity."""

    async def scenario() -> None:
        async with intake_of(HeldLanding(), replace(SETTINGS, in_flight_requests=7)) as intake:
            (queue,) = intake.queues.queues()
            assert {part.capacity for part in queue.stats().partitions} == {7}

    run(scenario())


def test_a_request_that_takes_too_long_is_to_be_sent_again_and_counts_once() -> None:
    """The client gives up, the commit does not; what is sent again is recognised."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(SPANS, "a", 2)
        landing.gate.clear()
        async with intake_of(landing, replace(SETTINGS, answer_timeout=0.01)) as intake:
            outcome = await intake.accept(SPANS, sent)
            assert outcome.verdict is Verdict.UNAVAILABLE
            assert "within 0.01 s" in outcome.message
            landing.gate.set()
            await until(lambda: intake.under_way_bytes == 0)
            assert await intake.accept(SPANS, sent) == ACCEPTED
            assert (intake.repeated[SPANS], intake.records[SPANS]) == (1, 2)
        assert landing.payloads() == [sent]

    run(scenario())


def test_a_disk_that_fails_makes_the_request_one_to_be_sent_again() -> None:
    """The message has the disk's reason. The next attempt is not taken for a repeated one."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(SPANS, "a")
        async with intake_of(landing) as intake:
            landing.error = OSError(errno.ENOSPC, "No space left on device")
            outcome = await intake.accept(SPANS, sent)
            assert outcome.verdict is Verdict.UNAVAILABLE
            assert "cannot be stored now: No space left on device" in outcome.message
            assert intake.records[SPANS] == 0
            landing.error = None
            assert await intake.accept(SPANS, sent) == ACCEPTED
            assert intake.repeated[SPANS] == 0
        assert landing.payloads() == [sent]

    run(scenario())


def test_an_unforeseen_error_of_a_commit_is_logged_and_the_next_one_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client is told to come again; the batcher is not stopped by it."""

    async def scenario() -> None:
        landing = HeldLanding()
        async with intake_of(landing) as intake:
            landing.error = ValueError("a bug")
            outcome = await intake.accept(SPANS, payload(SPANS, "a"))
            assert outcome.verdict is Verdict.UNAVAILABLE
            assert "a bug" in outcome.message
            landing.error = None
            assert await intake.accept(SPANS, payload(SPANS, "b")) == ACCEPTED

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == ["receive.commit_failed: spans"]


def test_a_request_sent_again_is_recognised() -> None:
    """It is accepted, and is not committed again."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(SPANS, "a", 2, 1)
        async with intake_of(landing) as intake:
            first = await intake.accept(SPANS, sent)
            assert await intake.accept(SPANS, sent) == first
            assert first.rejected == 1
            assert intake.repeated == {SPANS: 1}
            assert intake.records == {SPANS: 2}
            assert intake.rejected == {(SPANS, "trace_id"): 1}
        assert landing.payloads() == [sent]

    run(scenario())


def test_a_request_sent_again_after_a_restart_is_recognised() -> None:
    """The landing knows the digests of before; the intake remembers them."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(SPANS, "a")
        async with intake_of(landing) as intake:
            intake.remember([(wall_time(), digest_of(SPANS, sent))])
            assert await intake.accept(SPANS, sent) == ACCEPTED
            assert intake.repeated[SPANS] == 1
        assert landing.groups == []

    run(scenario())


def test_what_was_sent_too_long_ago_is_not_recognised() -> None:
    """A digest is kept for as long as is said."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(SPANS, "a")
        async with intake_of(landing, remember=600.0) as intake:
            intake.remember([(wall_time() - 601.0, digest_of(SPANS, sent))])
            assert await intake.accept(SPANS, sent) == ACCEPTED
        assert landing.payloads() == [sent]

    run(scenario())


def test_equal_bytes_of_another_signal_are_another_request() -> None:
    """Requests of traces and logs can have the same bytes."""

    async def scenario() -> None:
        landing, sent = HeldLanding(), payload(Signal.LOGS, "a")
        async with intake_of(landing) as intake:
            intake.remember([(wall_time(), digest_of(SPANS, sent))])
            await intake.accept(Signal.LOGS, sent)
        assert landing.payloads() == [sent]

    run(scenario())


@pytest.mark.parametrize("signal", Signal)
def test_nothing_to_keep_needs_no_disk(signal: Signal) -> None:
    """An empty request, and one of which nothing can be kept, are accepted at once."""

    async def scenario() -> None:
        landing = HeldLanding()
        landing.is_full = True
        async with intake_of(landing) as intake:
            assert await intake.accept(signal, b"") == ACCEPTED
            assert await intake.accept(signal, payload(signal, "a", 0)) == ACCEPTED
            useless = await intake.accept(signal, payload(signal, "a", 0, 2))
            assert (useless.verdict, useless.rejected) == (Verdict.ACCEPTED, 2)
            assert sum(intake.rejected.values()) == 2
        assert landing.groups == []

    run(scenario())


def test_records_left_out_are_explained() -> None:
    """Each reason with its number."""

    async def scenario() -> None:
        async with intake_of(HeldLanding()) as intake:
            outcome = await intake.accept(SPANS, payload(SPANS, "a", 1, 3))
            assert outcome == Outcome(
                Verdict.ACCEPTED, "3 left out: trace_id is not 16 bytes", rejected=3
            )

    run(scenario())


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_malformed_request_is_refused(size: int) -> None:
    """A small one and one that is looked through aside; the message says what was expected."""

    async def scenario() -> None:
        landing = HeldLanding()
        async with intake_of(landing) as intake:
            outcome = await intake.accept(SPANS, b"\xff" * size)
            assert outcome.verdict is Verdict.MALFORMED
            assert "ExportTraceServiceRequest" in outcome.message
            assert intake.outcomes == {(SPANS, Verdict.MALFORMED): 1}

    run(scenario())


def test_a_large_request_is_looked_through_on_another_thread() -> None:
    """It would hold up every other client, if it were on the loop's."""

    async def scenario() -> None:
        loop_thread = asyncio.get_running_loop()

        def is_on_the_loop() -> bool:
            try:
                return asyncio.get_running_loop() is loop_thread
            except RuntimeError:
                return False

        assert await aside(100, is_on_the_loop)
        assert not await aside(1 << 20, is_on_the_loop)

    run(scenario())


def test_a_drain_answers_what_is_under_way_and_refuses_the_rest() -> None:
    """Whoever comes during the stop is told to come again."""

    async def scenario() -> None:
        landing = HeldLanding()
        landing.gate.clear()
        intake = Intake(landing, SETTINGS)
        answer = asyncio.create_task(intake.accept(SPANS, payload(SPANS, "a")))
        await entered(landing)
        draining = asyncio.create_task(intake.drain(PATIENCE))
        await until(lambda: intake.is_draining)
        late = await intake.accept(SPANS, payload(SPANS, "b"))
        assert late.verdict is Verdict.UNAVAILABLE
        assert "stopping" in late.message
        assert not answer.done()
        landing.gate.set()
        assert await answer == ACCEPTED
        assert await draining == 0

    run(scenario())


def test_a_drain_that_runs_out_of_time_says_how_many_are_left() -> None:
    """Their clients are told to send them again."""

    async def scenario() -> None:
        landing = HeldLanding()
        landing.gate.clear()
        intake = Intake(landing, SETTINGS)
        answers = [
            asyncio.create_task(intake.accept(SPANS, payload(SPANS, name))) for name in "abc"
        ]
        await until(lambda: intake.under_way_bytes == 3 * len(payload(SPANS, "a")))
        assert await intake.drain(0.05) == 3
        outcomes = await asyncio.gather(*answers)
        assert {outcome.verdict for outcome in outcomes} == {Verdict.UNAVAILABLE}
        landing.gate.set()

    run(scenario())


def test_a_request_that_is_looked_through_when_the_stop_comes_is_to_be_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue is closed by then, which is not the same as full."""
    looked_through, began = threading.Event(), threading.Event()

    def slow_validate(signal: Signal, sent: bytes) -> Counts:
        began.set()
        assert looked_through.wait(PATIENCE)
        return validate(signal, sent)

    async def scenario() -> None:
        landing = HeldLanding()
        intake = Intake(landing, SETTINGS)
        answer = asyncio.create_task(intake.accept(SPANS, payload(SPANS, "a" * (1 << 20))))
        assert await asyncio.to_thread(began.wait, PATIENCE)
        assert await intake.drain(PATIENCE) == 0
        looked_through.set()
        outcome = await answer
        assert outcome.verdict is Verdict.UNAVAILABLE
        assert "stopping" in outcome.message
        assert landing.groups == []

    monkeypatch.setattr("penstock.receive.intake.validate", slow_validate)
    run(scenario())


def test_every_outcome_is_counted() -> None:
    """Also of requests that ended before they got here."""

    async def scenario() -> None:
        async with intake_of(HeldLanding()) as intake:
            await intake.accept(SPANS, b"")
            await intake.accept(SPANS, b"\xff")
            intake.refuse(SPANS, Outcome(Verdict.TOO_LARGE))
            assert intake.outcomes == {
                (SPANS, Verdict.ACCEPTED): 1,
                (SPANS, Verdict.MALFORMED): 1,
                (SPANS, Verdict.TOO_LARGE): 1,
            }

    run(scenario())
