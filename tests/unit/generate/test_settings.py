"""Settings of the generator: what they refuse, and what they settle once."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest

from penstock.errors import ConfigError
from penstock.generate import GeneratorSettings
from penstock.generate.settings import LIMITS
from tests.unit.generate.rig import END, small


@pytest.mark.parametrize("field", LIMITS)
def test_a_whole_number_out_of_its_range_is_refused_by_name(field: str) -> None:
    """The message names the field, the value and what is allowed; the bounds themselves pass."""
    least, most = LIMITS[field]
    for wrong in (least - 1, most + 1, float(least), str(least), True):
        with pytest.raises(ConfigError, match=f"{field} must be a whole number from {least:,} to"):
            small(**{field: wrong})
    assert getattr(small(**{field: least}), field) == least


@pytest.mark.parametrize("field", ["late", "error_rate"])
@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, math.inf, "1", None, True])
def test_a_share_is_a_number_from_0_to_1(field: str, wrong: object) -> None:
    """Anything else is refused with the name of the field."""
    with pytest.raises(ConfigError, match=f"{field} must be a number from 0 to 1, not"):
        small(**{field: wrong})


@pytest.mark.parametrize("wrong", [0.0, 59.9, 8 * 86_400.0, math.inf])
def test_lateness_is_between_a_minute_and_a_week(wrong: float) -> None:
    """Less than a minute would not be late."""
    with pytest.raises(ConfigError, match="lateness must be a number from 60 to 604,800"):
        small(lateness=wrong)


@pytest.mark.parametrize(("field", "each"), [("endpoints", 11), ("instances", 51)])
def test_a_system_too_large_to_plan_is_refused(field: str, each: int) -> None:
    """Both factors are named, since either could be lowered."""
    with pytest.raises(ConfigError, match=rf"services \(2000\) times {field} \({each}\) must be"):
        small(services=2_000, **{"endpoints": 1, "instances": 1, field: each})


def test_telemetry_ends_with_the_last_full_minute_by_default() -> None:
    """The clock is read once, when the settings are made, and rounded down."""
    settings = GeneratorSettings(minutes=3, wall_clock=lambda: END + 119.9)
    assert settings.end == END + 60
    assert settings.end_ns - settings.start_ns == 180 * 10**9
    assert replace(settings, seed=2).end == END + 60


def test_an_end_before_all_rows_would_lie_in_1970_is_refused() -> None:
    """Times are never negative."""
    with pytest.raises(ConfigError, match="end must be a number from 7,800 to"):
        small(end=7_799.0)


def test_settings_do_not_change() -> None:
    """A variant is made with dataclasses.replace."""
    with pytest.raises(FrozenInstanceError):
        small().spans = 3  # type: ignore[misc] # that is the point
