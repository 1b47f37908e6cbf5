"""The parts of a journey's plan: steps, the chances that decide between them, and names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.generate._world import World
    from penstock.telemetry import SpanKind

__all__ = ["NOWHERE", "REGIONS", "Plan", "Step", "endpoint", "span_name", "tags"]

NOWHERE = -1
REGIONS = ("eu-central", "eu-west", "us-east", "ap-south")
_TIERS = ("free", "silver", "gold")


@dataclass(slots=True, kw_only=True)
class Step:
    """One span of a journey, as far as it is the same each time."""

    kind: SpanKind
    service: int
    name: str
    parent: int = NOWHERE  # the step that it belongs to; steps are in the order in which they begin
    caller: bool = False  # fails when the step just before it fails: the two ends of one call
    peer: int = NOWHERE  # the service whose instance is peer_instance
    anonymous: bool = False  # does not name its instance
    detached: bool = False  # begins by itself, after a message has travelled
    texts: dict[str, str | int] = field(default_factory=dict)
    tags: dict[str, str] | None = None
    median_ms: float = 1.0  # of its own time, without what it calls
    sigma: float = 0.6
    stall_ms: float = 0.0  # a few take exactly this long: a timeout
    times_transit: bool = False


class Plan:
    """The steps so far, and the chances of this journey."""

    def __init__(self, world: World, rng: np.random.Generator, *, complete: bool) -> None:
        self.world = world
        self.steps: list[Step] = []
        self._rng = rng
        self._complete = complete

    def add(self, step: Step) -> int:
        """Append *step*; return its number."""
        self.steps.append(step)
        return len(self.steps) - 1

    def has(self, chance: float) -> bool:
        """Return whether this journey does something; the complete one does everything."""
        return bool(self._rng.random() < chance) or self._complete

    def lacks(self, chance: float) -> bool:
        """Return whether something is missing from this journey; never from the complete one."""
        return bool(self._rng.random() < chance) and not self._complete

    def pick(self, options: Sequence[str]) -> str:
        """Return one of *options*, the earlier ones more often, as ranks fall in nature."""
        return options[int((len(options) + 1) ** self._rng.random()) - 1]

    def number(self, below: int) -> int:
        """Return any whole number below *below*."""
        return int(self._rng.integers(0, below))

    def spread(self, median: float, sigma: float = 0.6) -> float:
        """Return a number around *median*, as times are spread."""
        return float(median * np.exp(sigma * self._rng.standard_normal()))


def tags(plan: Plan) -> dict[str, str] | None:
    """Return attributes that no convention knows, for rules that read tags."""
    if plan.lacks(0.05):
        return None
    chosen = {"user.tier": plan.pick(_TIERS), "region": plan.pick(REGIONS)}
    if plan.has(0.1):
        chosen["canary"] = "true"
    return chosen


def endpoint(texts: dict[str, str]) -> str:
    """Return the name of the endpoint that *texts* describe."""
    if "http_route" in texts:
        return f"{texts['http_method']} {texts['http_route']}"
    return f"{texts['rpc_service']}/{texts['rpc_method']}"


def span_name(texts: dict[str, str | int]) -> str:
    """Return what SDKs call the span of a request."""
    if "rpc_method" in texts:
        return f"{texts['rpc_service']}/{texts['rpc_method']}"
    route = texts.get("http_route")
    return str(texts["http_method"]) if route is None else f"{texts['http_method']} {route}"
