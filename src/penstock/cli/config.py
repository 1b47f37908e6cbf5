"""`penstock config show`: every setting, its value, and where that comes from."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from penstock.cli._arguments import masked
from penstock.cli._settings import Origin, apply
from penstock.cli._table import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from penstock.cli._settings import Given, Setting

__all__ = ["add_parser"]


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
    ordered = [settings[key] for key in sorted(settings)]
    if options.json:
        rows = [{"key": s.key, "value": _plain(s.value), "from": _origin(s)} for s in ordered]
        print(json.dumps(rows))
        return 0
    print(table(("SETTING", "VALUE", "FROM"), [(s.key, _shown(s), _origin(s)) for s in ordered]))
    where = given.path or "none; name one with --config, or write penstock.toml here"
    print(f"\nfile: {where}", file=sys.stderr)
    return 0


def _plain(value: object) -> object:
    """Return what JSON can say of a value."""
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value if value is None or isinstance(value, int | float) else masked(str(value))


def _shown(setting: Setting) -> str:
    value = _plain(setting.value)
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _origin(setting: Setting) -> str:
    return setting.where if setting.origin is not Origin.DEFAULT else "default"
