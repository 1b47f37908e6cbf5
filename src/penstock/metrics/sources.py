"""What metrics can be made from: the sources of OAL, their attributes and their entities."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENUMERATIONS", "METER", "OTHER", "SOURCES", "Source", "Type"]

METER = "Meter"  # the scope of metrics that arrive as OTLP metric points; not a source of OAL
OTHER = "(other)"  # the entity that stands for all entities beyond a scope's cap


class Type(StrEnum):
    """The types of attributes; an enumeration is compared with its constants only."""

    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOL = "bool"
    STRING_LIST = "stringList"
    REQUEST_TYPE = "RequestType"
    DETECT_POINT = "DetectPoint"
    CACHE_OPERATION = "VirtualCacheOperation"
    MQ_OPERATION = "MQOperation"


# The constants as they are written in rules, without their enumeration: "RequestType.MQ".
ENUMERATIONS: Mapping[Type, tuple[str, ...]] = {
    Type.REQUEST_TYPE: ("HTTP", "RPC", "gRPC", "DATABASE", "MQ", "TCP"),
    Type.DETECT_POINT: ("CLIENT", "SERVER"),
    Type.CACHE_OPERATION: ("Read", "Write", "Others"),
    Type.MQ_OPERATION: ("Produce", "Consume"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """One source: a name, typed attributes, and the attributes that make up its entity.

    ``tag["key"]`` reads any attribute of the span and is not listed; ``tags`` is the list of all
    of them as ``key:value``.
    """

    name: str
    entity: tuple[str, ...]
    attributes: Mapping[str, Type]


_CALL = {
    "latency": Type.LONG,
    "status": Type.BOOL,
    "httpResponseStatusCode": Type.LONG,
    "rpcStatusCode": Type.LONG,
    "type": Type.REQUEST_TYPE,
    "tags": Type.STRING_LIST,
}


def _source(name: str, entity: str, texts: str = "", **more: Type) -> Source:
    names = dict.fromkeys((*entity.split(), *texts.split()), Type.STRING)
    return Source(name, tuple(entity.split()), {**names, **more})


_ALL = (
    _source("Service", "name", "serviceInstanceName endpointName", **_CALL),
    _source("ServiceInstance", "serviceName name", "endpointName", **_CALL),
    _source("Endpoint", "serviceName name", "serviceInstanceName", **_CALL),
    _source(
        "ServiceRelation",
        "sourceServiceName destServiceName",
        "sourceServiceInstanceName destServiceInstanceName endpoint",
        detectPoint=Type.DETECT_POINT,
        **_CALL,
    ),
    _source(
        "ServiceInstanceRelation",
        "sourceServiceName sourceServiceInstanceName destServiceName destServiceInstanceName",
        "endpoint",
        detectPoint=Type.DETECT_POINT,
        **_CALL,
    ),
    _source(
        "EndpointRelation",
        "serviceName endpoint childServiceName childEndpoint",
        "serviceInstanceName childServiceInstanceName",
        rpcLatency=Type.LONG,
        detectPoint=Type.DETECT_POINT,
        **_CALL,
    ),
    _source(
        "DatabaseAccess",
        "name",
        "serviceName databaseType namespace operation",
        latency=Type.LONG,
        status=Type.BOOL,
        tags=Type.STRING_LIST,
    ),
    _source(
        "CacheAccess",
        "name",
        "serviceName cacheType command",
        latency=Type.LONG,
        status=Type.BOOL,
        operation=Type.CACHE_OPERATION,
        tags=Type.STRING_LIST,
    ),
    _source(
        "MQAccess",
        "name",
        "serviceName brokerType",
        latency=Type.LONG,
        transmissionLatency=Type.LONG,
        status=Type.BOOL,
        operation=Type.MQ_OPERATION,
        tags=Type.STRING_LIST,
    ),
    _source(
        "MQEndpointAccess",
        "name endpoint",
        "serviceName brokerType",
        latency=Type.LONG,
        transmissionLatency=Type.LONG,
        status=Type.BOOL,
        operation=Type.MQ_OPERATION,
        tags=Type.STRING_LIST,
    ),
)

SOURCES: Mapping[str, Source] = {source.name: source for source in _ALL}
