"""The oracle's rows, against rows written by hand from the conventions."""

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.metrics.sources import SOURCES
from penstock.telemetry import SpanKind, StatusCode
from tests.oracle.conventions import CACHES, READS, WRITES, Row, Span, rows
from tests.oracle.samples import MINUTE, span

CONVENTIONS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "conventions.md"

EVERY_SOURCE = [
    span(
        SpanKind.SERVER,
        peer_service="web",
        peer_instance="web-1",
        peer_endpoint="GET /cart",
        http_method="GET",
        http_route="/items",
    ),
    span(SpanKind.CLIENT, db_system="mysql", server_address="db"),
    span(SpanKind.CLIENT, db_system="redis", db_operation="GET"),
    span(SpanKind.CONSUMER, messaging_system="kafka", messaging_destination="orders"),
]


def entities(columns: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the entity of each row that a span becomes, by source."""
    found = [(row.source, row.entity) for row in rows(Span(columns))]
    assert len(found) == len(dict(found)), "a span is at most one row of each source"
    return dict(found)


def row(source: str, columns: dict[str, Any]) -> Row:
    """Return the row of *source* that a span becomes."""
    (found,) = [found for found in rows(Span(columns)) if found.source == source]
    return found


def test_a_server_span_is_service_instance_and_endpoint() -> None:
    """A SERVER span that names no caller is a row of three sources."""
    assert entities(span(SpanKind.SERVER, http_method="GET", http_route="/items")) == {
        "Service": ("shop",),
        "ServiceInstance": ("shop", "shop-1"),
        "Endpoint": ("shop", "GET /items"),
    }


def test_a_server_span_without_instance_is_no_service_instance() -> None:
    """An empty instance is none, and the attribute is null."""
    columns = span(SpanKind.SERVER, service_instance="")
    assert entities(columns) == {"Service": ("shop",), "Endpoint": ("shop", "work")}
    assert row("Service", columns).read("serviceInstanceName") is None


@pytest.mark.parametrize("kind", [SpanKind.UNSPECIFIED, SpanKind.INTERNAL])
def test_an_internal_span_is_nothing(kind: SpanKind) -> None:
    """Other kinds become no row, whatever attributes they have."""
    full: dict[str, Any] = {"db_system": "mysql", "messaging_system": "kafka", "peer_service": "x"}
    assert entities(span(kind, **full)) == {}


def test_a_client_span_is_both_relations_of_the_client_side() -> None:
    """The peer is the named service; its instance the one that is named, else the address."""
    columns = span(SpanKind.CLIENT, peer_service="pay", server_address="10.0.0.1", server_port=8080)
    assert entities(columns) == {
        "ServiceRelation": ("shop", "pay"),
        "ServiceInstanceRelation": ("shop", "shop-1", "pay", "10.0.0.1:8080"),
    }
    assert entities(columns | {"peer_instance": "pay-7"})["ServiceInstanceRelation"] == (
        "shop",
        "shop-1",
        "pay",
        "pay-7",
    )
    assert row("ServiceRelation", columns).read("detectPoint") == "CLIENT"


def test_a_producer_without_a_named_service_relates_to_the_address() -> None:
    """The address without a port is the host alone."""
    assert entities(span(SpanKind.PRODUCER, server_address="broker")) == {
        "ServiceRelation": ("shop", "broker"),
        "ServiceInstanceRelation": ("shop", "shop-1", "broker", "broker"),
    }


@pytest.mark.parametrize("columns", [{}, {"server_port": 80}, {"peer_service": ""}])
def test_a_client_span_without_a_peer_is_nothing(columns: dict[str, Any]) -> None:
    """A port alone is no address, and an empty name no peer."""
    assert entities(span(SpanKind.CLIENT, **columns)) == {}


def test_a_client_span_with_a_peer_but_no_instances_is_one_relation() -> None:
    """Both instances must be known; in ServiceRelation they may be null."""
    columns = span(SpanKind.CLIENT, peer_service="pay")
    assert entities(columns) == {"ServiceRelation": ("shop", "pay")}
    relation = row("ServiceRelation", columns)
    assert relation.read("sourceServiceInstanceName") == "shop-1"
    assert relation.read("destServiceInstanceName") is None
    columns = span(SpanKind.CLIENT, peer_service="pay", peer_instance="p", service_instance="")
    assert entities(columns) == {"ServiceRelation": ("shop", "pay")}


def test_a_server_span_that_names_its_caller_is_all_relations_of_the_server_side() -> None:
    """The caller comes first; its instance is the named one, else the client's address."""
    columns = span(
        SpanKind.SERVER,
        peer_service="web",
        client_address="10.0.0.9",
        peer_endpoint="GET /cart",
        rpc_service="Pay",
        rpc_method="Charge",
    )
    found = entities(columns)
    assert found["ServiceRelation"] == ("web", "shop")
    assert found["ServiceInstanceRelation"] == ("web", "10.0.0.9", "shop", "shop-1")
    assert found["EndpointRelation"] == ("web", "GET /cart", "shop", "Pay/Charge")
    assert row("EndpointRelation", columns).read("detectPoint") == "SERVER"
    named = entities(columns | {"peer_instance": "web-1"})
    assert named["ServiceInstanceRelation"] == ("web", "web-1", "shop", "shop-1")


def test_a_server_span_needs_the_callers_name_for_relations() -> None:
    """An address, an instance or an endpoint of the caller do not name a service."""
    columns = span(
        SpanKind.SERVER,
        client_address="c",
        peer_instance="i",
        peer_endpoint="e",
        server_address="s",
    )
    assert set(entities(columns)) == {"Service", "ServiceInstance", "Endpoint"}


@pytest.mark.parametrize(
    ("columns", "endpoint"),
    [
        ({"http_method": "GET", "http_route": "/a", "rpc_service": "S"}, "GET /a"),
        ({"http_route": "/a"}, "/a"),
        ({"http_method": "", "http_route": "/a"}, "/a"),
        ({"http_method": "GET", "rpc_service": "S", "rpc_method": "m"}, "S/m"),
        ({"rpc_service": "S", "messaging_destination": "topic"}, "topic"),
        ({"rpc_service": "S", "rpc_method": ""}, "work"),
        ({"http_method": "GET", "url_path": "/a/1"}, "work"),
    ],
)
def test_the_endpoint_is_the_first_name_that_fits(columns: dict[str, Any], endpoint: str) -> None:
    """Route, remote procedure, destination, name: in this order."""
    assert entities(span(SpanKind.SERVER, **columns))["Endpoint"] == ("shop", endpoint)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"messaging_system": "kafka", "rpc_system": "grpc", "http_method": "GET"}, "MQ"),
        ({"rpc_system": "grpc", "db_system": "mysql"}, "gRPC"),
        ({"rpc_system": "dubbo", "http_route": "/a"}, "RPC"),
        ({"db_system": "mysql", "http_route": "/a"}, "DATABASE"),
        ({"http_method": "GET"}, "HTTP"),
        ({"http_route": "/a"}, "HTTP"),
        ({"http_method": "", "rpc_system": ""}, "RPC"),
    ],
)
def test_the_type_is_the_first_that_fits(columns: dict[str, Any], expected: str) -> None:
    """Messaging before RPC before databases before HTTP; RPC when nothing is known."""
    assert row("Service", span(SpanKind.SERVER, **columns)).read("type") == expected


def test_latency_is_in_whole_milliseconds_and_never_negative() -> None:
    """Parts of a millisecond are dropped; a clock that ran backwards gives 0."""
    columns = span()
    start = columns["start_ns"]
    assert Span(columns | {"end_ns": start + 1_999_999}).latency == 1
    assert Span(columns | {"end_ns": start - 5_000_000}).latency == 0


def test_the_minute_is_that_of_the_start() -> None:
    """A span that ends in the next minute belongs to the one in which it began."""
    assert Span(span(latency=120_000)).minute == MINUTE
    assert Span(span() | {"start_ns": (MINUTE + 1) * 60_000_000_000 - 1}).minute == MINUTE


@pytest.mark.parametrize(
    ("code", "status"),
    [(StatusCode.UNSET, True), (StatusCode.OK, True), (StatusCode.ERROR, False)],
)
def test_only_an_error_is_a_failure(code: StatusCode, status: bool) -> None:  # noqa: FBT001 - the expectation
    """UNSET is what most successful spans have."""
    assert row("Service", span(status_code=int(code))).read("status") is status


def test_tags_are_promoted_columns_and_the_map() -> None:
    """Numbers are text there, and what is null is absent; an empty text is there."""
    columns = span(
        http_status_code=404,
        http_route="",
        attributes=[("http.status_code", "404"), ("user", "eve")],
        resource_attributes=[("host", "h")],
    )
    found = Span(columns)
    expected = {
        "http.response.status_code": "404",
        "http.route": "",
        "http.status_code": "404",
        "user": "eve",
    }
    assert found.attributes == expected
    assert found.tags == {f"{key}:{value}" for key, value in expected.items()}
    assert Span(span(attributes=None)).tags == frozenset()


def test_a_database_is_named_by_its_peer_else_by_its_system() -> None:
    """Only CLIENT spans access databases."""
    columns = span(SpanKind.CLIENT, db_system="MySQL", db_namespace="n", db_operation="SELECT")
    assert entities(columns) == {"DatabaseAccess": ("MySQL",)}
    access = row("DatabaseAccess", columns)
    assert [access.read(name) for name in ("serviceName", "databaseType", "namespace")] == [
        "shop",
        "MySQL",
        "n",
    ]
    assert access.read("operation") == "SELECT"
    named = entities(columns | {"server_address": "db", "server_port": 3306})
    assert named["DatabaseAccess"] == ("db:3306",)
    assert "DatabaseAccess" not in entities(columns | {"kind": int(SpanKind.PRODUCER)})
    assert entities(columns | {"db_system": ""}) == {}


@pytest.mark.parametrize(
    ("columns", "command", "operation"),
    [
        ({"db_operation": "get"}, "GET", "Read"),
        ({"db_operation": "SET", "db_statement": "GET a"}, "SET", "Write"),
        ({"db_operation": "", "db_statement": " hget\tkey field"}, "HGET", "Read"),
        ({"db_operation": "EVALSHA"}, "EVALSHA", "Others"),
        ({"db_operation": "GET SET"}, "GET SET", "Others"),
        ({"db_statement": "  "}, None, "Others"),
        ({}, None, "Others"),
    ],
)
def test_a_cache_operation_follows_from_the_command(
    columns: dict[str, Any], command: str | None, operation: str
) -> None:
    """The command is the operation, else the first word of the statement; in upper case."""
    found = row("CacheAccess", span(SpanKind.CLIENT, db_system="Redis", **columns))
    assert found.entity == ("Redis",)
    assert (found.read("command"), found.read("operation")) == (command, operation)


@pytest.mark.parametrize(
    ("kind", "asked", "operation"),
    [
        (SpanKind.PRODUCER, "receive", "Produce"),
        (SpanKind.CONSUMER, None, "Consume"),
        (SpanKind.CLIENT, "send", "Produce"),
        (SpanKind.CLIENT, "publish", "Produce"),
        (SpanKind.CLIENT, "create", "Produce"),
        (SpanKind.CLIENT, "receive", "Consume"),
        (SpanKind.CLIENT, "process", "Consume"),
        (SpanKind.CLIENT, "deliver", "Consume"),
        (SpanKind.CLIENT, "settle", "Consume"),
        (SpanKind.CLIENT, "peek", None),
        (SpanKind.CLIENT, None, None),
        (SpanKind.SERVER, "send", None),
        (SpanKind.INTERNAL, "process", None),
    ],
)
def test_messaging_follows_from_kind_and_operation(
    kind: SpanKind, asked: str | None, operation: str | None
) -> None:
    """Without an operation a span is no access to a broker."""
    columns = span(
        kind,
        messaging_system="kafka",
        messaging_operation=asked,
        messaging_destination="orders",
        transmission_latency=7,
    )
    found = {row.source: row for row in rows(Span(columns)) if row.source.startswith("MQ")}
    assert len(found) == (2 if operation else 0)
    if operation:
        assert found["MQAccess"].entity == ("kafka",)
        assert found["MQEndpointAccess"].entity == ("kafka", "orders")
        assert {row.read("operation") for row in found.values()} == {operation}
        assert found["MQAccess"].read("transmissionLatency") == 7


def test_a_message_without_a_destination_has_no_endpoint() -> None:
    """The broker is named by its peer if there is one."""
    found = entities(span(SpanKind.CONSUMER, messaging_system="kafka", peer_service="broker"))
    assert found["MQAccess"] == ("broker",)
    assert "MQEndpointAccess" not in found


def test_every_source_has_the_attributes_that_rules_may_name() -> None:
    """Whatever the language accepts can be read, and the entity is made of its attributes."""
    found = [row for columns in EVERY_SOURCE for row in rows(Span(columns))]
    assert {row.source for row in found} == SOURCES.keys()
    for one in found:
        source = SOURCES[one.source]
        for name in source.attributes:
            one.read(name)
        assert one.entity == tuple(one.read(name) for name in source.entity), one.source


CALL = {
    "latency": 30,
    "status": True,
    "httpResponseStatusCode": 200,
    "rpcStatusCode": 3,
    "type": "HTTP",
}
SERVER = span(
    SpanKind.SERVER,
    latency=30,
    peer_service="web",
    peer_instance="web-1",
    peer_endpoint="GET /cart",
    http_method="GET",
    http_route="/items",
    http_status_code=200,
    rpc_status_code=3,
)
CLIENT = span(
    SpanKind.CLIENT,
    latency=30,
    server_address="host",
    db_statement="GET a",
    db_namespace="1",
    messaging_operation="receive",
    messaging_destination="orders",
    transmission_latency=4,
)
ATTRIBUTES = [
    (
        "Service",
        SERVER,
        {"name": "shop", "serviceInstanceName": "shop-1", "endpointName": "GET /items", **CALL},
    ),
    (
        "ServiceInstance",
        SERVER,
        {"serviceName": "shop", "name": "shop-1", "endpointName": "GET /items", **CALL},
    ),
    (
        "Endpoint",
        SERVER,
        {"serviceName": "shop", "name": "GET /items", "serviceInstanceName": "shop-1", **CALL},
    ),
    *(
        (
            source,
            SERVER,
            {
                "sourceServiceName": "web",
                "sourceServiceInstanceName": "web-1",
                "destServiceName": "shop",
                "destServiceInstanceName": "shop-1",
                "endpoint": "GET /items",
                "detectPoint": "SERVER",
                **CALL,
            },
        )
        for source in ("ServiceRelation", "ServiceInstanceRelation")
    ),
    (
        "EndpointRelation",
        SERVER,
        {
            "serviceName": "web",
            "serviceInstanceName": "web-1",
            "endpoint": "GET /cart",
            "childServiceName": "shop",
            "childServiceInstanceName": "shop-1",
            "childEndpoint": "GET /items",
            "rpcLatency": 30,
            "detectPoint": "SERVER",
            **CALL,
        },
    ),
    (
        "DatabaseAccess",
        CLIENT | {"db_system": "mysql", "db_operation": "SELECT"},
        {
            "name": "host",
            "serviceName": "shop",
            "databaseType": "mysql",
            "namespace": "1",
            "operation": "SELECT",
            "latency": 30,
            "status": True,
        },
    ),
    (
        "CacheAccess",
        CLIENT | {"db_system": "redis"},
        {
            "name": "host",
            "serviceName": "shop",
            "cacheType": "redis",
            "command": "GET",
            "operation": "Read",
            "latency": 30,
            "status": True,
        },
    ),
    (
        "MQEndpointAccess",
        CLIENT | {"messaging_system": "kafka"},
        {
            "name": "host",
            "endpoint": "orders",
            "serviceName": "shop",
            "brokerType": "kafka",
            "transmissionLatency": 4,
            "operation": "Consume",
            "latency": 30,
            "status": True,
        },
    ),
]


@pytest.mark.parametrize(("source", "columns", "expected"), ATTRIBUTES)
def test_a_row_has_the_attributes_of_its_source(
    source: str, columns: dict[str, Any], expected: dict[str, object]
) -> None:
    """Each with its value; `tags` is read from the span."""
    found = row(source, columns)
    assert found.attributes == expected
    assert found.read("tags") == Span(columns).tags


def test_a_broker_has_the_attributes_of_its_endpoint_but_one() -> None:
    """MQAccess does not know the destination."""
    columns = CLIENT | {"messaging_system": "kafka"}
    expected = row("MQEndpointAccess", columns).attributes
    assert row("MQAccess", columns).attributes | {"endpoint": "orders"} == expected


def test_the_word_lists_are_those_of_the_document() -> None:
    """Caches, reads and writes are listed in the conventions, and nowhere else."""
    text = CONVENTIONS.read_text(encoding="utf-8")
    caches = re.search(r"\*\*Caches\*\* \(.*?\): (.*)\.\n", text)
    commands = re.search(r"Read: (.*?)\. Write: (.*?)\. Anything else", text)
    assert caches
    assert commands
    assert frozenset(re.findall(r"`(\w+)`", caches[1])) == CACHES
    assert frozenset(commands[1].split(", ")) == READS
    assert frozenset(commands[2].split(", ")) == WRITES
