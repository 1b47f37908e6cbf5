"""What is wrong with a rules file: where, what, and what to do about it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Diagnostic", "Findings", "Place", "closest", "quoted", "suggested"]

_INDENT = "    "
_LONGEST_LINE = 120  # of a source line that is shown; more is cut on both sides
_LONGEST_QUOTE = 60
_LONGEST_NAME = 100  # beyond that nobody misspelt a name, and looking for it would take long


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of one line. Lines and columns count from 1, columns in characters."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error. *line* and *column* are 0 where it is about the file as a whole.

    *source* is the line as it stands in the file; *length* is how many characters of it are meant.
    """

    file: str
    line: int
    column: int
    message: str
    suggestion: str = ""
    source: str = ""
    length: int = 1

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        lines = [f"{_visible(self.file)}{place}: error: {self.message}"]
        if self.line:
            lines += [_INDENT + line for line in self._underlined()]
        if self.suggestion:
            lines.append(_INDENT + self.suggestion)
        return "\n".join(lines)

    def _underlined(self) -> tuple[str, str]:
        at = self.column - 1
        begin = max(0, min(at - _LONGEST_LINE // 2, len(self.source) - _LONGEST_LINE))
        end = begin + _LONGEST_LINE
        before = "…" * (begin > 0) + _visible(self.source[begin:at])
        marked = _visible(self.source[at : min(at + self.length, end)])
        after = _visible(self.source[at + self.length : end]) + "…" * (end < len(self.source))
        underline = " " * _width(before) + "^" * max(1, _width(marked))
        return (before + marked + after).rstrip(), underline


@dataclass(slots=True)
class Findings:
    """The errors of one file, as they are found."""

    file: str
    text: str = ""
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._lines = self.text.split("\n")

    def add(self, place: Place, message: str, suggestion: str = "") -> None:
        """Note an error at *place*."""
        source = self._lines[place.line - 1] if place.line else ""
        # What goes on in the next line is marked up to the end of this one.
        length = max(1, min(place.length, len(source) - place.column + 1))
        self.diagnostics.append(
            Diagnostic(self.file, place.line, place.column, message, suggestion, source, length)
        )


def quoted(text: str) -> str:
    """Return *text* in quotes for a message: one line, not too long, only visible characters."""
    if len(text) > _LONGEST_QUOTE:
        text = text[: _LONGEST_QUOTE - 1] + "…"
    shown = _visible(text)
    return shown if '"' in shown else f'"{shown}"'


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that *name* was probably meant to be."""
    if len(name) > _LONGEST_NAME:
        return None
    by_folded = {option.casefold(): option for option in known}
    matches = get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[matches[0]] if matches else None


def suggested(name: str, known: Iterable[str], what: str) -> str:
    """Return the remedy for an unknown *name*: the one that was meant, or all there are."""
    options = tuple(known)
    match = closest(name, options)
    if match is not None:
        return f'did you mean "{match}"?'
    return f"{what}: {', '.join(options)}"


def _visible(text: str) -> str:
    """Return *text* without anything that would move the cursor or cannot be written."""
    shown = text.replace("\t", " ")
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in shown)


def _width(text: str) -> int:
    """Return how many cells of a terminal *text* takes."""
    return sum(map(_cells, text))


def _cells(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1
