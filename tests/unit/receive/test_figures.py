"""Every figure of a receiver is there from the first scrape on, and counts what it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from penstock.land.landing import Landing, LandingSettings
from penstock.prometheus import BatcherCollector, FigureCollector, QueueCollector, exposition
from penstock.receive.figures import receiver_figures
from penstock.receive.intake import Intake
from penstock.receive.outcome import Verdict
from penstock.receive.settings import ReceiveSettings
from penstock.telemetry.schema import Signal
from tests.unit.receive.rig import PATIENCE, payload

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    "receive_requests": ("signal", "outcome"),
    "receive_records": ("signal",),
    "receive_rejected_records": ("signal", "field"),
    "receive_repeated_requests": ("signal",),
    "receive_under_way_bytes": (),
    "landing_requests": ("signal",),
    "landing_groups": ("signal",),
    "landing_committed_bytes": ("signal",),
    "landing_files": ("signal",),
    "landing_records": ("signal",),
    "landing_set_aside_requests": ("signal",),
    "landing_repeated_requests": ("signal",),
    "landing_rejected_records": ("signal", "field"),
    "landing_commit_seconds": (),
    "landing_commit_errors": (),
    "landing_conversion_errors": (),
    "landing_segments_waiting": (),
    "landing_disk_bytes": (),
    "landing_disk_cap_bytes": (),
    "landing_in_trouble": (),
}


async def scenario(folder: Path, *requests: tuple[Signal, bytes]) -> tuple[Intake, Landing]:
    """Receive *requests*, land them, and return what can be asked for figures."""
    landing = Landing(LandingSettings(folder=folder))
    intake = Intake(landing, ReceiveSettings())
    intake.remember(landing.open())
    for signal, request in requests:
        await intake.accept(signal, request)
    await intake.drain(PATIENCE)
    landing.close(PATIENCE)
    return intake, landing


def test_every_figure_is_there_before_anything_came(tmp_path: Path) -> None:
    """A dashboard finds its names, and all combinations that are known beforehand, at zero."""
    figures = {f.name: f for f in receiver_figures(*asyncio.run(scenario(tmp_path)))}
    assert {name: figure.labels for name, figure in figures.items()} == EXPECTED
    outcomes = figures["receive_requests"].samples
    assert set(outcomes) == {(signal, verdict) for signal in Signal for verdict in Verdict}
    assert not any(outcomes.values())
    for name, labels in EXPECTED.items():
        if labels == ("signal",):
            assert figures[name].samples == {(signal,): 0 for signal in Signal}


def test_the_figures_count_what_came(tmp_path: Path) -> None:
    """From the request to the file; a repeated one counts once."""
    logs = payload(Signal.LOGS, "a", 3)
    intake, landing = asyncio.run(
        scenario(
            tmp_path,
            (Signal.SPANS, payload(Signal.SPANS, "a", 2, 1)),
            (Signal.LOGS, logs),
            (Signal.LOGS, logs),
            (Signal.POINTS, b"\xff"),
        )
    )
    figures = {figure.name: figure.samples for figure in receiver_figures(intake, landing)}
    assert figures["receive_requests"][Signal.LOGS, Verdict.ACCEPTED] == 2
    assert figures["receive_requests"][Signal.POINTS, Verdict.MALFORMED] == 1
    assert figures["receive_records"] == {("spans",): 2, ("points",): 0, ("logs",): 3}
    assert figures["receive_rejected_records"] == {("spans", "trace_id"): 1}
    assert figures["receive_repeated_requests"][("logs",)] == 1
    assert figures["landing_requests"] == {("spans",): 1, ("points",): 0, ("logs",): 1}
    assert figures["landing_records"] == {("spans",): 2, ("points",): 0, ("logs",): 3}
    assert figures["landing_rejected_records"] == {("spans", "trace_id"): 1}
    assert figures["landing_files"] == {("spans",): 1, ("points",): 0, ("logs",): 1}
    assert figures["landing_in_trouble"] == {(): 0}
    assert figures["landing_disk_bytes"][()] > 0


def test_the_exposition_of_all_parts_can_be_parsed(tmp_path: Path) -> None:
    """The receiver, its queue and its batchers in one text, no series twice."""
    intake, landing = asyncio.run(
        scenario(tmp_path, (Signal.SPANS, payload(Signal.SPANS, "a", 2, 1)))
    )
    scrape = exposition(
        [
            FigureCollector(lambda: receiver_figures(intake, landing)),
            QueueCollector(intake.queues),
            BatcherCollector(intake.batchers.values()),
        ]
    )
    text, content_type = scrape()
    assert content_type.startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert {f"penstock_{name}" for name in EXPECTED} <= set(families)
    samples = [
        (sample.name, *sorted(sample.labels.items()))
        for family in families.values()
        for sample in family.samples
    ]
    assert len(samples) == len(set(samples))
    accepted = {
        sample.labels["batcher"]: sample.value
        for sample in families["penstock_batcher_accepted"].samples
    }
    assert accepted == {"receive.spans": 1, "receive.points": 0, "receive.logs": 0}
