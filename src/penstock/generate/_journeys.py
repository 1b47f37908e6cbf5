"""What a request does: the steps of one journey through the system, each of which is a span.

A journey starts at the gateway, reaches one endpoint of one service and from there a cache, a
database, further services and a broker. All that spans of a journey say is decided here, once;
making rows is then a matter of looking steps up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.generate._backends import (
    OTHERS,
    READS,
    TABLES,
    WRITES,
    ask_cache,
    ask_database,
    reach,
)
from penstock.generate._steps import NOWHERE, Plan, Step, endpoint, span_name, tags
from penstock.generate._world import GATEWAY, endpoint_texts
from penstock.telemetry import SpanKind

if TYPE_CHECKING:
    import numpy as np

    from penstock.generate._world import World

__all__ = ["plan_journey"]


def plan_journey(
    world: World, rng: np.random.Generator, number: int, target: tuple[int, int], endpoints: int
) -> list[Step]:
    """Return the steps of journey *number*, which is to reach endpoint ``target[1]`` of a service.

    The first journey has everything in it, so that the smallest system feeds every metric.
    """
    plan = Plan(world, rng, complete=number == 0)
    entry = (GATEWAY, number % endpoints)
    root = _serve(plan, entry, caller=None, parent=NOWHERE)
    served = _call(plan, entry, target, parent=root)
    _work(plan, target, served)
    calls = world.services[target[0]].calls
    if calls and plan.has(0.6):
        callee = (calls[number % len(calls)], (target[1] + 1) % endpoints)
        _work(plan, callee, _call(plan, target, callee, parent=served), light=True)
    if plan.has(0.3):
        _message(plan, target, served)
    return plan.steps


def _serve(plan: Plan, target: tuple[int, int], caller: tuple[int, int] | None, parent: int) -> int:
    """Add the server's span of a request, which may or may not know who called."""
    service = plan.world.services[target[0]]
    texts: dict[str, str | int] = dict(endpoint_texts(service, target[1]))
    name = span_name(texts)
    if service.protocol == "http":
        texts["url_path"] = str(texts["http_route"]).replace("{id}", "4711")
        if plan.lacks(0.03):
            del texts["http_route"]
            name = str(texts["http_method"])
    peer = NOWHERE
    if caller is None:
        texts["client_address"] = f"203.0.113.{plan.number(16)}"
    elif plan.has(0.7):
        peer = _name_caller(plan, texts, caller)
    return plan.add(
        Step(
            kind=SpanKind.SERVER,
            service=target[0],
            name=name,
            parent=parent,
            caller=caller is not None,
            peer=peer,
            anonymous=plan.lacks(0.02),
            texts=texts,
            tags=tags(plan),
            median_ms=plan.spread(4.0),
            sigma=0.8,
            stall_ms=1_000.0,
        )
    )


def _name_caller(plan: Plan, texts: dict[str, str | int], caller: tuple[int, int]) -> int:
    service = plan.world.services[caller[0]]
    texts["peer_service"] = service.name
    if plan.has(0.9):
        names = endpoint_texts(service, caller[1])
        texts["peer_endpoint"] = endpoint(names)
    if plan.has(0.85):
        return caller[0]
    texts["client_address"] = f"10.0.{caller[0] % 256}.1"
    return NOWHERE


def _call(plan: Plan, source: tuple[int, int], target: tuple[int, int], parent: int) -> int:
    """Add the two ends of a call; return the server's."""
    service = plan.world.services[target[0]]
    texts: dict[str, str | int] = dict(endpoint_texts(service, target[1]))
    if service.protocol == "http":
        texts["url_path"] = str(texts.pop("http_route")).replace("{id}", "4711")
    texts["server_address"] = f"{service.name}.svc.internal"
    if plan.has(0.8):
        texts["server_port"] = 8080 if service.protocol == "http" else 9090
    is_named = plan.has(0.85)
    if is_named:
        texts["peer_service"] = service.name
    client = plan.add(
        Step(
            kind=SpanKind.CLIENT,
            service=source[0],
            name=span_name(texts),
            parent=parent,
            peer=target[0] if is_named and plan.has(0.8) else NOWHERE,
            texts=texts,
            median_ms=plan.spread(0.8),
            stall_ms=2_000.0,
        )
    )
    return _serve(plan, target, caller=source, parent=client)


def _work(plan: Plan, target: tuple[int, int], parent: int, *, light: bool = False) -> None:
    """Add what a service does for a request: compute, ask its cache, ask its database."""
    service = plan.world.services[target[0]]
    if not light and plan.has(0.5):
        plan.add(
            Step(
                kind=SpanKind.INTERNAL,
                service=target[0],
                name=plan.pick(("render", "validate", "authorise", "convert")),
                parent=parent,
                # Half of them end in the nanosecond they began.
                median_ms=plan.spread(1.0) if plan.lacks(0.5) else 0.0,
            )
        )
    if not light and plan.has(0.7):
        ask_cache(plan, target[0], service.cache, READS, parent)
    if plan.has(0.8):
        ask_database(plan, target[0], service.database, parent)
    if not light and plan.has(0.4):
        ask_cache(plan, target[0], service.cache, WRITES, parent)
    if not light and plan.has(0.05):
        ask_cache(plan, target[0], service.cache, OTHERS, parent)


def _message(plan: Plan, target: tuple[int, int], parent: int) -> None:
    """Add a message: its sender's span, its receiver's, and what the receiver then does."""
    service = plan.world.services[target[0]]
    broker = service.broker
    destination = f"{service.name}.{TABLES[target[1] % 4]}"
    texts = reach(broker, "messaging_system")
    if not plan.lacks(0.05):
        texts["messaging_destination"] = destination
    # Some clients send with a span of kind CLIENT and say in an attribute what it was.
    is_producer = not plan.lacks(0.2)
    sent = plan.add(
        Step(
            kind=SpanKind.PRODUCER if is_producer else SpanKind.CLIENT,
            service=target[0],
            name=f"send {destination}",
            parent=parent,
            texts={**texts, "messaging_operation": "publish"},
            median_ms=plan.spread(1.5),
            stall_ms=500.0,
        )
    )
    texts["messaging_operation"] = "process"
    if plan.has(0.2):
        texts["peer_service"] = service.name
        if plan.has(0.7):
            texts["peer_endpoint"] = endpoint(endpoint_texts(service, target[1]))
    received = plan.add(
        Step(
            kind=SpanKind.CONSUMER,
            service=service.consumer,
            name=f"process {destination}",
            parent=sent,
            peer=target[0] if "peer_service" in texts and plan.has(0.8) else NOWHERE,
            detached=True,
            anonymous=plan.lacks(0.02),
            texts=dict(texts),
            tags=tags(plan),
            median_ms=plan.spread(8.0),
            sigma=0.8,
            stall_ms=1_000.0,
            times_transit=not plan.lacks(0.1),
        )
    )
    database = plan.world.services[service.consumer].database
    ask_database(plan, service.consumer, database, received)
