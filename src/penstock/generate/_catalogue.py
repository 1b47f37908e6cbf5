"""All steps of all journeys as arrays, so that a span is a number to look them up with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.generate._journeys import plan_journey
from penstock.generate._steps import NOWHERE, Step
from penstock.generate._world import GATEWAY, World, build_world, resource_maps, zipf
from penstock.telemetry import PROMOTED, SPANS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.generate.settings import GeneratorSettings

__all__ = ["Catalogue", "Floats", "Integers", "build_catalogue"]

Integers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
Flags: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]

# Columns that a step settles by itself; the other promoted ones differ from span to span.
_SETTLED = [
    name
    for name in PROMOTED.values()
    if name not in {"peer_instance", "http_status_code", "rpc_status_code", "transmission_latency"}
]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Journeys are runs of steps; everything else is one value for each step."""

    world: World
    # For each journey.
    first: Integers
    length: Integers
    chances: np.ndarray[tuple[int], np.dtype[np.float64]]  # cumulative
    # For each step.
    columns: dict[str, pa.Array]
    service: Integers
    peer: Integers
    parent: Integers  # how many steps before
    subtree: Integers  # steps that its time includes, itself too
    caller: Integers  # 1 if it shares the outcome of the step before
    anonymous: Flags
    detached: Flags
    has_transit: Flags
    is_http: Flags
    is_grpc: Flags
    median_ns: Floats
    sigma: Floats
    stall_ns: Integers
    # For each instance; and one more name, which is empty.
    instances: pa.Array
    resources: pa.Array


def build_catalogue(settings: GeneratorSettings) -> Catalogue:
    """Return all journeys through the system that *settings* describe."""
    world = build_world(settings)
    targets, weights = _targets(settings)
    rng = np.random.default_rng([settings.seed, 1])
    journeys = [
        plan_journey(world, rng, number, target, settings.endpoints)
        for number, target in enumerate(targets)
    ]
    steps = [step for journey in journeys for step in journey]
    length = np.array([len(journey) for journey in journeys], dtype=np.int64)
    return Catalogue(
        world=world,
        first=np.cumsum(length) - length,
        length=length,
        chances=np.cumsum(weights),
        columns=_columns(world, steps),
        service=_integers(step.service for step in steps),
        peer=_integers(step.peer for step in steps),
        parent=_parents(journeys),
        subtree=_subtrees(journeys),
        caller=_integers(int(step.caller) for step in steps),
        anonymous=_flags(step.anonymous for step in steps),
        detached=_flags(step.detached for step in steps),
        has_transit=_flags(step.times_transit for step in steps),
        is_http=_flags("http_method" in step.texts for step in steps),
        is_grpc=_flags(step.texts.get("rpc_system") == "grpc" for step in steps),
        median_ns=np.array([step.median_ms * 1e6 for step in steps], dtype=np.float32),
        sigma=np.array([step.sigma for step in steps], dtype=np.float32),
        stall_ns=_integers(round(step.stall_ms * 1e6) for step in steps),
        instances=pa.array([*world.instances, ""], pa.string()),
        resources=resource_maps(world),
    )


def _targets(
    settings: GeneratorSettings,
) -> tuple[list[tuple[int, int]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Return every endpoint behind the gateway, and how often it is asked for."""
    services = range(GATEWAY + 1, settings.services)
    targets = [(service, number) for service in services for number in range(settings.endpoints)]
    weights = np.outer(zipf(len(services), 1.5), zipf(settings.endpoints, 1.1)).ravel()
    return targets, weights


def _columns(world: World, steps: Sequence[Step]) -> dict[str, pa.Array]:
    scopes = {service.name: f"io.opentelemetry.{service.language}" for service in world.services}
    names = [world.services[step.service].name for step in steps]
    columns = {
        "kind": pa.array([step.kind for step in steps], pa.int8()),
        "name": pa.array([step.name for step in steps], pa.string()),
        "service_name": pa.array(names, pa.string()),
        "scope_name": pa.array([scopes[name] for name in names], pa.string()),
        "attributes": pa.array(
            [None if step.tags is None else list(step.tags.items()) for step in steps],
            SPANS.field("attributes").type,
        ),
    }
    for name in _SETTLED:
        values = [step.texts.get(name) for step in steps]
        columns[name] = pa.array(values, SPANS.field(name).type)
    return columns


def _parents(journeys: Sequence[Sequence[Step]]) -> Integers:
    """Return by how many steps each one's parent precedes it; 0 where there is none."""
    return _integers(
        0 if step.parent == NOWHERE else number - step.parent
        for journey in journeys
        for number, step in enumerate(journey)
    )


def _subtrees(journeys: Sequence[Sequence[Step]]) -> Integers:
    """Return over how many steps, from itself on, each one lasts."""
    sizes: list[int] = []
    for journey in journeys:
        size = [1] * len(journey)
        for number in reversed(range(len(journey))):
            step = journey[number]
            if step.parent != NOWHERE and not step.detached:
                size[step.parent] += size[number]
        sizes += size
    return _integers(sizes)


def _integers(values: Any) -> Integers:  # noqa: ANN401 - any iterable of whole numbers
    return np.fromiter(values, dtype=np.int64)


def _flags(values: Any) -> Flags:  # noqa: ANN401 - any iterable of booleans
    return np.fromiter(values, dtype=np.bool_)
