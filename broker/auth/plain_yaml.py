"""The part of YAML in which `plain_acl.yml` is written: mappings and lists by indentation, lists in brackets, scalars.

Anything else (anchors, tags, multi-line texts, several documents) is refused: a file of permissions must not be
read in another way than it was meant. Pure functions.
"""

import re
from typing import NamedTuple

BYTES_MAX = 4 << 20
DEPTH_MAX = 8
LINES_MAX = 200_000
_SPECIAL = "&*!|>%@`{"
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./|=%*-]*")
"""Texts that need no quotes, in every version of YAML, unless they are one of `_WORDS`."""
_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


class YamlError(ValueError):
    """The text is not in this part of YAML; the message names the line."""


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def parse(text: str) -> object:
    """Dicts, lists, and scalars as str (a missing value: ""). YamlError."""
    if len(text) > BYTES_MAX:
        raise YamlError(f"{len(text)} characters, at most {BYTES_MAX} are allowed")
    lines = _lines(text)
    if not lines:
        return {}
    value, end = _block(lines, 0, lines[0].indent, 0)
    if end < len(lines):
        raise _fault(lines[end], "is indented in another way than the lines above")
    return value


def dump(value: dict[str, object]) -> str:
    """The text of a mapping as `parse` reads it. Mappings keep their order; comments are lost. A bool or an int is
    written as it is, a str in quotes if it could be something else. ValueError: a str has a control character."""
    return "\n".join(_dumped(value, "")) + "\n"


def _dumped(value: object, indent: str) -> list[str]:
    if isinstance(value, dict):
        lines = []
        for key, member in value.items():
            if isinstance(member, dict | list) and member:
                lines += [f"{indent}{_quoted(str(key))}:", *_dumped(member, indent + "  ")]
            else:
                lines.append(f"{indent}{_quoted(str(key))}: {_written(member)}".rstrip())
        return lines
    if isinstance(value, list):
        lines = []
        for member in value:
            if isinstance(member, list):
                raise ValueError("a list in a list cannot be written")
            inner = _dumped(member, indent + "  ") if isinstance(member, dict) and member else None
            lines += [f"{indent}- {(inner or [_written(member)])[0].lstrip()}", *(inner or [""])[1:]]
        return lines
    return [indent + _written(value)]


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict | list):
        return "[]"
    return _quoted(str(value)) if value else "''"


def _quoted(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a text has a character that cannot be printed")
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return "'" + text.replace("'", "''") + "'"


def _lines(text: str) -> list[_Line]:
    found: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        if number > LINES_MAX:
            raise YamlError(f"more than {LINES_MAX} lines")
        bare = _without_comment(raw).rstrip()
        stripped = bare.lstrip(" ")
        if not stripped or (stripped == "---" and not found):
            continue
        if stripped.startswith("\t"):
            raise YamlError(f"line {number} is indented with a tab: use spaces")
        found.append(_Line(number, len(bare) - len(stripped), stripped))
    return found


def _without_comment(line: str) -> str:
    quote = ""
    for n, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (n == 0 or line[n - 1] in " \t"):
            return line[:n]
    return line


def _block(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[object, int]:
    """The value whose lines begin at `at`, and the index of the line after it."""
    if depth > DEPTH_MAX:
        raise _fault(lines[at], f"is nested deeper than {DEPTH_MAX} levels")
    if _is_item(lines[at].text):
        return _sequence(lines, at, indent, depth)
    return _mapping(lines, at, indent, depth)


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _sequence(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[list[object], int]:
    items: list[object] = []
    while at < len(lines) and lines[at].indent == indent and _is_item(lines[at].text):
        line = lines[at]
        rest = line.text[1:].lstrip(" ")
        inner = indent + len(line.text) - len(rest)
        if not rest:
            if at + 1 < len(lines) and lines[at + 1].indent > indent:
                value, at = _block(lines, at + 1, lines[at + 1].indent, depth + 1)
            else:
                value, at = "", at + 1
        elif _key_end(rest) >= 0 or _is_item(rest):
            lines[at] = _Line(line.number, inner, rest)
            value, at = _block(lines, at, inner, depth + 1)
        else:
            value, at = _scalar(line, rest), at + 1
        items.append(value)
    return items, at


def _mapping(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[dict[str, object], int]:
    found: dict[str, object] = {}
    while at < len(lines) and lines[at].indent == indent and not _is_item(lines[at].text):
        line = lines[at]
        end = _key_end(line.text)
        if end <= 0:
            raise _fault(line, "is no `key: value`")
        key, rest = str(_scalar(line, line.text[:end].rstrip())), line.text[end + 1 :].strip()
        if key in found:
            raise _fault(line, f"has {key} for the second time")
        at += 1
        if rest:
            found[key] = _scalar(line, rest)
        elif at < len(lines) and (
            lines[at].indent > indent or (lines[at].indent == indent and _is_item(lines[at].text))
        ):
            found[key], at = _block(lines, at, lines[at].indent, depth + 1)
        else:
            found[key] = ""
    return found, at


def _key_end(text: str) -> int:
    """Where the colon after a key is; -1: there is none."""
    quote = ""
    for n, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == ":" and (n + 1 == len(text) or text[n + 1] == " "):
            return n
        elif char == "[" and n == 0:
            return -1
    return -1


def _scalar(line: _Line, text: str) -> object:
    if not text:
        raise _fault(line, "has an empty text in a list")
    if text.startswith("["):
        if not text.endswith("]"):
            raise _fault(line, "begins a list in brackets that does not end in it")
        inner = text[1:-1].strip()
        return [_scalar(line, word.strip()) for word in inner.split(",")] if inner else []
    if text[0] in "'\"":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1].replace(text[0] * 2, ""):
            raise _fault(line, "has a quoted text that does not end at the end of the line")
        if text[0] == '"' and "\\" in text:
            raise _fault(line, "has an escape in a quoted text: use single quotes")
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
    if text[0] in _SPECIAL and not _is_address(text):
        raise _fault(line, f"has a value that begins with {text[0]}: put it in quotes")
    return "" if text in ("null", "~") else text


def _is_address(text: str) -> bool:
    """`*` and `*.*.*.*`, which are written without quotes although YAML has no such scalar."""
    return not text.strip("*.:")


def _fault(line: _Line, what: str) -> YamlError:
    return YamlError(f"line {line.number} {what}")
