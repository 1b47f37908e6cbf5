"""From the text of a rules file to its statements, past any number of syntax errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedToken

from penstock.metrics.definitions import Operator
from penstock.metrics.diagnostics import Place, closest, quoted
from penstock.metrics.syntax import (
    Cast,
    Comparison,
    Constant,
    Decoration,
    Definition,
    Disabling,
    Everything,
    Filter,
    Input,
    Invocation,
    Items,
    Name,
    Number,
    Reference,
    Scalar,
    Statement,
    Step,
    Text,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lark.tree import Meta

    from penstock.metrics.diagnostics import Findings

__all__ = ["Outline", "parse"]

_SEMICOLON = "_SEMICOLON"
_END = "$END"
_CONTINUED = 1 << 30  # a stretch that goes on in the next line; cut to the line when it is told

_KINDS = {"STRING": "a text in double quotes"}
# Choices that are told as one, without those that only go on with what stands there.
_GROUPS = (
    (
        frozenset({"EQ", "NE", "GE", "GT", "LE", "LT", "IN", "LIKE", "CONTAIN", "NOT"}),
        frozenset({"_DOT", "_LSQB"}),
        "an operator such as ==",
    ),
    (
        frozenset({"NAME", "STRING", "NUMBER", "TRUE", "FALSE", "NULL"}),
        frozenset({"_LPAR", "_LSQB"}),
        "a value",
    ),
    (frozenset({"NAME"}), frozenset({"_LPAR"}), "a name"),
)
_KEYWORDS = frozenset(
    {
        *("_FROM", "_FILTER", "_DECORATOR", "_DISABLE"),
        *("TRUE", "FALSE", "NULL", "IN", "LIKE", "NOT", "CONTAIN"),
    }
)
_SHAPE = "a rule reads: name = from(Source.attribute).filter(condition).function();"
_HINTS = {
    "'": "texts stand in double quotes",
    "“": "texts stand in plain double quotes",
    "”": "texts stand in plain double quotes",
    "#": "comments begin with //",
    "&": "write one filter for each condition: .filter(…).filter(…)",
    "|": 'there is no "or"; compare with several values by "in", or define two metrics',
    "and": "write one filter for each condition: .filter(…).filter(…)",
    "or": 'there is no "or"; compare with several values by "in", or define two metrics',
    "!": "negated operators are != and not contain",
}


@dataclass(slots=True)
class Outline:
    """What was understood of a text; *broken* are the metrics whose rule has a syntax error."""

    statements: list[Statement] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def parse(text: str, findings: Findings) -> Outline:
    """Return the statements of *text*; each one that cannot be read is one error in *findings*."""
    reading = _Reading(list(_language().lex(text)), findings)
    at = 0
    while at < len(reading.tokens):
        at = reading.statement(at)
    return reading.outline


class _AlwaysKept:
    """Keeps terminals that no rule of the grammar mentions."""

    always_accept = ("UNTERMINATED_STRING", "UNTERMINATED_COMMENT", "STRANGE")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Return the tokens as they are."""
        return stream


@cache
def _language() -> Lark:
    grammar = files("penstock.metrics").joinpath("oal.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        start="statement",
        parser="lalr",
        lexer="basic",
        propagate_positions=True,
        postlex=cast("Any", _AlwaysKept()),
    )


@dataclass(slots=True)
class _Reading:
    """The tokens of a text, and what has been made of them."""

    tokens: list[Token]
    findings: Findings
    outline: Outline = field(default_factory=Outline)

    def statement(self, start: int) -> int:
        """Read the statement that begins with token *start*; return where the next one begins."""
        if self.tokens[start].type == _SEMICOLON:
            return start + 1
        state: Any = _language().parse_interactive()
        for at in range(start, len(self.tokens)):
            token = self.tokens[at]
            try:
                state.feed_token(token)
            except UnexpectedToken:
                return self._give_up(start, at)
            if token.type == _SEMICOLON:
                self._complete(state, token)
                return at + 1
        return self._give_up(start, len(self.tokens))

    def _complete(self, state: Any, last: Token) -> None:  # noqa: ANN401 - not annotated there
        self.outline.statements.append(_Builder().transform(state.feed_eof(last)))

    def _give_up(self, start: int, at: int) -> int:
        """Report the error at token *at*; return where the next statement begins."""
        # A rule that lacks its end may have taken the name of the next one for its own.
        if at - 1 > start and self._is_first_of_line(at - 1) and self._is_definition(at - 1):
            at -= 1
        state: Any = _language().parse_interactive()
        for token in self.tokens[start:at]:
            state.feed_token(token)
        accepted: set[str] = state.accepts()
        if self._lacks_semicolon(at, accepted):
            place, remedy = self._end_of(at - 1), "every rule ends with a semicolon"
            self.findings.add(place, 'missing ";"', remedy)
            semicolon = Token.new_borrow_pos(_SEMICOLON, ";", self.tokens[at - 1])
            state.feed_token(semicolon)
            self._complete(state, semicolon)
            return at
        if self.tokens[start].type == "NAME" and self._type(start + 1) == "_EQUALS":
            self.outline.broken.append(str(self.tokens[start]))
        self._report(at, accepted)
        return self._next_statement(max(at, start + 1))

    def _is_definition(self, at: int) -> bool:
        return (self._type(at + 1), self._type(at + 2)) == ("_EQUALS", "_FROM")

    def _type(self, at: int) -> str:
        return self.tokens[at].type if at < len(self.tokens) else _END

    def _end_of(self, at: int) -> Place:
        token = self.tokens[at]
        return Place(token.end_line or 0, token.end_column or 0)

    def _begins_statement(self, at: int) -> bool:
        """Whether what stands here can only be the beginning of a statement."""
        if self._is_definition(at):
            return True
        if (self._type(at), self._type(at + 1)) == ("_DISABLE", "_LPAR"):
            return True
        return self._type(at + 1) == "_EQUALS" and self._is_first_of_line(at)

    def _is_first_of_line(self, at: int) -> bool:
        return self.tokens[at].line != self.tokens[at - 1].end_line

    def _lacks_semicolon(self, at: int, accepted: set[str]) -> bool:
        if _SEMICOLON not in accepted:
            return False
        return at == len(self.tokens) or self._begins_statement(at)

    def _next_statement(self, at: int) -> int:
        """Return where to go on: after a semicolon, or where a line begins like a statement."""
        for following in range(at, len(self.tokens)):
            if self.tokens[following].type == _SEMICOLON:
                return following + 1
            if self._is_first_of_line(following) and self._begins_statement(following):
                return following
        return len(self.tokens)

    def _report(self, at: int, accepted: set[str]) -> None:
        if at == len(self.tokens):
            message = f"the file ends within a rule: expected {_choices(accepted)}"
            self.findings.add(self._end_of(at - 1), message, "complete the rule, or remove it")
        else:
            token = self.tokens[at]
            self.findings.add(_place_of(token), *_explained(token, accepted))


def _explained(token: Token, accepted: set[str]) -> tuple[str, str]:
    """Return what is wrong with an unexpected token, and what to do about it."""
    if token.type == "UNTERMINATED_STRING":
        return 'unterminated text: its closing " is not on this line', 'close it with "'
    if token.type == "UNTERMINATED_COMMENT":
        return "unterminated comment", "close it with */"
    expected = f"expected {_choices(accepted)}"
    remedy = _HINTS.get(str(token)) or _remedy(token, accepted)
    if token.type == "STRANGE":
        return f"unexpected character {quoted(token)}", remedy or expected
    return f"{expected}, found {quoted(token)}", remedy or _SHAPE


def _remedy(token: Token, accepted: set[str]) -> str:
    """Return what to do about a mistake that is common enough to be recognised."""
    kind, in_name = token.type, accepted == {"_EQUALS"}
    is_word = kind in _KEYWORDS and "NAME" in accepted
    mistakes = (
        (kind == "EQ" and "_EQUALS" in accepted, "a metric is defined with a single ="),
        (kind == "_EQUALS" and "EQ" in accepted, "compare with =="),
        (in_name, "the name of a metric consists of letters, digits and _; then comes ="),
        (kind == "NUMBER" and "_DISABLE" in accepted, "a name begins with a letter or _"),
        (kind == "STRING" and accepted == {"NAME"}, "leave the quotes out"),
        (is_word, f'"{token}" is a word of the language; choose another name'),
    )
    for is_made, remedy in mistakes:
        if is_made:
            return remedy
    known = [_spelled(word) for word in accepted & _KEYWORDS]
    match = closest(str(token), known) if kind == "NAME" else None
    return "" if match is None else f'did you mean "{match}"?'


def _choices(accepted: set[str]) -> str:
    """Return what could stand here, in words."""
    kinds = set(accepted)
    told = []
    for group, minor, words in _GROUPS:
        if kinds >= group:
            kinds -= group | minor
            told.append(words)
    told += sorted(_KINDS.get(kind) or f'"{_spelled(kind)}"' for kind in kinds)
    return " or ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def _spelled(kind: str) -> str:
    return str(_language().get_terminal(kind).pattern.value)


def _place_of(what: Token | Meta) -> Place:
    line, column = what.line or 0, what.column or 0
    is_one_line = what.end_line == line
    return Place(line, column, (what.end_column or 0) - column if is_one_line else _CONTINUED)


def _is_given(part: object) -> TypeGuard[Any]:
    return part is not None


@v_args(meta=True, inline=True)
class _Builder(Transformer[Token, Any]):
    """Makes statements of the parser's trees; optional parts that are absent come as None."""

    def NAME(self, token: Token) -> Name:  # noqa: N802 - named after the terminal
        return Name(str(token), _place_of(token))

    def definition(
        self, meta: Meta, name: Name, value: Reference | Everything, *steps: Step
    ) -> Definition:
        return Definition(name, value, steps, _place_of(meta))

    def disable(self, _: Meta, name: Name) -> Disabling:
        return Disabling(name)

    def everything(self, meta: Meta, path: tuple[Name, ...]) -> Everything:
        return Everything(path, _place_of(meta))

    def filter(self, meta: Meta, condition: Comparison) -> Filter:
        return Filter(condition, _place_of(meta))

    def decorator(self, meta: Meta, token: Token) -> Decoration:
        return Decoration(Text(str(token), _place_of(token)), _place_of(meta))

    def invocation(self, meta: Meta, name: Name, *arguments: Input | None) -> Invocation:
        return Invocation(name, tuple(filter(_is_given, arguments)), _place_of(meta))

    def condition(
        self, meta: Meta, left: Reference, operator: tuple[Operator, Place], right: Constant
    ) -> Comparison:
        return Comparison(left, *operator, right, _place_of(meta))

    def operator(self, meta: Meta, *tokens: Token) -> tuple[Operator, Place]:
        return Operator(" ".join(tokens)), _place_of(meta)

    def list(self, meta: Meta, *items: Scalar | None) -> Items:
        return Items(tuple(filter(_is_given, items)), _place_of(meta))

    def reference(self, meta: Meta, *parts: Any) -> Reference:  # noqa: ANN401 - [cast] plain
        path, key = parts[-1]
        return Reference(path, key, parts[0] if len(parts) > 1 else None, _place_of(meta))

    def plain(
        self, _: Meta, path: tuple[Name, ...], key: Text | None
    ) -> tuple[tuple[Name, ...], Text | None]:
        return path, key

    def path(self, _: Meta, *parts: Any) -> tuple[Name, ...]:  # noqa: ANN401 - [path] NAME
        return (*parts[0], parts[1]) if len(parts) > 1 else parts

    def cast(self, meta: Meta, first: Name, second: Name | None) -> Cast:
        if second is None:
            return Cast(None, first, _place_of(meta))
        return Cast(first, second, _place_of(meta))

    def text(self, meta: Meta, token: Token) -> Text:
        return Text(str(token), _place_of(meta))

    def number(self, meta: Meta, token: Token) -> Number:
        return Number(str(token), _place_of(meta))

    def word(self, meta: Meta, token: Token) -> Word:
        return Word({"TRUE": True, "FALSE": False, "NULL": None}[token.type], _place_of(meta))
