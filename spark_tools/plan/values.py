"""What texts of options mean: whole numbers, sizes, lists, tags, JSON. Pure; ValueError says what is wanted."""

import json
import re
from collections.abc import Callable
from typing import Any

LONG_MAX = (1 << 63) - 1
ITEMS_MAX = 1_000_000
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def whole(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of whole numbers within [low, high]."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high} is wanted")
        return int(text)

    return parse


def size(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of bytes: `134217728`, `128m`, `128 MiB`, `1g`; units are powers of 1024."""

    def parse(text: str) -> int:
        match = re.fullmatch(r"\s*(\d{1,19})\s*([kmgt]?)(?:i?b)?\s*", text.lower(), re.ASCII)
        count = int(match[1]) * _UNITS[match[2]] if match else -1
        if not low <= count <= high:
            raise ValueError(f"bytes from {low} to {high} are wanted, as 134217728 or 128m")
        return count

    return parse


def flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false is wanted")
    return text.strip().lower() == "true"


def one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in names:
            raise ValueError(f"{' or '.join(names)} is wanted")
        return text.strip().lower()

    return parse


def plain(text: str) -> str:
    if not text.strip():
        raise ValueError("a text is wanted")
    return text


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each once, in their order."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in found or len(found) > ITEMS_MAX:
        raise ValueError("names separated by commas are wanted")
    return found


def tag_set(text: str) -> frozenset[str]:
    """`A || B` as subscriptions have it, or `A,B`; `*` is every message."""
    found = frozenset(part.strip() for part in re.split(r"\|\||,", text))
    if found == {"*"}:
        return frozenset()
    if "" in found or "*" in found:
        raise ValueError("tags separated by || are wanted, or * alone")
    return found


def key_set(text: str) -> frozenset[str]:
    return frozenset(names(text))


def folders(text: str) -> tuple[str, ...]:
    """One folder, or a JSON list of folders."""
    if not text.lstrip().startswith("["):
        return (plain(text),)
    found = json_value(text)
    if not found or not all(isinstance(folder, str) and folder.strip() for folder in found):
        raise ValueError('a folder is wanted, or a JSON list as ["/store/a", "/store/b"]')
    return tuple(dict.fromkeys(found))


def pattern(text: str) -> str:
    try:
        re.compile(plain(text))
    except re.error as error:
        raise ValueError(f"a regular expression is wanted: {error}") from None
    return text


def json_value(text: str) -> Any:  # noqa: ANN401
    """Parsed; members named twice are refused rather than dropped."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_integer)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"JSON is wanted: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    found = json_value(text)
    if not isinstance(found, dict):
        raise ValueError("a JSON object is wanted")
    return found


def number(value: object, low: int, high: int = LONG_MAX) -> int:
    """A whole number inside of JSON, also as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"a whole number from {low} to {high} is wanted, not {value!r}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"JSON with each name once is wanted: {_twice(pairs)!r} is named twice")
    return found


def _twice(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _no_constant(text: str) -> float:
    raise ValueError(f"JSON has no {text}")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits is no offset")
    return int(text)
