"""From a landed span to rows of sources, read off docs/reference/conventions.md line by line."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from penstock.telemetry import PROMOTED, SpanKind, StatusCode
from tests.oracle.buckets import NANOSECONDS, Entity

Scalar: TypeAlias = str | int | float | bool | None

CALLED = (SpanKind.SERVER, SpanKind.CONSUMER)
CALLING = (SpanKind.CLIENT, SpanKind.PRODUCER)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CACHES = _words("redis valkey memcached keydb dragonfly garnet hazelcast infinispan aerospike")
READS = _words(
    """
    GET GETS MGET GETRANGE GETBIT STRLEN EXISTS TTL PTTL TYPE KEYS SCAN HGET HMGET HGETALL
    HEXISTS HKEYS HVALS HLEN HSCAN LRANGE LINDEX LLEN SMEMBERS SISMEMBER SCARD SSCAN SRANDMEMBER
    ZRANGE ZREVRANGE ZRANGEBYSCORE ZSCORE ZRANK ZCARD ZCOUNT XRANGE XREAD XLEN
    """
)
WRITES = _words(
    """
    SET SETEX SETNX PSETEX MSET MSETNX GETSET GETDEL APPEND ADD REPLACE PREPEND CAS TOUCH DELETE
    DEL UNLINK EXPIRE PEXPIRE EXPIREAT PERSIST INCR INCRBY INCRBYFLOAT DECR DECRBY SETRANGE SETBIT
    HSET HMSET HSETNX HDEL HINCRBY HINCRBYFLOAT LPUSH RPUSH LPOP RPOP LREM LSET LTRIM LINSERT SADD
    SREM SPOP SMOVE ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX XADD XDEL XTRIM RENAME FLUSHDB FLUSHALL
    """
)
PRODUCES = ("send", "publish", "create")
CONSUMES = ("receive", "process", "deliver", "settle")


class Span:
    """A landed span (a row of SPANS as Python values) seen through the conventions."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns
        self.kind = SpanKind(columns["kind"])
        self.service: str = columns["service_name"]

    def text(self, column: str) -> str | None:
        """Return a text column if it is present: neither null nor empty."""
        value: str | None = self.columns[column]
        return value or None

    @cached_property
    def minute(self) -> int:
        """UTC minutes since 1970."""
        start: int = self.columns["start_ns"]
        return start // NANOSECONDS

    @cached_property
    def latency(self) -> int:
        """Whole milliseconds."""
        taken: int = self.columns["end_ns"] - self.columns["start_ns"]
        return max(0, taken) // 1_000_000

    @cached_property
    def type(self) -> str:
        """The constant of RequestType."""
        if self.text("messaging_system"):
            return "MQ"
        if self.text("rpc_system"):
            return "gRPC" if self.columns["rpc_system"] == "grpc" else "RPC"
        if self.text("db_system"):
            return "DATABASE"
        return "HTTP" if self.text("http_method") or self.text("http_route") else "RPC"

    @cached_property
    def endpoint(self) -> str:
        """What was called."""
        if route := self.text("http_route"):
            method = self.text("http_method")
            return f"{method} {route}" if method else route
        if (service := self.text("rpc_service")) and (method := self.text("rpc_method")):
            return f"{service}/{method}"
        return self.text("messaging_destination") or str(self.columns["name"])

    @cached_property
    def address(self) -> str | None:
        """Where the called side listens."""
        address, port = self.text("server_address"), self.columns["server_port"]
        return address if address is None or port is None else f"{address}:{port}"

    @property
    def peer(self) -> str | None:
        """Who the other side is."""
        return self.text("peer_service") or self.address

    @property
    def instance(self) -> str | None:
        """The instance that sent the span."""
        return self.text("service_instance")

    @property
    def called_instance(self) -> str | None:
        """Of a calling span: the instance at the other end."""
        return self.text("peer_instance") or self.address

    @property
    def calling_instance(self) -> str | None:
        """Of a called span: the instance at the other end."""
        return self.text("peer_instance") or self.text("client_address")

    @cached_property
    def is_cache(self) -> bool:
        """Whether the database is a cache."""
        return (self.text("db_system") or "").lower() in CACHES

    @cached_property
    def command(self) -> str | None:
        """What a cache was asked to do, in upper case."""
        if operation := self.text("db_operation"):
            return operation.upper()
        words = (self.text("db_statement") or "").split()
        return words[0].upper() if words else None

    @property
    def cache_operation(self) -> str:
        """The constant of VirtualCacheOperation."""
        if self.command in READS:
            return "Read"
        return "Write" if self.command in WRITES else "Others"

    @property
    def messaging_operation(self) -> str | None:
        """The constant of MQOperation."""
        asked = self.columns["messaging_operation"]
        is_client = self.kind is SpanKind.CLIENT
        if self.kind is SpanKind.PRODUCER or (is_client and asked in PRODUCES):
            return "Produce"
        return (
            "Consume"
            if self.kind is SpanKind.CONSUMER or (is_client and asked in CONSUMES)
            else None
        )

    @cached_property
    def attributes(self) -> dict[str, str]:
        """All attributes as text: the promoted ones out of their columns, the rest of the map."""
        found = {key: value for key, value in self.columns["attributes"] or () if value is not None}
        for key, column in PROMOTED.items():
            if self.columns[column] is not None:
                found[key] = str(self.columns[column])
        return found

    @cached_property
    def tags(self) -> frozenset[str]:
        """All attributes as ``key:value``."""
        return frozenset(f"{key}:{value}" for key, value in self.attributes.items())

    @cached_property
    def call(self) -> dict[str, Scalar]:
        """What every row has, apart from tags."""
        return {
            "latency": self.latency,
            "status": self.columns["status_code"] != StatusCode.ERROR,
            "httpResponseStatusCode": self.columns["http_status_code"],
            "rpcStatusCode": self.columns["rpc_status_code"],
            "type": self.type,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a source."""

    source: str
    entity: Entity
    attributes: dict[str, Scalar]
    span: Span

    def read(self, name: str) -> Scalar | frozenset[str]:
        """Return the attribute *name*."""
        return self.span.tags if name == "tags" else self.attributes[name]


def rows(span: Span) -> Iterator[Row]:
    """Yield all rows that a span becomes."""
    if span.kind in CALLED:
        yield from _called(span)
        yield from _relations_of_called(span)
    if span.kind in CALLING:
        yield from _relations_of_calling(span)
    if span.kind is SpanKind.CLIENT and span.text("db_system"):
        yield _cache_access(span) if span.is_cache else _database_access(span)
    if span.text("messaging_system") and span.messaging_operation:
        yield from _messaging(span)


def _called(span: Span) -> Iterator[Row]:
    service, instance, endpoint = span.service, span.instance, span.endpoint
    names: dict[str, Scalar] = {
        "name": service,
        "serviceInstanceName": instance,
        "endpointName": endpoint,
    }
    yield Row("Service", (service,), names | span.call, span)
    if instance:
        names = {"serviceName": service, "name": instance, "endpointName": endpoint}
        yield Row("ServiceInstance", (service, instance), names | span.call, span)
    names = {"serviceName": service, "name": endpoint, "serviceInstanceName": instance}
    yield Row("Endpoint", (service, endpoint), names | span.call, span)


def _relations_of_calling(span: Span) -> Iterator[Row]:
    if span.peer:
        ends = ((span.service, span.instance), (span.peer, span.called_instance))
        yield from _service_relations(span, ends, "CLIENT")


def _relations_of_called(span: Span) -> Iterator[Row]:
    caller = span.text("peer_service")
    if caller is None:
        return
    ends = ((caller, span.calling_instance), (span.service, span.instance))
    yield from _service_relations(span, ends, "SERVER")
    if called_from := span.text("peer_endpoint"):
        names: dict[str, Scalar] = {
            "serviceName": caller,
            "endpoint": called_from,
            "childServiceName": span.service,
            "childEndpoint": span.endpoint,
            "serviceInstanceName": span.calling_instance,
            "childServiceInstanceName": span.instance,
            "rpcLatency": span.latency,
            "detectPoint": "SERVER",
        }
        entity = (caller, called_from, span.service, span.endpoint)
        yield Row("EndpointRelation", entity, names | span.call, span)


_End: TypeAlias = tuple[str, str | None]  # a service and, if known, its instance


def _service_relations(span: Span, ends: tuple[_End, _End], side: str) -> Iterator[Row]:
    (source, source_instance), (target, target_instance) = ends
    names: dict[str, Scalar] = {
        "sourceServiceName": source,
        "sourceServiceInstanceName": source_instance,
        "destServiceName": target,
        "destServiceInstanceName": target_instance,
        "endpoint": span.endpoint,
        "detectPoint": side,
    }
    attributes = names | span.call
    yield Row("ServiceRelation", (source, target), attributes, span)
    if source_instance and target_instance:
        entity = (source, source_instance, target, target_instance)
        yield Row("ServiceInstanceRelation", entity, attributes, span)


def _database_access(span: Span) -> Row:
    name = span.peer or str(span.columns["db_system"])
    names: dict[str, Scalar] = {
        "name": name,
        "serviceName": span.service,
        "databaseType": span.columns["db_system"],
        "namespace": span.columns["db_namespace"],
        "operation": span.columns["db_operation"],
    }
    return Row("DatabaseAccess", (name,), names | _outcome(span), span)


def _cache_access(span: Span) -> Row:
    name = span.peer or str(span.columns["db_system"])
    names: dict[str, Scalar] = {
        "name": name,
        "serviceName": span.service,
        "cacheType": span.columns["db_system"],
        "command": span.command,
        "operation": span.cache_operation,
    }
    return Row("CacheAccess", (name,), names | _outcome(span), span)


def _messaging(span: Span) -> Iterator[Row]:
    name = span.peer or str(span.columns["messaging_system"])
    names: dict[str, Scalar] = {
        "name": name,
        "serviceName": span.service,
        "brokerType": span.columns["messaging_system"],
        "transmissionLatency": span.columns["transmission_latency"],
        "operation": span.messaging_operation,
    }
    attributes = names | _outcome(span)
    yield Row("MQAccess", (name,), attributes, span)
    if destination := span.text("messaging_destination"):
        attributes = attributes | {"endpoint": destination}
        yield Row("MQEndpointAccess", (name, destination), attributes, span)


def _outcome(span: Span) -> dict[str, Scalar]:
    return {"latency": span.latency, "status": span.call["status"]}
