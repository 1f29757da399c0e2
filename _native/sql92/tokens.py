"""Tokens of a SQL92 expression, read on demand: text that the parser never reaches is not checked.

Kinds, their order and the text of a lexical error are Apache's (SelectorParser.jj). Any thread; linear in the text.
"""

import re
from enum import IntEnum
from typing import NamedTuple

from firearrow._native.sql92.errors import InvalidExpression


class Kind(IntEnum):
    """Numbers are Apache's: expected tokens are listed in their order."""

    END = 0
    NOT = 8
    AND = 9
    OR = 10
    BETWEEN = 11
    IN = 12
    TRUE = 13
    FALSE = 14
    NULL = 15
    IS = 16
    CONTAINS = 17
    STARTSWITH = 18
    ENDSWITH = 19
    DECIMAL = 20
    FLOAT = 21
    TEXT = 23
    NAME = 24
    EQUAL = 25
    UNEQUAL = 26
    ABOVE = 27
    ABOVE_OR_EQUAL = 28
    BELOW = 29
    BELOW_OR_EQUAL = 30
    OPEN = 31
    COMMA = 32
    CLOSE = 33
    PLUS = 34
    MINUS = 35


WORDS = {kind.name: kind for kind in Kind if Kind.NOT <= kind <= Kind.ENDSWITH}
SIGNS = {
    "=": Kind.EQUAL,
    "<>": Kind.UNEQUAL,
    ">": Kind.ABOVE,
    ">=": Kind.ABOVE_OR_EQUAL,
    "<": Kind.BELOW,
    "<=": Kind.BELOW_OR_EQUAL,
    "(": Kind.OPEN,
    ",": Kind.COMMA,
    ")": Kind.CLOSE,
    "+": Kind.PLUS,
    "-": Kind.MINUS,
}
IMAGES = {
    Kind.END: "<EOF>",
    Kind.DECIMAL: "<DECIMAL_LITERAL>",
    Kind.FLOAT: "<FLOATING_POINT_LITERAL>",
    Kind.TEXT: "<STRING_LITERAL>",
    Kind.NAME: "<ID>",
    **{kind: f'"{text}"' for text, kind in (WORDS | SIGNS).items()},
}
"""How an error names a kind."""

BLANKS = re.compile(r"[ \t\n\r\f]+")
LINE_COMMENT = re.compile(r"--[^\n\r]*(?:\r\n|\n|\r)")
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
TOKEN = re.compile(
    r"(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<FLOAT>[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<DECIMAL>0|[1-9][0-9]*[lL]?)"
    r"|(?P<TEXT>'(?:''|[^'])*')"
    r"|(?P<SIGN><>|>=|<=|[=><(),+-])"
)
BEGUN = re.compile(r"'(?:''|[^'])*|/\*.*|[./]", re.DOTALL)
"""The start of a token that is not complete."""
TAB = 8


class Token(NamedTuple):
    kind: Kind
    text: str
    start: int


class Tokens:
    """The tokens of `text`; looks ahead by one or two, as the grammar does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0
        self._ahead: list[Token] = []
        self._last_break = max(text.rfind("\n"), text.rfind("\r"))

    def peek(self, ahead: int = 0) -> Token:
        while len(self._ahead) <= ahead:
            self._ahead.append(self._read())
        return self._ahead[ahead]

    def take(self) -> Token:
        token = self.peek()
        del self._ahead[0]
        return token

    def _read(self) -> Token:
        start = self._skip(self._at)
        if start == len(self.text):
            return Token(Kind.END, "", start)
        match = TOKEN.match(self.text, start)
        if match is None:
            raise self._lexical(start)
        self._at = match.end()
        image, group = match.group(), str(match.lastgroup)
        if group == "NAME":
            return Token(WORDS.get(image.upper(), Kind.NAME), image, start)
        return Token(SIGNS[image] if group == "SIGN" else Kind[group], image, start)

    def _skip(self, at: int) -> int:
        """Skip blanks and comments. A line comment needs its line break, so none begins after the last one."""
        while True:
            match = BLANKS.match(self.text, at) or BLOCK_COMMENT.match(self.text, at)
            if match is None and at <= self._last_break:
                match = LINE_COMMENT.match(self.text, at)
            if match is None:
                return at
            at = match.end()

    def _lexical(self, start: int) -> InvalidExpression:
        """Apache's token manager reads until no token fits any more, and reports that character."""
        text = self.text
        begun = BEGUN.match(text, start)
        stop = start if begun is None else begun.end()
        at_end = stop >= len(text) - 1
        line, column = line_and_column(text, min(stop, len(text) - 1))
        read = min(stop + 1, len(text)) - start
        after = "" if read <= 1 else text[start : start + read] if at_end else text[start:stop]
        if at_end:
            line, column = (line + 1, 0) if text[-1] in "\n\r" else (line, column + 1)
        shown = "<EOF> " if at_end else f'"{escaped(text[stop])}" ({ord(text[stop])}), '
        return InvalidExpression(
            "org.apache.rocketmq.filter.parser.TokenMgrError: "
            f'Lexical error at line {line}, column {column}.  Encountered: {shown}after : "{escaped(after)}"'
        )


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Line and column of a character, both from 1; a tab reaches to the next multiple of 8."""
    if not text:
        return 0, 0
    head = text[: at + 1]
    breaks = list(
        re.finditer(r"\r\n|\n|\r", head[:-1] if head[-1:] != "\n" or head[-2:-1] != "\r" else head[:-2])
    )
    column = 0
    for letter in head[breaks[-1].end() if breaks else 0 :]:
        column += TAB - column % TAB if letter == "\t" else 1
    return len(breaks) + 1, column


def escaped(text: str) -> str:
    """As Java's generated parsers show a text."""
    known = {
        "\b": "\\b",
        "\t": "\\t",
        "\n": "\\n",
        "\f": "\\f",
        "\r": "\\r",
        '"': '\\"',
        "'": "\\'",
        "\\": "\\\\",
        "\0": "",
    }
    return "".join(
        known[letter] if letter in known else letter if " " <= letter <= "~" else f"\\u{ord(letter):04x}"
        for letter in text
    )
