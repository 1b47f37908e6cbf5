"""The same aggregation by DuckDB: the default metrics' states from the same files.

Sources, keys and states are those of penstock.aggregation; the statements are DuckDB's own way to
get there, one per source, over a table of the columns that all of them need.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["aggregate"]

_SPANS = """
CREATE OR REPLACE TEMP TABLE spans AS
SELECT start_ns // 60000000000 AS minute,
       greatest(end_ns - start_ns, 0) // 1000000 AS latency,
       status_code <> 2 AS ok,
       kind, service_name, nullif(service_instance, '') AS service_instance,
       peer_service, peer_instance, peer_endpoint, client_address, transmission_latency,
       messaging_system, messaging_destination, db_system,
       coalesce(peer_instance, client_address) AS caller,
       coalesce(peer_service, server_address || coalesce(':' || server_port, ''), messaging_system)
           AS broker,
       coalesce(
           CASE WHEN http_route <> '' THEN concat_ws(' ', http_method, http_route) END,
           rpc_service || '/' || rpc_method, messaging_destination, name
       ) AS endpoint,
       coalesce(peer_service, server_address || coalesce(':' || server_port, '')) AS peer,
       coalesce(peer_instance, server_address || coalesce(':' || server_port, '')) AS dest_instance,
       lower(db_system) IN ('redis', 'memcached', 'valkey') AS is_cache,
       upper(coalesce(db_operation, split_part(db_statement, ' ', 1))) AS command
FROM read_parquet(?)
"""

_STATES = """
count(*) AS n, sum({value}) AS total, count(*) FILTER (ok) AS matched,
sum(CASE WHEN NOT ok OR {value} > 2000 THEN 0 WHEN {value} > 500 THEN 1 ELSE 2 END) AS apdex
"""
_SLOT = "CASE WHEN {value} > 0 THEN ceil(log2({value}) * 8) - 1 END"

_INCOMING, _OUTGOING = "kind IN (2, 5)", "kind IN (3, 4)"
# Source, rows, keys, value. One line per filter that the default rules have.
_SOURCES = (
    (_INCOMING, "service_name", "latency"),
    (f"{_INCOMING} AND messaging_system <> ''", "service_name", "transmission_latency"),
    (f"{_INCOMING} AND service_instance IS NOT NULL", "service_name, service_instance", "latency"),
    (_INCOMING, "service_name, endpoint", "latency"),
    (f"{_OUTGOING} AND peer IS NOT NULL", "service_name, peer", "latency"),
    (f"{_INCOMING} AND peer_service IS NOT NULL", "peer_service, service_name", "latency"),
    (
        f"{_OUTGOING} AND peer || service_instance || dest_instance IS NOT NULL",
        "service_name, service_instance, peer, dest_instance",
        "latency",
    ),
    (
        f"{_INCOMING} AND peer_service || service_instance || caller IS NOT NULL",
        "peer_service, caller, service_name, service_instance",
        "latency",
    ),
    (
        f"{_INCOMING} AND peer_service IS NOT NULL AND peer_endpoint IS NOT NULL",
        "peer_service, peer_endpoint, service_name, endpoint",
        "latency",
    ),
    ("kind = 3 AND db_system <> '' AND NOT is_cache", "coalesce(peer, db_system)", "latency"),
    ("kind = 3 AND is_cache", "coalesce(peer, db_system)", "latency"),
    (
        "kind = 3 AND is_cache AND command IN ('GET', 'MGET', 'HGET', 'EXISTS')",
        "coalesce(peer, db_system)",
        "latency",
    ),
    (
        "kind = 3 AND is_cache AND command IN ('SET', 'DEL', 'HSET', 'INCR')",
        "coalesce(peer, db_system)",
        "latency",
    ),
    (
        "messaging_system <> '' AND kind = 5",
        "broker",
        "transmission_latency",
    ),
    ("messaging_system <> '' AND kind = 4", "broker", "latency"),
    (
        "messaging_system <> '' AND kind = 5 AND messaging_destination <> ''",
        "broker, messaging_destination",
        "transmission_latency",
    ),
    (
        "messaging_system <> '' AND kind = 4 AND messaging_destination <> ''",
        "broker, messaging_destination",
        "latency",
    ),
)


def aggregate(landing: Path, threads: int, warm_up: int) -> float:
    """Aggregate the spans of *landing* but for the first *warm_up* files; return the seconds."""
    files = sorted(str(path) for path in (landing / "spans").glob("*.parquet"))[warm_up:]
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        started = perf_counter()
        # As many spans at a time as one of our micro-batches has.
        for index in range(0, len(files), 4):
            connection.execute(_SPANS, [files[index : index + 4]])
            for rows, keys, value in _SOURCES:
                connection.sql(_statement(rows, keys, value)).to_arrow_table()
                connection.sql(_slots(rows, keys, value)).to_arrow_table()
        return perf_counter() - started


def _statement(rows: str, keys: str, value: str) -> str:
    states = _STATES.format(value=value)
    return f"SELECT {keys}, minute, {states} FROM spans WHERE {rows} GROUP BY ALL"  # noqa: S608


def _slots(rows: str, keys: str, value: str) -> str:
    slot = _SLOT.format(value=value)
    return f"SELECT {keys}, minute, {slot}, count(*) FROM spans WHERE {rows} GROUP BY ALL"  # noqa: S608
