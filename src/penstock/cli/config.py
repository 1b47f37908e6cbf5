"""`penstock config show`: every setting, its value, and where that comes from."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

from penstock.cli._settings import Origin, apply
from penstock.cli._table import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from penstock.cli._settings import Given, Setting

__all__ = ["add_parser"]

_PASSWORD = re.compile(r"(://[^/@:]*):[^/@]*@")


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    found: Callable[[], tuple[Given, Mapping[str, argparse.ArgumentParser]]],
) -> None:
    """Add the command to the command line; *found* tells what there is to show."""
    parser = commands.add_parser(
        "config",
        help="show the settings and where they come from",
        description="Settings come from flags, the environment and one TOML file.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser(
        "show",
        help="show every setting",
        description="Show every setting that the environment or a file can give, its value, and "
        "where that comes from. Ends with 1 if one of them cannot be.",
    )
    show.add_argument("--json", action="store_true", help="one JSON array")
    show.set_defaults(run=lambda options: _show(options, *found()))


def _show(
    options: argparse.Namespace, given: Given, parsers: Mapping[str, argparse.ArgumentParser]
) -> int:
    settings = {
        setting.key: setting
        for command, parser in parsers.items()
        for setting in apply(parser, command, given)
    }
    rows = [(key, _shown(settings[key]), _origin(settings[key])) for key in sorted(settings)]
    if options.json:
        print(json.dumps([{"key": k, "value": v, "from": o} for k, v, o in rows]))
        return 0
    print(table(("SETTING", "VALUE", "FROM"), rows))
    where = given.path or "none; name one with --config, or write penstock.toml here"
    print(f"\nfile: {where}", file=sys.stderr)
    return 0


def _shown(setting: Setting) -> str:
    value = setting.value
    if value is None or value == []:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return _PASSWORD.sub(r"\1:***@", str(value))


def _origin(setting: Setting) -> str:
    return setting.where if setting.origin is not Origin.DEFAULT else "default"
