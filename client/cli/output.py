"""Output: rows as a table on a terminal, as JSON Lines when piped or with `--json`.

JSON has the values as they are: times in milliseconds since 1970, sizes in bytes. A table has them as people read them.
States and severities have colours on a terminal, unless NO_COLOR (https://no-color.org) is set, or TERM is `dumb`.
"""

import io
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import orjson

from firearrow.client.base.times import age_text, time_text

GAP = "  "
CAPITAL = re.compile(r"([A-Z])")
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Kind(Enum):
    """How a table shows a value."""

    TEXT = auto()
    COUNT = auto()
    TIME = auto()
    """Milliseconds since 1970; 0: never"""
    AGE = auto()
    """A duration in milliseconds"""
    BYTES = auto()


class Colour(Enum):
    """Of a state or severity on a terminal; the value is that of ECMA-48's SGR."""

    RED = "31"
    """Something has failed, or is about to."""
    YELLOW = "33"
    """An operator should look at it."""
    GREEN = "32"


def red_if(name: str) -> Callable[[Mapping[str, Any]], Colour | None]:
    """The colour of a column that is red in rows that have a value there."""
    return lambda row: Colour.RED if row.get(name) else None


class Column(NamedTuple):
    """`name`: the member of a row, and of a JSON object. `title`: the head of the table's column. `colour`: that of its
    text in a row."""

    name: str
    title: str
    kind: Kind = Kind.TEXT
    colour: Callable[[Mapping[str, Any]], Colour | None] = lambda row: None


def titled(*names: str, kind: Kind = Kind.TEXT) -> tuple[Column, ...]:
    """Columns with the titles that follow from their names: `READ QUEUES` for `readQueues`."""
    return tuple(Column(name, CAPITAL.sub(r" \1", name).upper(), kind) for name in names)


class Output:
    """`json`: JSON Lines even on a terminal."""

    def __init__(self, *, json: bool) -> None:
        self.terminal = sys.stdout.isatty()
        self.json = json or not self.terminal
        self.has_colours = (
            not self.json and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        if isinstance(sys.stdout, io.TextIOWrapper):  # not a test's capture
            sys.stdout.reconfigure(encoding="utf-8" if self.json else None, errors="backslashreplace")

    def rows(self, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
        """Print rows; on a terminal at once, aligned. JSON has all members of a row, also those without a column."""
        if self.json:
            for row in rows:
                self.json_line(row)
            return
        rows = list(rows)
        cells = [[_cell(row.get(column.name), column.kind) for column in columns] for row in rows]
        heads = [column.title for column in columns]
        widths = [max(map(_width, texts)) for texts in zip(heads, *cells, strict=True)]
        right = [column.kind in (Kind.COUNT, Kind.BYTES, Kind.AGE) for column in columns]
        self._row(map(_aligned, heads, widths, right))
        for row, texts in zip(rows, cells, strict=True):
            aligned = map(_aligned, texts, widths, right)
            self._row(map(self.painted, aligned, (column.colour(row) for column in columns)))

    def _row(self, cells: Iterable[str]) -> None:
        sys.stdout.write(GAP.join(cells).rstrip() + "\n")

    def painted(self, text: str, colour: Colour | None) -> str:
        """The text in this colour, if the output has colours; spaces at its ends stay outside."""
        inner = text.strip()
        if colour is None or not inner or not self.has_colours:
            return text
        start = len(text) - len(text.lstrip())
        return f"{text[:start]}\x1b[{colour.value}m{inner}\x1b[0m{text[start + len(inner) :]}"

    def record(self, values: Mapping[str, Any], columns: Sequence[Column] = ()) -> None:
        """Print one object: a JSON line, or a line for each member. `columns` name titles and kinds of members."""
        if self.json:
            self.json_line(values)
            return
        known = {column.name: column for column in columns}
        shown = [known.get(name, Column(name, name)) for name in values]
        width = max((_width(column.title) for column in shown), default=0)
        for column in shown:
            text = _cell(values[column.name], column.kind)
            sys.stdout.write(f"{_aligned(column.title, width, False)}{GAP}{text}\n")

    def json_line(self, values: Mapping[str, Any]) -> None:
        line = orjson.dumps(values, default=str).decode()
        if self.terminal and not line.isprintable():
            line = "".join(map(_json_char, line))
        sys.stdout.write(line + "\n")

    def shown(self, line: str) -> None:
        """A line with text from outside: on a terminal without control characters, in a pipe as it is."""
        sys.stdout.write(f"{printable(line) if self.terminal else line}\n")

    def text(self, line: str) -> None:
        """A line on stdout, on a terminal and in a pipe."""
        sys.stdout.write(f"{line}\n")

    def progress(self, done: int, total: int) -> None:
        """How far a verb has come; the console shows it."""

    def flush(self) -> None:
        """For output that grows: each message appears when it comes."""
        sys.stdout.flush()

    def done(self, sentence: str, values: Mapping[str, Any]) -> None:
        """What a verb did: the sentence on a terminal, the values as JSON."""
        if self.json:
            self.json_line(values)
        else:
            self.text(printable(sentence))

    def redraw(self) -> None:
        """On a terminal, what follows replaces what is on the screen."""
        if not self.json:
            sys.stdout.write("\x1b[H\x1b[J")

    def note(self, line: str) -> None:
        """A line on stderr, which a pipe does not get."""
        print(printable(line), file=sys.stderr)

    def close(self) -> None:
        """BrokenPipeError: the output is not read."""
        sys.stdout.flush()


def _cell(value: object, kind: Kind) -> str:
    if value is None:
        return "-"
    if kind is not Kind.TEXT and isinstance(value, int):
        return _number_text(value, kind)
    if isinstance(value, list | tuple | set | frozenset):
        return printable(", ".join(map(str, value))) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def _number_text(value: int, kind: Kind) -> str:
    match kind:
        case Kind.TIME:
            return time_text(value) if value else "-"
        case Kind.AGE:
            return age_text(value)
        case Kind.BYTES:
            return bytes_text(value)
        case _:
            return f"{value:,}"


def bytes_text(size: float) -> str:
    """`3.4 MiB`"""
    for unit in UNITS[:-1]:
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {UNITS[-1]}"


def printable(text: str) -> str:
    """Without control characters, which could move a terminal's cursor: they come from outside."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _json_char(char: str) -> str:
    """JSON writes other control characters than those below 32 as they are."""
    if char.isprintable():
        return char
    return "".join(f"\\u{unit:04x}" for unit in _utf16(char))


def _utf16(char: str) -> tuple[int, ...]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2))


def _width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _aligned(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space
