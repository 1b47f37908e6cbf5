"""Options from the environment and from a file: what a flag may say, they may say too.

An option ``--grpc-port`` of ``penstock receive`` is ``PENSTOCK_RECEIVE_GRPC_PORT`` in the
environment and ``grpc_port`` under ``[receive]`` in the file. Those that several commands share
(:data:`SHARED`) have no command in their name, and stand at the top of the file. A flag stands
over the environment, the environment over the file, the file over the default.
"""

from __future__ import annotations

import argparse
import difflib
import json
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "SHARED",
    "Given",
    "Origin",
    "Setting",
    "apply",
    "check_names",
    "given",
    "settings_of",
    "variable",
]

SHARED = ("landing", "store", "log_level", "log_format")
_PREFIX = "PENSTOCK_"
_CONFIG = "PENSTOCK_CONFIG"
_FILE = "penstock.toml"
_READERS = ("query", "top", "store")  # what they are asked differs every time
_UNSET = ("help", "version", "config", "json", "once")  # said each time, or not at all
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Origin(StrEnum):
    """Where a value comes from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """An option as it stands: its key in the file, its value, and where that comes from."""

    key: str
    value: object
    origin: Origin
    where: str  # the variable or the file


@dataclass(frozen=True, slots=True)
class Given:
    """What the environment and the file say."""

    environment: Mapping[str, str]
    path: Path | None = None
    file: Mapping[str, Any] = field(default_factory=dict)


def given(environment: Mapping[str, str], path: Path | None) -> Given:
    """Read the file: *path*, or the one PENSTOCK_CONFIG names, or penstock.toml if it is here."""
    if path is None and environment.get(_CONFIG):
        path = Path(environment[_CONFIG])
    if path is None and Path(_FILE).is_file():
        path = Path(_FILE)
    if path is None:
        return Given(environment)
    try:
        with path.open("rb") as file:
            return Given(environment, path, tomllib.load(file))
    except OSError as error:
        raise ConfigError(f"the file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def variable(command: str, name: str) -> str:
    """Return the environment's name of an option."""
    shared = name in SHARED
    return (_PREFIX + (name if shared else f"{command}_{name}")).upper()


def apply(parser: argparse.ArgumentParser, command: str, found: Given) -> list[Setting]:
    """Make what was found the defaults of *command*'s options; return how they stand."""
    return [_applied(action, command, found) for action in _actions(parser, command)]


def settings_of(parser: argparse.ArgumentParser, command: str) -> list[str]:
    """Return the names of a command's options."""
    return [action.dest for action in _actions(parser, command)]


def check_names(found: Given, known: Mapping[str, Sequence[str]]) -> list[str]:
    """Raise ConfigError for a key of the file that no command has; return such variables."""
    keys = {_key(command, name) for command, names in known.items() for name in names}
    for key, value in found.file.items():
        if key in SHARED or key not in known:  # the store is a setting, and a command
            _check_key(key, keys, found.path)
        elif not isinstance(value, dict):
            raise ConfigError(f"{found.path}: {key} must be a table: [{key}]")
        else:
            for name in value:
                _check_key(f"{key}.{name}", keys, found.path)
    variables = {variable(command, name) for command, names in known.items() for name in names}
    return [
        f"{name} is not a setting{_suggestion(name, variables)}"
        for name in sorted(set(found.environment) - variables - {_CONFIG})
        if _is_meant(name, known, variables)
    ]


def _is_meant(name: str, known: Mapping[str, Sequence[str]], variables: set[str]) -> bool:
    """Whether a variable is meant for a command; others may have their own reasons to be there."""
    ours = tuple(f"{_PREFIX}{command.upper()}_" for command in known)
    is_close = name.startswith(_PREFIX) and bool(difflib.get_close_matches(name, variables, 1, 0.9))
    return name.startswith(ours) or is_close


def _key(command: str, name: str) -> str:
    return name if name in SHARED else f"{command}.{name}"


def _check_key(key: str, keys: set[str], path: Path | None) -> None:
    if key not in keys:
        raise ConfigError(f"{path}: {key} is not a setting{_suggestion(key, keys)}")


def _suggestion(name: str, known: set[str]) -> str:
    last = name.rpartition(".")[2]
    elsewhere = [key for key in sorted(known) if key.rpartition(".")[2] == last]  # wrong table
    close = [*elsewhere, *difflib.get_close_matches(name, sorted(known), 1)]
    return f"; did you mean {close[0]}?" if close else "; see: penstock config show"


def _actions(parser: argparse.ArgumentParser, command: str) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of its options
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - nor another name
            for nested in action.choices.values():
                yield from _actions(nested, command)
        elif _is_setting(action) and (command not in _READERS or action.dest in SHARED):
            yield action


def _is_setting(action: argparse.Action) -> bool:
    # Those that `penstock up` takes for its parts are settings of the parts.
    is_own = action.default is not argparse.SUPPRESS
    return bool(action.option_strings) and is_own and action.dest not in _UNSET


def _applied(action: argparse.Action, command: str, found: Given) -> Setting:
    name = action.dest
    key = _key(command, name)
    name_there = variable(command, name)
    table = found.file if name in SHARED else found.file.get(command, {})
    if name_there in found.environment:
        text = found.environment[name_there]
        value = _converted(action, _from_text(action, text, name_there), name_there)
        setting = Setting(key, value, Origin.ENVIRONMENT, name_there)
    elif name in table:
        where = f"{found.path}: {key}"
        value = _converted(action, table[name], where)
        setting = Setting(key, value, Origin.FILE, str(found.path))
    else:
        return Setting(key, action.default, Origin.DEFAULT, "")
    action.default = value
    action.required = False
    return setting


def _is_list(action: argparse.Action) -> bool:
    return action.nargs in {"+", "*"} or isinstance(action.default, list)


def _from_text(action: argparse.Action, text: str, where: str) -> object:
    """Return a variable's text as the file would have it."""
    if isinstance(action.const, bool):
        if text.lower() not in _TRUTHS:
            raise ConfigError(f"{where}: {text!r} is neither true nor false")
        return _TRUTHS[text.lower()]
    if not _is_list(action):
        return text
    if text.startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{where}: {text!r} is not a JSON list: {error}") from error
    return [part.strip() for part in text.split(",") if part.strip()]


def _converted(action: argparse.Action, value: object, where: str) -> object:
    if isinstance(action.const, bool):
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: {value!r} is neither true nor false")
        return value
    if not _is_list(action):
        return _scalar(action, value, where)
    if not isinstance(value, list):
        raise ConfigError(f"{where}: {value!r} is not a list; write [{value!r}]")
    return [_scalar(action, element, where) for element in value]


def _scalar(action: argparse.Action, value: object, where: str) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{where}: {value!r} is not a text or a number")
    read: Any = action.type or str
    try:
        result = read(str(value))
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error
    if action.choices is not None and result not in action.choices:
        choices = ", ".join(map(str, action.choices))
        raise ConfigError(f"{where}: {result!r} is none of {choices}")
    return result
