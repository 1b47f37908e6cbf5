"""Rules from texts and files: everything that is wrong with them at once, or the metrics."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import DependencyError, RulesError
from penstock.metrics.checking import check_definition
from penstock.metrics.diagnostics import Diagnostic, Findings, Place, closest, quoted
from penstock.metrics.sources import SOURCES
from penstock.metrics.syntax import Definition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.metrics.definitions import Metric
    from penstock.metrics.parser import Outline
    from penstock.metrics.syntax import Name

__all__ = ["Rules", "default_rules", "load_rules", "parse_files", "parse_rules"]

StrPath: TypeAlias = "str | os.PathLike[str]"

LARGEST_FILE = 1 << 20  # bytes; nobody writes more, and a device file never ends

# Streams that SkyWalking makes without a rule. There is nothing here to disable, and no harm done.
_BUILT_IN_STREAMS = frozenset(
    {
        *("segment", "alarm_record", "http_access_log", "browser_error_log"),
        *("top_n_database_statement", "zipkin_span", "jaeger_span"),
        *("endpoint_relation_server_side", "service_relation_server_side"),
        *("service_relation_client_side", "profile_task", "profile_task_log"),
        "profile_task_segment_snapshot",
    }
)


@dataclass(frozen=True, slots=True)
class Rules:
    """What rules say: the metrics that are left when some are disabled, and all errors.

    A rule with an error makes no metric; the others do.
    """

    metrics: tuple[Metric, ...]
    diagnostics: tuple[Diagnostic, ...]


def parse_rules(text: str, *, file: str = "<rules>") -> Rules:
    """Return what *text* says. Nothing is raised: errors are in the result, named after *file*."""
    return _linked([_read_text(text, file)])


def parse_files(paths: Iterable[StrPath]) -> Rules:
    """Return what the files say together. Nothing is raised, also if one cannot be read."""
    return _linked([_read_file(os.fspath(path)) for path in paths])


def load_rules(paths: Iterable[StrPath]) -> tuple[Metric, ...]:
    """Return the metrics of the files.

    Raises:
        RulesError: anything is wrong with any of them; the message lists every error.
    """
    rules = parse_files(paths)
    if rules.diagnostics:
        many = len(rules.diagnostics)
        listed = "\n".join(map(str, rules.diagnostics))
        raise RulesError(f"the rules have {many} error{'s' if many > 1 else ''}\n{listed}")
    return rules.metrics


@cache
def default_rules() -> tuple[Metric, ...]:
    """Return the metrics that are computed when nothing else is asked for."""
    text = files("penstock.metrics").joinpath("rules", "default.oal").read_text(encoding="utf-8")
    rules = parse_rules(text, file="default.oal")
    assert not rules.diagnostics, "\n".join(map(str, rules.diagnostics))
    return rules.metrics


@dataclass(slots=True)
class _Unit:
    """One file: its metrics by the names that define them, and what it wants disabled."""

    findings: Findings
    metrics: list[tuple[Name, Metric | None]] = field(default_factory=list)
    disabled: list[Name] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def _read_text(text: str, file: str) -> _Unit:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    unit = _Unit(Findings(file, text))
    before, binary, _ = text.partition("\0")
    if binary:
        message = "this is not text: it has a NUL character"
        unit.findings.add(_end(before), message, "name a text file in UTF-8")
        return unit
    outline = _outline(text, unit.findings)
    for statement in outline.statements:
        if isinstance(statement, Definition):
            metric = check_definition(statement, unit.findings)
            unit.metrics.append((statement.name, metric))
        else:
            unit.disabled.append(statement.name)
    unit.broken = outline.broken
    if not outline.statements and not unit.findings.diagnostics:
        remedy = "write one, such as service_cpm = from(Service.*).cpm();"
        unit.findings.add(Place(1, 1), "there are no rules in it", remedy)
    return unit


def _outline(text: str, findings: Findings) -> Outline:
    # Imported here, so that whoever only computes metrics does without the parser.
    try:
        from penstock.metrics.parser import parse  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = f"reading rules needs {error.name}: install penstock[metrics]"
        raise DependencyError(message) from error
    return parse(text, findings)


def _read_file(path: str) -> _Unit:
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        remedy = "name a file that exists and that you may read"
        return _unreadable(path, f"cannot be read: {reason}", remedy)
    if len(content) > LARGEST_FILE:
        limit = f"{LARGEST_FILE >> 20} MiB"
        return _unreadable(path, f"is larger than {limit}", "name a file of metric rules")
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        # A file that is binary anyway is told so at its first NUL.
        text = content.decode(errors="replace" if b"\0" in content else "strict")
    except UnicodeDecodeError as error:
        findings = Findings(path, content.decode(errors="replace"))
        message = f"the file is not text in UTF-8: byte 0x{content[error.start]:02x}"
        findings.add(_end(content[: error.start].decode()), message, "save it as UTF-8")
        return _Unit(findings)
    return _read_text(text, path)


def _unreadable(path: str, message: str, suggestion: str) -> _Unit:
    findings = Findings(path)
    findings.diagnostics.append(Diagnostic(path, 0, 0, f"the file {message}", suggestion))
    return _Unit(findings)


def _end(text: str) -> Place:
    """Return the place just after *text*."""
    return Place(text.count("\n") + 1, len(text) - text.rfind("\n"))


def _linked(units: list[_Unit]) -> Rules:
    """Put the units together: names are unique, and what is disabled goes."""
    _check_names(units)
    _check_disabled(units)
    gone = {name.text for unit in units for name in unit.disabled}
    metrics = tuple(
        metric
        for unit in units
        for _, metric in unit.metrics
        if metric is not None and metric.name not in gone and metric.source not in gone
    )
    diagnostics = tuple(
        diagnostic
        for unit in units
        for diagnostic in sorted(unit.findings.diagnostics, key=lambda d: (d.line, d.column))
    )
    return Rules(metrics, diagnostics)


def _check_names(units: list[_Unit]) -> None:
    defined: dict[str, str] = {}
    for unit in units:
        for name, _ in unit.metrics:
            here = f"{unit.findings.file}:{name.place.line}"
            first = defined.setdefault(name.text, here)
            if first is not here:
                message = f"metric {quoted(name.text)} is defined already"
                unit.findings.add(name.place, message, f"the first is in {first}; rename this one")


def _check_disabled(units: list[_Unit]) -> None:
    """Check that what is disabled exists: a misspelt name would silently have no effect."""
    names = {name.text for unit in units for name, _ in unit.metrics}
    known = {*names, *SOURCES, *_BUILT_IN_STREAMS, *(name for u in units for name in u.broken)}
    for unit in units:
        for name in unit.disabled:
            if name.text not in known:
                message = f"there is no metric and no source {quoted(name.text)} to disable"
                match = closest(name.text, (*sorted(names), *SOURCES))
                remedy = "remove the statement" if match is None else f'did you mean "{match}"?'
                unit.findings.add(name.place, message, remedy)
