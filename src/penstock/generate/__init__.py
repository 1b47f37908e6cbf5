"""Made-up telemetry that looks like that of a real system, for demonstrations and measurements."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.generate.settings import GeneratorSettings

if TYPE_CHECKING:
    from penstock.generate.landing import GeneratedSummary, write_landing
    from penstock.generate.logs import generate_logs
    from penstock.generate.points import generate_points
    from penstock.generate.spans import generate_spans

__all__ = [
    "GeneratedSummary",
    "GeneratorSettings",
    "generate_logs",
    "generate_points",
    "generate_spans",
    "write_landing",
]

# Loaded when they are asked for: the command line reads the settings' limits for its help, which
# has to work without numpy and pyarrow.
_MODULES = {
    "GeneratedSummary": "landing",
    "generate_logs": "logs",
    "generate_points": "points",
    "generate_spans": "spans",
    "write_landing": "landing",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as different as what is exported
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
