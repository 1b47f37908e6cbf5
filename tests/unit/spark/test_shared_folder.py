"""Executors that do not see the landing folder: a mistake of the set-up, not of the files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import JobError
from tests.support.spark import LocalFrame
from tests.unit.spark.rig import JobRig


class Elsewhere(LocalFrame):
    """Runs its tasks as a host would that has nothing under the landing folder's path."""

    def __init__(self, names: list[str], root: Path) -> None:
        super().__init__(names)
        self._root = root

    def _run(
        self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        hidden = self._root.with_name("hidden")
        self._root.rename(hidden)
        results = list(super()._run(function))
        hidden.rename(self._root)
        yield from results


def test_files_that_only_the_driver_sees_stop_the_job(tmp_path: Path) -> None:
    """Nothing is set aside: the files are whole, and the folder is not shared."""
    rig = JobRig(tmp_path)
    names = [rig.land("a", 10), rig.land("b", 20)]
    with pytest.raises(JobError, match=r"do not see spans/a\.parquet .* shared by all hosts"):
        rig.job()(Elsewhere(names, rig.landing.root), 0)  # type: ignore[arg-type]
    assert rig.pending() == names
    assert rig.landing.rejected() == []
    rig.store.close()
