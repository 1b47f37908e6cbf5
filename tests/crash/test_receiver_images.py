"""A landing that is stopped before any call to the disk, or whose machine loses power there.

What a process would find afterwards is taken as an image; a landing that opens it must land all
that was promised once, and nothing twice.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from penstock.telemetry import Signal
from tests.support.disks import ImagingDisk, ScriptedDisk
from tests.support.receiver import check_folder
from tests.unit.land.rig import BROKEN, broken_record, eventually_converted, landing_on, record_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.land.landing import Landing
    from tests.support.disks import Image

SPANS = Signal.SPANS
SEGMENT_BYTES = 400  # three requests or so


def commit(landing: Landing, disk: ImagingDisk, *ids: int) -> None:
    """Commit one request for each id, and promise them."""
    landing.commit(SPANS, [record_of(number) for number in ids])
    disk.promise(ids)


def live(folder: Path) -> ImagingDisk:
    """Lead a landing through its life: groups, full segments, a failed group, a broken request."""
    disk = ImagingDisk(folder)
    with landing_on(folder, disk, segment_bytes=SEGMENT_BYTES) as landing:
        commit(landing, disk, 1)
        commit(landing, disk, 2, 3, 4, 5)
        eventually_converted(landing)
        assert landing.stats().files[SPANS] == 1
        commit(landing, disk, 6)
        # Written, but not known to be; it stays in the segment, and is sent again.
        disk.fail("^sync .*wal", errno.EIO)
        disk.fail("truncate", errno.EIO)
        disk.fail("create .*tmp")  # so that both segments are left for others
        with pytest.raises(OSError, match="Input/output"):
            commit(landing, disk, 7)
        disk.mend()
        disk.fail("create .*tmp")
        commit(landing, disk, 7)
        landing.commit(SPANS, [broken_record()])
        commit(landing, disk, 8)
        disk.mend()
    disk.take_images("at the end")
    return disk


def is_doubled(image: Image, digest: bytes) -> bool:
    """Whether a request is in two segments."""
    return sum(digest in data for name, data in image.files.items() if name.endswith("wal")) == 2


def recover(image: Image, folder: Path, disk: ScriptedDisk) -> None:
    """Open what the image shows, and check what lands."""
    folder.mkdir(exist_ok=True)
    image.put_into(folder)
    if isinstance(disk, ImagingDisk):
        disk.adopt()
        disk.promise(sorted(image.promised))
    with landing_on(folder, disk):
        pass
    landed = check_folder(folder, image.promised)
    assert set(landed) <= set(range(1, 9)), image.moment
    for path in (folder / "rejected" / "spans").glob("*.otlp"):
        assert path.read_bytes() == BROKEN


def check_all(images: Sequence[Image], folder: Path) -> None:
    """Recover from every image, each on its own."""
    folder.mkdir()
    for number, image in enumerate(images):
        place = folder / str(number)
        try:
            recover(image, place, ScriptedDisk(place))
        except AssertionError as error:
            raise AssertionError(f"image {number}, {image.moment}: {error}") from error


def test_killed_before_any_call_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """Every image holds what was promised until then, the last one all."""
    disk = live(tmp_path / "landing")
    assert len(disk.killed) > 50
    assert disk.killed[-1].promised == set(range(1, 9))
    assert any(is_doubled(image, record_of(7).digest) for image in disk.killed)
    check_all(disk.killed, tmp_path / "killed")


def test_without_power_at_any_call_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """Of files there is only what was synced, under names that were synced."""
    disk = live(tmp_path / "landing")
    assert sum(".wal" in name for name in disk.unplugged[-1].files) > 0
    check_all(disk.unplugged, tmp_path / "unplugged")


def test_a_file_that_was_consumed_meanwhile_is_not_landed_again(tmp_path: Path) -> None:
    """Where a segment and its file are both left, the aggregation may be quicker."""
    disk = live(tmp_path / "landing")
    consumed = 0
    for number, image in enumerate(disk.killed):
        folder = tmp_path / str(number)
        image.put_into(folder)
        target = folder / "consumed" / "spans"
        target.mkdir(parents=True)
        for path in (folder / "spans").glob("[!.]*"):
            path.rename(target / path.name)
            consumed += (folder / ".wal" / "spans" / f"{path.stem}.wal").exists()
        with landing_on(folder):
            pass
        check_folder(folder, image.promised)
    assert consumed > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["killed", "unplugged"])
def test_killed_again_while_it_recovers_nothing_is_lost_or_doubled(
    kind: str, tmp_path: Path
) -> None:
    """At any call of the recovery, from any image."""
    disk = live(tmp_path / "landing")
    for number, image in enumerate(disk.killed):
        folder = tmp_path / str(number)
        second = ImagingDisk(folder)
        recover(image, folder, second)
        check_all(getattr(second, kind), tmp_path / f"{number} again")
