"""`penstock top`: the slowest statements, from the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.cli._table import table
from penstock.cli._times import bucket_text
from penstock.cli.query import add_reading_options, window

if TYPE_CHECKING:
    import argparse

__all__ = ["add_parser"]

_KINDS = ("database_statement", "service_database_statement", "cache_read", "cache_write")
_SHOWN = 80  # characters of a statement in the table


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "top",
        help="show the slowest statements",
        description="Show the slowest statements of databases and caches.",
    )
    parser.add_argument("kind", choices=_KINDS, metavar="KIND", help=", ".join(_KINDS))
    add_reading_options(parser, limit=20)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from penstock.store import open_store
    from penstock.store.contract import TopQuery

    store = open_store(options.store)
    try:
        rows = store.top(
            TopQuery(
                kind=options.kind, entity=options.entity, limit=options.limit, **window(options, 1)
            )
        )
    finally:
        store.close()
    if options.json:
        print(
            json.dumps(
                [
                    {
                        "time": bucket_text(row.bucket, 1),
                        "entity": list(row.entity),
                        "latency": row.latency,
                        "statement": row.statement,
                        "trace_id": row.trace_id,
                        "span_id": row.span_id,
                    }
                    for row in rows
                ]
            )
        )
    elif not rows:
        print(f"no slow {options.kind.replace('_', ' ')}s there")
    else:
        print(
            table(
                ("TIME (UTC)", "ENTITY", "MS", "STATEMENT", "TRACE"),
                [
                    (
                        bucket_text(row.bucket, 1),
                        " / ".join(row.entity),
                        row.latency,
                        _shortened(row.statement),
                        row.trace_id,
                    )
                    for row in rows
                ],
            )
        )
    return 0


def _shortened(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
