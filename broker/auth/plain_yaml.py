"""The part of YAML in which `plain_acl.yml` is written: mappings and lists by indentation, or in brackets and braces
(flow style, also over several lines), and scalars.

Anything else (anchors, tags, multi-line texts, several documents) is refused: a file of permissions must not be
read in another way than it was meant. Pure functions.
"""

import re
from typing import NamedTuple

BYTES_MAX = 4 << 20
DEPTH_MAX = 8
LINES_MAX = 200_000
_SPECIAL = "&*!|>%@`]}"
_CLOSING = {"[": "]", "{": "}"}
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
    """Without comments and blank lines; brackets that end in a later line are joined in one."""
    found: list[_Line] = []
    pieces: list[str] = []
    depth = 0
    for number, raw in enumerate(text.splitlines(), 1):
        if number > LINES_MAX:
            raise YamlError(f"more than {LINES_MAX} lines")
        bare = _without_comment(raw).rstrip()
        stripped = bare.lstrip(" ")
        if not stripped or (stripped == "---" and not found):
            continue
        if depth:  # indentation means nothing in brackets
            pieces.append(stripped.lstrip("\t "))
            depth = _flow_depth(found[-1], pieces[-1], depth)
            if not depth:
                found[-1] = found[-1]._replace(text=" ".join(pieces))
            continue
        if stripped.startswith("\t"):
            raise YamlError(f"line {number} is indented with a tab: use spaces")
        found.append(_Line(number, len(bare) - len(stripped), stripped))
        at = _flow_start(stripped)
        depth, pieces = 0 if at < 0 else _flow_depth(found[-1], stripped[at:], 0), [stripped]
    if depth:
        raise _fault(found[-1], "begins brackets that do not end")
    return found


def _flow_start(text: str) -> int:
    """Where a value in brackets begins in a line; -1: there is none."""
    at = 0
    for _ in range(DEPTH_MAX):
        if text.startswith("- ", at):
            at = _blank_end(text, at + 2)
    end = _key_end(text[at:])
    if end >= 0:
        at += end + 1
    at = _blank_end(text, at)
    return at if text[at : at + 1] in ("[", "{") else -1


def _flow_depth(line: _Line, text: str, depth: int) -> int:
    """How many brackets are open after the text."""
    quote = ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
    if quote:
        raise _fault(line, "has a quoted text that does not end in its line")
    return max(depth, 0)


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
    if lines[at].text[0] in _CLOSING:
        return _scalar(lines[at], lines[at].text), at + 1
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
        elif char in _CLOSING and n == 0:
            return -1
    return -1


def _scalar(line: _Line, text: str) -> object:
    if not text:
        raise _fault(line, "has an empty text in a list")
    if text[0] in _CLOSING:
        value, end = _flow(line, text, 0, 0)
        if text[end:].strip():
            raise _fault(line, f"has a text after its brackets: {text[end:].strip()[:40]!r}")
        return value
    if text[0] in "'\"":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1].replace(text[0] * 2, ""):
            raise _fault(line, "has a quoted text that does not end at the end of the line")
        if text[0] == '"' and "\\" in text:
            raise _fault(line, "has an escape in a quoted text: use single quotes")
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
    if text[0] in _SPECIAL and not _is_address(text):
        raise _fault(line, f"has a value that begins with {text[0]}: put it in quotes")
    return "" if text in ("null", "~") else text


def _flow(line: _Line, text: str, at: int, depth: int) -> tuple[object, int]:
    """The list or mapping in brackets that begins there, and the position after it."""
    if depth > DEPTH_MAX:
        raise _fault(line, f"is nested deeper than {DEPTH_MAX} levels")
    is_mapping, closing = text[at] == "{", _CLOSING[text[at]]
    items: list[object] = []
    members: dict[str, object] = {}
    at = _blank_end(text, at + 1)
    while text[at : at + 1] != closing:
        key: object = ""
        if is_mapping:
            key, at = _flow_scalar(line, text, at, ":")
            if text[at : at + 1] != ":":
                raise _fault(line, "has no `key: value` in its braces")
            if str(key) in members:
                raise _fault(line, f"has {str(key)[:40]} for the second time")
            at = _blank_end(text, at + 1)
        value: object = ""
        if text[at : at + 1] in ("[", "{"):
            value, at = _flow(line, text, at, depth + 1)
        elif text[at : at + 1] not in (",", closing):
            value, at = _flow_scalar(line, text, at, "")
        elif not is_mapping:
            raise _fault(line, "has an empty text in a list")
        if is_mapping:
            members[str(key)] = value
        else:
            items.append(value)
        at = _blank_end(text, at)
        if text[at : at + 1] == ",":
            at = _blank_end(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _fault(line, f"has brackets in which `,` or `{closing}` is missing")
    return (members if is_mapping else items), at + 1


def _flow_scalar(line: _Line, text: str, at: int, ends_at: str) -> tuple[object, int]:
    """The scalar that begins there, and the position after it and after blanks. `ends_at` ":": it is a key."""
    start, end = at, at
    if text[at : at + 1] in ("'", '"'):
        quote = text[at]
        end = at + 1
        while end < len(text) and (text[end] != quote or (quote == "'" and text[end : end + 2] == "''")):
            end += 2 if text[end : end + 2] == "''" and quote == "'" else 1
        end += 1
    else:
        while end < len(text) and text[end] not in ",[]{}":
            after = text[end + 1 : end + 2]
            if text[end] == ":" and (after in ("", " ") or after in ",[]{}"):
                break
            end += 1
        if not ends_at and text[end : end + 1] == ":":
            raise _fault(line, "has a `key: value` in a list in brackets: put it in braces")
    word = text[start:end].strip()
    if word.startswith(("- ", "? ")) or word in ("-", "?"):
        raise _fault(line, f"has a value in brackets that begins with {word[0]}: put it in quotes")
    return _scalar(line, word), _blank_end(text, end)


def _blank_end(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def _is_address(text: str) -> bool:
    """`*` and `*.*.*.*`, which are written without quotes although YAML has no such scalar."""
    return not text.strip("*.:")


def _fault(line: _Line, what: str) -> YamlError:
    return YamlError(f"line {line.number} {what}")
