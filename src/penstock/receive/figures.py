"""Every figure of the receiver and of its landing folder, in one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.figures import Figure
from penstock.receive.outcome import Verdict
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.land.landing import Landing
    from penstock.receive.intake import Intake

__all__ = ["receiver_figures"]

_counter, _gauge = Figure.counter, Figure.gauge


def receiver_figures(intake: Intake, landing: Landing) -> Iterator[Figure]:
    """Yield how the receiver and its landing folder stand."""
    yield from _of_the_intake(intake)
    yield from _of_the_landing(landing)


def _of_the_intake(intake: Intake) -> Iterator[Figure]:
    outcomes = {(s, v): intake.outcomes[s, v] for s in Signal for v in Verdict}
    yield _counter("receive_requests", "Requests by outcome", outcomes, "signal", "outcome")
    records = "Spans, points and log records that were acknowledged"
    yield _counter("receive_records", records, _by_signal(intake.records), "signal")
    left_out = "Records left out of accepted requests, by the field at fault"
    rejected = {(s, reason): count for (s, reason), count in intake.rejected.items()}
    yield _counter("receive_rejected_records", left_out, rejected, "signal", "field")
    again = "Requests recognised as sent before"
    yield _counter("receive_repeated_requests", again, _by_signal(intake.repeated), "signal")
    yield _gauge("receive_under_way_bytes", "Bytes that wait for the disk", intake.under_way_bytes)


def _of_the_landing(landing: Landing) -> Iterator[Figure]:
    stats = landing.stats()
    for name, text, counts in (
        ("landing_requests", "Requests committed to the write-ahead log", stats.requests),
        ("landing_groups", "Group commits", stats.groups),
        ("landing_committed_bytes", "Bytes committed", stats.committed_bytes),
        ("landing_files", "Parquet files landed", stats.files),
        ("landing_records", "Records landed in files", stats.records),
        ("landing_set_aside_requests", "Requests that could not be decoded", stats.set_aside),
        ("landing_repeated_requests", "Requests found in two segments", stats.repeated),
    ):
        yield _counter(name, text, _by_signal(counts), "signal")
    rejected = {(s, reason): count for (s, reason), count in stats.rejected.items()}
    text = "Records left out of files, by the field at fault"
    yield _counter("landing_rejected_records", text, rejected, "signal", "field")
    yield _counter("landing_commit_seconds", "Time in group commits", stats.commit_seconds)
    yield _counter("landing_commit_errors", "Group commits that failed", stats.commit_errors)
    text = "Conversions that failed and are tried again"
    yield _counter("landing_conversion_errors", text, stats.conversion_errors)
    text = "Segments that wait to be converted"
    yield _gauge("landing_segments_waiting", text, stats.segments_waiting)
    text = "Bytes of segments and of files that wait for the aggregation"
    yield _gauge("landing_disk_bytes", text, stats.used_bytes)
    cap = landing.settings.disk_bytes
    yield _gauge("landing_disk_cap_bytes", "The disk cap", cap)
    text = "1 while the last write or conversion has failed"
    yield _gauge("landing_in_trouble", text, stats.trouble is not None)


def _by_signal(counts: Mapping[Signal, int]) -> dict[tuple[str, ...], float]:
    return {(signal,): counts.get(signal, 0) for signal in Signal}
