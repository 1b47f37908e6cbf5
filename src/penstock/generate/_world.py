"""The made-up system: its services, databases, caches and brokers, and who uses whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from penstock.generate.settings import GeneratorSettings

__all__ = ["Backend", "Service", "World", "build_world", "endpoint_texts", "resource_maps", "zipf"]

GATEWAY = 0
_NAMES = [
    "gateway",
    "checkout",
    "cart",
    "catalog",
    "orders",
    "payments",
    "users",
    "search",
    "shipping",
    "inventory",
    "pricing",
    "reviews",
    "recommendations",
    "notifications",
    "billing",
    "sessions",
    "media",
    "fraud",
    "loyalty",
    "returns",
    "audit",
    "reports",
    "coupons",
    "tax",
    "geo",
    "quotes",
    "exports",
    "imports",
    "ledger",
    "profiles",
]
_NOUNS = [
    "items",
    "orders",
    "customers",
    "carts",
    "offers",
    "invoices",
    "parcels",
    "sessions",
    "reviews",
    "stocks",
]
_METHODS = ("GET", "GET", "POST", "GET", "PUT", "DELETE")
_VERBS = ("Get", "List", "Create", "Update", "Delete", "Check")
_PROTOCOLS = ("http", "grpc", "http", "dubbo")  # by service; the gateway speaks HTTP
_DATABASES = (("postgresql", 5432), ("mysql", 3306), ("mongodb", 27017))
_CACHES = (("redis", 6379), ("memcached", 11211))
_BROKERS = (("kafka", 9092), ("rabbitmq", 5672))
_LANGUAGES = ("java", "go", "python", "nodejs")


@dataclass(frozen=True, slots=True)
class Backend:
    """A database, cache or broker. Without an address, spans name only its system."""

    system: str
    name: str
    address: str | None
    port: int | None
    peer: str | None  # what spans say in peer.service, if anything


@dataclass(frozen=True, slots=True)
class Service:
    """A service, its way to talk and what it depends on."""

    name: str
    protocol: str
    language: str
    database: Backend
    cache: Backend
    broker: Backend
    calls: tuple[int, ...]  # services further down; never upwards, so no call comes back
    consumer: int  # the service that handles its messages


@dataclass(frozen=True, slots=True)
class World:
    """All of it."""

    services: tuple[Service, ...]
    per_service: int
    instances: tuple[str, ...]  # number service * per_service + i is instance i of a service


def build_world(settings: GeneratorSettings) -> World:
    """Return the system that *settings* describe; equal settings, equal systems."""
    rng = np.random.default_rng([settings.seed, 0])
    count = settings.services
    databases = _backends("db", _DATABASES, max(3, count // 2))
    caches = _backends("cache", _CACHES, max(2, count // 4))
    brokers = _backends("broker", _BROKERS, max(2, count // 8))
    services = tuple(
        Service(
            name=_service_name(number),
            protocol=_PROTOCOLS[number % len(_PROTOCOLS)] if number else "http",
            language=_LANGUAGES[number % len(_LANGUAGES)],
            database=databases[number % len(databases)],
            cache=caches[number % len(caches)],
            broker=brokers[number % len(brokers)],
            calls=_calls(rng, number, count),
            consumer=int(rng.integers(1, count)),
        )
        for number in range(count)
    )
    instances = tuple(
        f"{service.name}-{number:02x}{tag:04x}"
        for service, tag in zip(services, rng.integers(0, 1 << 16, count), strict=True)
        for number in range(settings.instances)
    )
    return World(services, settings.instances, instances)


def zipf(count: int, exponent: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return *count* shares that add up to 1 and fall as ranks do in nature."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    shares: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return shares


def resource_maps(world: World) -> pa.Array:
    """Return the resource attributes of every instance."""
    rows = [
        [
            ("host.name", f"node-{number % 16:02d}"),
            ("telemetry.sdk.language", world.services[number // world.per_service].language),
        ]
        for number in range(len(world.instances))
    ]
    return pa.array(rows, pa.map_(pa.string(), pa.string()))


def endpoint_texts(service: Service, number: int) -> dict[str, str]:
    """Return the columns that name endpoint *number* of *service*."""
    noun = _NOUNS[number % len(_NOUNS)]
    round_ = number // len(_NOUNS)
    if service.protocol == "http":
        version = "" if round_ == 0 else f"/v{round_ + 1}"
        tail = "/{id}" if number % 2 else ""
        return {
            "http_method": _METHODS[number % len(_METHODS)],
            "http_route": f"/{service.name}{version}/{noun}{tail}",
        }
    package = "grpc" if service.protocol == "grpc" else "dubbo"
    verb = _VERBS[number % len(_VERBS)]
    suffix = "" if round_ == 0 else str(round_ + 1)
    return {
        "rpc_system": "grpc" if service.protocol == "grpc" else "apache_dubbo",
        "rpc_service": f"{package}.{service.name.replace('-', '_')}.v1",
        "rpc_method": f"{verb}{noun.capitalize()}{suffix}",
    }


def _service_name(number: int) -> str:
    name = _NAMES[number % len(_NAMES)]
    return name if number < len(_NAMES) else f"{name}-{number // len(_NAMES) + 1}"


def _calls(rng: np.random.Generator, number: int, count: int) -> tuple[int, ...]:
    below = count - number - 1
    if below <= 0:
        return ()
    picks = rng.integers(number + 1, count, size=min(3, below))
    return tuple(sorted({int(pick) for pick in picks}))


def _backends(role: str, systems: tuple[tuple[str, int], ...], count: int) -> tuple[Backend, ...]:
    return tuple(_backend(role, number, *systems[number % len(systems)]) for number in range(count))


def _backend(role: str, number: int, system: str, port: int) -> Backend:
    name = f"{system}-{role}-{number + 1}"
    if number % 6 == 5:  # noqa: PLR2004 - one in six is known by its system only
        return Backend(system, name, None, None, None)
    return Backend(
        system,
        name,
        f"{name}.internal",
        None if number % 5 == 4 else port,  # noqa: PLR2004 - one in five has no port
        name if number % 4 == 3 else None,  # noqa: PLR2004 - one in four is named as a peer
    )
