"""What a request does: the steps of one journey through the system, each of which is a span.

A journey starts at the gateway, reaches one endpoint of one service and from there a cache, a
database, further services and a broker. All that spans of a journey say is decided here, once;
making rows is then a matter of looking steps up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.generate._world import GATEWAY, endpoint_texts
from penstock.telemetry import SpanKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.generate._world import Backend, Service, World

__all__ = ["Step", "plan_journey"]

NOWHERE = -1
_TABLES = "orders customers items invoices parcels sessions offers stocks events carts".split()
_READS = ("GET", "HGETALL", "MGET", "ZRANGE", "EXISTS")
_WRITES = ("SET", "DEL", "HSET", "INCR", "EXPIRE")
_OTHERS = ("PING", "PUBLISH", "EVAL")
_MEMCACHED = ("gets", "set", "stats")
_TIERS = ("free", "silver", "gold")
_REGIONS = ("eu-central", "eu-west", "us-east", "ap-south")


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


class _Plan:
    """The steps so far, and the chances of this journey."""

    def __init__(self, world: World, rng: np.random.Generator, *, complete: bool) -> None:
        self.world = world
        self.steps: list[Step] = []
        self._rng = rng
        self._complete = complete

    def add(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def has(self, chance: float) -> bool:
        """Return whether this journey does something; the complete one does everything."""
        return bool(self._rng.random() < chance) or self._complete

    def lacks(self, chance: float) -> bool:
        """Return whether something is missing from this journey; never from the complete one."""
        return bool(self._rng.random() < chance) and not self._complete

    def pick(self, options: Sequence[str]) -> str:
        return options[min(int(self._rng.zipf(1.6)), len(options)) - 1]

    def number(self, below: int) -> int:
        return int(self._rng.integers(0, below))

    def spread(self, median: float, sigma: float = 0.6) -> float:
        return float(median * np.exp(sigma * self._rng.standard_normal()))


def plan_journey(
    world: World, rng: np.random.Generator, number: int, target: tuple[int, int], endpoints: int
) -> list[Step]:
    """Return the steps of journey *number*, which is to reach endpoint ``target[1]`` of a service.

    The first journey has everything in it, so that the smallest system feeds every metric.
    """
    plan = _Plan(world, rng, complete=number == 0)
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


def _serve(
    plan: _Plan, target: tuple[int, int], caller: tuple[int, int] | None, parent: int
) -> int:
    """Add the server's span of a request, which may or may not know who called."""
    service = plan.world.services[target[0]]
    texts: dict[str, str | int] = dict(endpoint_texts(service, target[1]))
    name = _span_name(texts)
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
            tags=_tags(plan),
            median_ms=plan.spread(4.0),
            sigma=0.8,
            stall_ms=1_000.0,
        )
    )


def _name_caller(plan: _Plan, texts: dict[str, str | int], caller: tuple[int, int]) -> int:
    service = plan.world.services[caller[0]]
    texts["peer_service"] = service.name
    if plan.has(0.9):
        names = endpoint_texts(service, caller[1])
        texts["peer_endpoint"] = _endpoint(names)
    if plan.has(0.85):
        return caller[0]
    texts["client_address"] = f"10.0.{caller[0] % 256}.1"
    return NOWHERE


def _call(plan: _Plan, source: tuple[int, int], target: tuple[int, int], parent: int) -> int:
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
            name=_span_name(texts),
            parent=parent,
            peer=target[0] if is_named and plan.has(0.8) else NOWHERE,
            texts=texts,
            median_ms=plan.spread(0.8),
            stall_ms=2_000.0,
        )
    )
    return _serve(plan, target, caller=source, parent=client)


def _work(plan: _Plan, target: tuple[int, int], parent: int, *, light: bool = False) -> None:
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
        _ask_cache(plan, target[0], service.cache, _READS, parent)
    if plan.has(0.8):
        _ask_database(plan, target[0], service.database, parent)
    if not light and plan.has(0.4):
        _ask_cache(plan, target[0], service.cache, _WRITES, parent)
    if not light and plan.has(0.05):
        _ask_cache(plan, target[0], service.cache, _OTHERS, parent)


def _ask_cache(
    plan: _Plan, service: int, cache: Backend, commands: Sequence[str], parent: int
) -> None:
    command = plan.pick(commands)
    if cache.system == "memcached":
        command = _MEMCACHED[(_READS, _WRITES, _OTHERS).index(tuple(commands))]
    key = f"{plan.pick(_TABLES)}:{plan.number(50)}"
    texts = _reach(cache)
    if not plan.lacks(0.1):
        texts["db_operation"] = command
    if not plan.lacks(0.1):
        texts["db_statement"] = f"{command} {key}"
    is_slow = plan.has(0.1)
    plan.add(
        Step(
            kind=SpanKind.CLIENT,
            service=service,
            name=command,
            parent=parent,
            texts=texts,
            median_ms=plan.spread(12.0 if is_slow else 0.4, 0.4),
            stall_ms=25.0,
        )
    )


def _ask_database(plan: _Plan, service: int, database: Backend, parent: int) -> None:
    table = plan.pick(_TABLES)
    operation, statement = _statement(plan, database.system, table)
    texts = _reach(database)
    if not plan.lacks(0.1):
        texts["db_namespace"] = "shop"
    if not plan.lacks(0.1):
        texts["db_operation"] = operation
    if not plan.lacks(0.15):
        texts["db_statement"] = statement
    is_slow = plan.has(0.08)
    plan.add(
        Step(
            kind=SpanKind.CLIENT,
            service=service,
            name=f"{operation} {table}",
            parent=parent,
            texts=texts,
            tags={"region": plan.pick(_REGIONS)} if plan.has(0.3) else None,
            median_ms=plan.spread(180.0 if is_slow else 3.0, 0.5),
            sigma=0.9,
            stall_ms=250.0,
        )
    )


def _statement(plan: _Plan, system: str, table: str) -> tuple[str, str]:
    variant = min(int(plan.number(8) ** 1.3), 9)
    if system == "mongodb":
        operation = plan.pick(("find", "update", "insert", "aggregate"))
        return operation, f'{{"{operation}": "{table}", "filter": {{"f{variant}": "?"}}}}'
    operation = plan.pick(("SELECT", "UPDATE", "INSERT", "DELETE"))
    match operation:
        case "SELECT":
            text = f"SELECT * FROM {table} WHERE c{variant} = ? ORDER BY id LIMIT 100"
        case "UPDATE":
            text = f"UPDATE {table} SET c{variant} = ? WHERE id = ?"
        case "INSERT":
            text = f"INSERT INTO {table} (id, c{variant}) VALUES (?, ?)"
        case _:
            text = f"DELETE FROM {table} WHERE c{variant} < ?"
    return operation, text


def _message(plan: _Plan, target: tuple[int, int], parent: int) -> None:
    """Add a message: its sender's span, its receiver's, and what the receiver then does."""
    service = plan.world.services[target[0]]
    broker = service.broker
    destination = f"{service.name}.{_TABLES[target[1] % 4]}"
    texts = _reach(broker, "messaging_system")
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
            texts["peer_endpoint"] = _endpoint(endpoint_texts(service, target[1]))
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
            tags=_tags(plan),
            median_ms=plan.spread(8.0),
            sigma=0.8,
            stall_ms=1_000.0,
            times_transit=not plan.lacks(0.1),
        )
    )
    database = plan.world.services[service.consumer].database
    _ask_database(plan, service.consumer, database, received)


def _reach(backend: Backend, system: str = "db_system") -> dict[str, str | int]:
    texts: dict[str, str | int] = {system: backend.system}
    if backend.address is not None:
        texts["server_address"] = backend.address
    if backend.port is not None:
        texts["server_port"] = backend.port
    if backend.peer is not None:
        texts["peer_service"] = backend.peer
    return texts


def _tags(plan: _Plan) -> dict[str, str] | None:
    if plan.lacks(0.05):
        return None
    tags = {"user.tier": plan.pick(_TIERS), "region": plan.pick(_REGIONS)}
    if plan.has(0.1):
        tags["canary"] = "true"
    return tags


def _endpoint(texts: dict[str, str]) -> str:
    if "http_route" in texts:
        return f"{texts['http_method']} {texts['http_route']}"
    return f"{texts['rpc_service']}/{texts['rpc_method']}"


def _span_name(texts: dict[str, str | int]) -> str:
    if "rpc_method" in texts:
        return f"{texts['rpc_service']}/{texts['rpc_method']}"
    route = texts.get("http_route")
    return str(texts["http_method"]) if route is None else f"{texts['http_method']} {route}"
