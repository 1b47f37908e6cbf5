"""`penstock store`: create a store, bring it up to date, and see what is in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from penstock.store.contract import MetricStore

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "store",
        help="create, update or inspect a store",
        description="Create a store, bring it up to date, or see what is in it.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, run, text in (
        ("migrate", _migrate, "create what is missing, or bring an older store up to date"),
        ("show", _show, "show the job, the metrics and the entities that the store has"),
    ):
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.add_argument(
            "--store", required=True, metavar="URL", help="a file or postgresql://…"
        )
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(run=run)


def _migrate(options: argparse.Namespace) -> int:
    from penstock.store import open_store

    store = open_store(options.store)
    try:
        store.migrate()
        message = {"store": store.address, "is_current": True}
    finally:
        store.close()
    print(json.dumps(message) if options.json else f"{message['store']} is up to date")
    return 0


def _show(options: argparse.Namespace) -> int:
    from penstock.store import open_store

    store = open_store(options.store)
    try:
        found = _contents(store)
    finally:
        store.close()
    if options.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<9} {value}" for name, value in found.items()))
    return 0


def _contents(store: MetricStore) -> dict[str, object]:
    from penstock.metrics.sources import METER, SOURCES

    return {
        "store": store.address,
        "job": store.job() or "none yet",
        "metrics": len(store.catalogue()),
        "entities": sum(len(store.entity_ids(scope)) for scope in (*SOURCES, METER)),
    }
