"""Typed access to members of parsed JSON. Pure functions.

A wrong type raises ValueError, whose text names the member.
As lenient as Java: numbers and booleans may be strings, and a missing or null member has its default.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from firearrow._native.protocol.fastjson import DEPTH_MAX

Members = Mapping[Any, Any]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


def members(value: object, what: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def members_or_none(value: object, what: str) -> dict[Any, Any]:
    return {} if value is None else members(value, what)


def items(value: object, what: str) -> list[Any]:
    """A list; null counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    return value


def text(of: Members, name: str, default: str | None = None) -> str:
    value = of.get(name)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise ValueError(f"{name} is missing or not a string")
    return value


def number(of: Members, name: str, default: int | None = None, *, low: int = 0, high: int = INT_MAX) -> int:
    value = of.get(name)
    if value is None:
        value = default
    if isinstance(value, str):
        value = whole(value, name)
    if type(value) is not int:
        raise ValueError(f"{name} is missing or not a number")
    if not low <= value <= high:
        raise ValueError(f"{name} must be {low} to {high}, not {value}")
    return value


def boolean(of: Members, name: str, default: bool) -> bool:
    value = of.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value.lower() == "true"
    if not isinstance(value, bool | int):
        raise ValueError(f"{name} is not a boolean")
    return bool(value)


def whole(value: object, what: str) -> int:
    """An integer, or a string of one (a map's key)."""
    if type(value) is int:
        return value
    if (
        isinstance(value, str)
        and len(value) <= 20
        and value.lstrip("-").isdecimal()
        and value.count("-") <= 1
    ):
        return int(value)
    raise ValueError(f"{what} is not a number")


def size(value: object, what: str, depth: int = 0) -> int:
    """Bytes of the value in a file, `depth` levels down. ValueError for a value that could be read but not
    written again, or only as JSON that is not strict, which is not read in a long file.
    """
    level = [value]
    for _ in range(DEPTH_MAX - depth + 1):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            break
    else:
        raise ValueError(f"{what} is nested deeper than {DEPTH_MAX - depth}")
    try:
        return len(orjson.dumps(value))
    except TypeError as error:
        raise ValueError(f"{what} cannot be written ({error})") from None


def string_map(value: object, what: str) -> dict[str, str]:
    """A map of strings; null counts as an empty one."""
    of = members_or_none(value, what)
    if not all(isinstance(key, str) and isinstance(item, str) for key, item in of.items()):
        raise ValueError(f"{what} contains a value that is not a string")
    return of
