"""What services ask of databases and caches, in the words of the semantic conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.generate._steps import REGIONS, Plan, Step
from penstock.telemetry import SpanKind

if TYPE_CHECKING:
    from penstock.generate._world import Backend

__all__ = ["OTHERS", "READS", "TABLES", "WRITES", "ask_cache", "ask_database", "reach"]

TABLES = ("orders", "customers", "items", "invoices", "parcels", "sessions", "offers", "events")
READS = ("GET", "HGETALL", "MGET", "ZRANGE", "EXISTS")
WRITES = ("SET", "DEL", "HSET", "INCR", "EXPIRE")
OTHERS = ("PING", "PUBLISH", "EVAL")
_MEMCACHED = {READS: "gets", WRITES: "set", OTHERS: "stats"}
_STATEMENTS = {
    "SELECT": "SELECT * FROM TABLE WHERE COLUMN = ? ORDER BY id LIMIT 100",
    "UPDATE": "UPDATE TABLE SET COLUMN = ? WHERE id = ?",
    "INSERT": "INSERT INTO TABLE (id, COLUMN) VALUES (?, ?)",
    "DELETE": "DELETE FROM TABLE WHERE COLUMN < ?",
}
_COMMANDS = {
    "find": '{"find": "TABLE", "filter": {"COLUMN": "?"}}',
    "update": '{"update": "TABLE", "updates": [{"q": {"COLUMN": "?"}}]}',
    "insert": '{"insert": "TABLE", "documents": [{"COLUMN": "?"}]}',
    "aggregate": '{"aggregate": "TABLE", "pipeline": [{"$match": {"COLUMN": "?"}}]}',
}


def ask_cache(
    plan: Plan, service: int, cache: Backend, commands: tuple[str, ...], parent: int
) -> None:
    """Add one of *commands*, sent to *cache*."""
    command = plan.pick(commands)
    if cache.system == "memcached":
        command = _MEMCACHED[commands]
    key = f"{plan.pick(TABLES)}:{plan.number(50)}"
    texts = reach(cache)
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


def ask_database(plan: Plan, service: int, database: Backend, parent: int) -> None:
    """Add a statement, sent to *database*."""
    table = plan.pick(TABLES)
    operation, statement = _statement(plan, database.system, table)
    texts = reach(database)
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
            tags={"region": plan.pick(REGIONS)} if plan.has(0.3) else None,
            median_ms=plan.spread(180.0 if is_slow else 3.0, 0.5),
            sigma=0.9,
            stall_ms=250.0,
        )
    )


def _statement(plan: Plan, system: str, table: str) -> tuple[str, str]:
    statements = _COMMANDS if system == "mongodb" else _STATEMENTS
    operation = plan.pick(tuple(statements))
    text = statements[operation].replace("TABLE", table)
    return operation, text.replace("COLUMN", f"c{plan.number(8)}")


def reach(backend: Backend, system: str = "db_system") -> dict[str, str | int]:
    """Return the columns that say which *backend* it was."""
    texts: dict[str, str | int] = {system: backend.system}
    if backend.address is not None:
        texts["server_address"] = backend.address
    if backend.port is not None:
        texts["server_port"] = backend.port
    if backend.peer is not None:
        texts["peer_service"] = backend.peer
    return texts
