"""What the tests of the generators share: small settings at a fixed time, and whole tables."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.generate import GeneratorSettings

END = 1_767_225_600.0  # a whole day, hour and minute
MINUTE_NS = 60_000_000_000


def small(**changes: Any) -> GeneratorSettings:  # noqa: ANN401 - any field of the settings
    """Return settings that take milliseconds, at a time that does not move."""
    chosen: dict[str, Any] = {"spans": 5_000, "end": END, "points": 200, "logs": 300}
    return GeneratorSettings(**{**chosen, **changes})


def whole(
    generate: Callable[[GeneratorSettings], Iterator[pa.Table]], settings: GeneratorSettings
) -> pa.Table:
    """Return all that *generate* makes, in one piece: equal rows make equal tables."""
    return pa.concat_tables(generate(settings)).combine_chunks()
