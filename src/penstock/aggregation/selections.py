"""Which spans are rows of which source, and where the source's attributes come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.aggregation.columns import Flags, Texts
from penstock.aggregation.spans import Column, Selection, SpanFrame, cache_operation, first_present
from penstock.telemetry.schema import SpanKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["select"]


def select(frame: SpanFrame, source: str) -> tuple[Selection, ...]:
    """Return the rows of *source* among the spans of *frame*; relations have one part per side."""
    return tuple(part for part in _SELECTORS[source](frame) if part.size)


def _rows(
    frame: SpanFrame, chosen: Flags, attributes: Mapping[str, Callable[[], Column]]
) -> Selection:
    common: dict[str, Callable[[], Column]] = {
        "latency": lambda: frame.latency,
        "status": lambda: frame.status,
        "httpResponseStatusCode": lambda: frame.number("http_status_code"),
        "rpcStatusCode": lambda: frame.number("rpc_status_code"),
        "type": lambda: frame.type,
    }
    return Selection(frame, np.flatnonzero(chosen), {**common, **attributes})


def _service(frame: SpanFrame) -> tuple[Selection, ...]:
    attributes: dict[str, Callable[[], Column]] = {
        "name": lambda: frame.text("service_name"),
        "serviceInstanceName": lambda: frame.text("service_instance"),
        "endpointName": lambda: frame.endpoint,
    }
    return (_rows(frame, frame.is_incoming, attributes),)


def _instance(frame: SpanFrame) -> tuple[Selection, ...]:
    attributes: dict[str, Callable[[], Column]] = {
        "serviceName": lambda: frame.text("service_name"),
        "name": lambda: frame.text("service_instance"),
        "endpointName": lambda: frame.endpoint,
    }
    chosen = frame.is_incoming & frame.text("service_instance").is_valid()
    return (_rows(frame, chosen, attributes),)


def _endpoint(frame: SpanFrame) -> tuple[Selection, ...]:
    attributes: dict[str, Callable[[], Column]] = {
        "serviceName": lambda: frame.text("service_name"),
        "name": lambda: frame.endpoint,
        "serviceInstanceName": lambda: frame.text("service_instance"),
    }
    return (_rows(frame, frame.is_incoming, attributes),)


def _client_side(frame: SpanFrame) -> tuple[Flags, dict[str, Callable[[], Column]]]:
    """Return the calls that this side names a peer for, and who calls whom."""
    return frame.is_outgoing & frame.peer.is_valid(), {
        "sourceServiceName": lambda: frame.text("service_name"),
        "sourceServiceInstanceName": lambda: frame.text("service_instance"),
        "destServiceName": lambda: frame.peer,
        "destServiceInstanceName": lambda: frame.called_instance,
        "endpoint": lambda: frame.endpoint,
        "detectPoint": lambda: Texts.constant("CLIENT", frame.rows),
    }


def _server_side(frame: SpanFrame) -> tuple[Flags, dict[str, Callable[[], Column]]]:
    """Return the calls whose server span names its caller, and who calls whom."""
    return frame.is_incoming & frame.text("peer_service").is_valid(), {
        "sourceServiceName": lambda: frame.text("peer_service"),
        "sourceServiceInstanceName": lambda: frame.calling_instance,
        "destServiceName": lambda: frame.text("service_name"),
        "destServiceInstanceName": lambda: frame.text("service_instance"),
        "endpoint": lambda: frame.endpoint,
        "detectPoint": lambda: Texts.constant("SERVER", frame.rows),
    }


def _service_relation(frame: SpanFrame) -> tuple[Selection, ...]:
    return tuple(_rows(frame, *side(frame)) for side in (_client_side, _server_side))


def _instance_relation(frame: SpanFrame) -> tuple[Selection, ...]:
    parts = []
    for side in (_client_side, _server_side):
        chosen, attributes = side(frame)
        for name in ("sourceServiceInstanceName", "destServiceInstanceName"):
            instance = attributes[name]()
            assert isinstance(instance, Texts)
            chosen = chosen & instance.is_valid()
        parts.append(_rows(frame, chosen, attributes))
    return tuple(parts)


def _endpoint_relation(frame: SpanFrame) -> tuple[Selection, ...]:
    chosen, of_services = _server_side(frame)
    attributes: dict[str, Callable[[], Column]] = {
        "serviceName": of_services["sourceServiceName"],
        "serviceInstanceName": of_services["sourceServiceInstanceName"],
        "endpoint": lambda: frame.text("peer_endpoint"),
        "childServiceName": of_services["destServiceName"],
        "childServiceInstanceName": of_services["destServiceInstanceName"],
        "childEndpoint": lambda: frame.endpoint,
        "rpcLatency": lambda: frame.latency,
        "detectPoint": of_services["detectPoint"],
    }
    return (_rows(frame, chosen & frame.text("peer_endpoint").is_valid(), attributes),)


def _database(frame: SpanFrame) -> tuple[Selection, ...]:
    system = frame.text("db_system")
    attributes: dict[str, Callable[[], Column]] = {
        "name": lambda: frame.accessed,
        "serviceName": lambda: frame.text("service_name"),
        "databaseType": lambda: system,
        "namespace": lambda: frame.text("db_namespace"),
        "operation": lambda: frame.text("db_operation"),
    }
    chosen = (frame.kind == SpanKind.CLIENT) & system.is_valid() & ~frame.is_cache
    return (_rows(frame, chosen, attributes),)


def _cache(frame: SpanFrame) -> tuple[Selection, ...]:
    system = frame.text("db_system")
    attributes: dict[str, Callable[[], Column]] = {
        "name": lambda: frame.accessed,
        "serviceName": lambda: frame.text("service_name"),
        "cacheType": lambda: system,
        "command": lambda: frame.command,
        "operation": lambda: _cache_operations(frame),
    }
    return (_rows(frame, (frame.kind == SpanKind.CLIENT) & frame.is_cache, attributes),)


def _cache_operations(frame: SpanFrame) -> Texts:
    return first_present(
        frame.command.mapped(cache_operation), Texts.constant("Others", frame.rows)
    )


def _messaging(frame: SpanFrame) -> tuple[Flags, dict[str, Callable[[], Column]]]:
    system = frame.text("messaging_system")
    return system.is_valid() & frame.mq_operation.is_valid(), {
        "name": lambda: frame.broker,
        "endpoint": lambda: frame.text("messaging_destination"),
        "serviceName": lambda: frame.text("service_name"),
        "brokerType": lambda: system,
        "transmissionLatency": lambda: frame.number("transmission_latency"),
        "operation": lambda: frame.mq_operation,
    }


def _mq(frame: SpanFrame) -> tuple[Selection, ...]:
    return (_rows(frame, *_messaging(frame)),)


def _mq_endpoint(frame: SpanFrame) -> tuple[Selection, ...]:
    chosen, attributes = _messaging(frame)
    named = chosen & frame.text("messaging_destination").is_valid()
    return (_rows(frame, named, attributes),)


_SELECTORS: Mapping[str, Callable[[SpanFrame], tuple[Selection, ...]]] = {
    "Service": _service,
    "ServiceInstance": _instance,
    "Endpoint": _endpoint,
    "ServiceRelation": _service_relation,
    "ServiceInstanceRelation": _instance_relation,
    "EndpointRelation": _endpoint_relation,
    "DatabaseAccess": _database,
    "CacheAccess": _cache,
    "MQAccess": _mq,
    "MQEndpointAccess": _mq_endpoint,
}
