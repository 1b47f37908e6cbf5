"""Commits, the clock and the end, each between two steps of the landing's own thread."""

import threading
from pathlib import Path

from penstock.land.landing import Landing, LandingSettings
from penstock.telemetry import Signal
from penstock.testing import FakeClock, eventually
from tests.interleaving.forcing import WAIT, Gate
from tests.support.disks import ScriptedDisk
from tests.support.receiver import check_folder
from tests.unit.land.rig import record_of, segments_of

SPANS = Signal.SPANS


def stop_after_sealing(landing: Landing) -> Gate:
    """Have the thread stop when it has sealed what was due, before it decides what to do."""
    gate = Gate()
    last = list(landing._logs.values())[-1]
    seal = last.seal

    def gated(age: float = 0.0) -> None:
        seal(age)
        gate.pass_through()

    last.seal = gated  # type: ignore[method-assign] # a step of the thread's, made visible
    return gate


def opened(folder: Path, clock: FakeClock, disk: ScriptedDisk | None = None) -> Landing:
    """Return a landing whose thread waits."""
    settings = LandingSettings(folder=folder, segment_age=2.0)
    landing = Landing(settings, clock=clock, disk=disk or ScriptedDisk(folder))
    landing.open()
    clock.await_sleepers(1)
    return landing


def test_an_end_that_comes_after_sealing_leaves_no_segment(tmp_path: Path) -> None:
    """What was open then is sealed and converted before the thread ends."""
    landing = opened(tmp_path, FakeClock())
    gate = stop_after_sealing(landing)
    landing.commit(SPANS, [record_of(1)])
    gate.await_arrival()
    done: list[bool] = []
    closer = threading.Thread(target=lambda: done.append(landing.close(30.0)))
    closer.start()
    eventually(lambda: landing._is_closing)
    gate.open()
    closer.join(WAIT)
    assert done == [True]
    assert segments_of(tmp_path) == []
    check_folder(tmp_path, [1])


def test_a_segment_that_falls_due_after_sealing_lands_in_time(tmp_path: Path) -> None:
    """Not only when the next request comes."""
    clock = FakeClock()
    landing = opened(tmp_path, clock)
    gate = stop_after_sealing(landing)
    landing.commit(SPANS, [record_of(1)])
    gate.await_arrival()
    clock.advance(2.0)
    gate.open()
    eventually(lambda: landing.stats().files[SPANS] == 1)
    assert landing.close(30.0)
    check_folder(tmp_path, [1])


def test_a_segment_that_fills_up_during_a_conversion_is_converted_next(tmp_path: Path) -> None:
    """Requests are taken while the thread is at work, and their segments wait for it."""
    gate = Gate()

    class GatedDisk(ScriptedDisk):
        """A disk on which the first file stops before it gets its name."""

        def rename(self, source: Path, target: Path) -> None:
            if target.suffix == ".parquet":
                gate.pass_through()
            super().rename(source, target)

    clock = FakeClock()
    landing = opened(tmp_path, clock, GatedDisk(tmp_path))
    landing.commit(SPANS, [record_of(1)])
    clock.advance(2.0)
    gate.await_arrival()
    landing.commit(SPANS, [record_of(2)])
    landing._logs[SPANS].seal()
    assert landing.stats().segments_waiting == 2
    gate.open()
    eventually(lambda: landing.stats().files[SPANS] == 2)
    assert landing.close(30.0)
    check_folder(tmp_path, [1, 2])
