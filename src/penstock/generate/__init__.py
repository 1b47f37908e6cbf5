"""Made-up telemetry that looks like that of a real system, for demonstrations and measurements."""

from penstock.generate.landing import GeneratedSummary, LandingError, write_landing
from penstock.generate.logs import generate_logs
from penstock.generate.points import generate_points
from penstock.generate.settings import GeneratorSettings
from penstock.generate.spans import generate_spans

__all__ = [
    "GeneratedSummary",
    "GeneratorSettings",
    "LandingError",
    "generate_logs",
    "generate_points",
    "generate_spans",
    "write_landing",
]
