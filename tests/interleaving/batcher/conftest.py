"""What holds for every test of a batcher."""

from tests.unit.batcher.rig import no_rig_is_left_open

__all__ = ["no_rig_is_left_open"]
