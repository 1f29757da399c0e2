"""Reads fastjson 1.x output that is not valid JSON: keys that are objects or unquoted, a trailing comma.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}`, `{0:"host"}`. Depth is limited; the caller
limits the size and interprets keys that are objects. Any thread.
"""

import re
from collections.abc import Callable, Hashable
from typing import Any

import orjson

DEPTH_MAX = 64

_BLANK = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(rb"[-+.\w$]+")


class JsonError(ValueError):
    """The text is not JSON in any form that fastjson writes; the message states what is wrong and where."""


def read(
    raw: bytes,
    key_of: Callable[[dict[Any, Any]], Hashable],
    scalar_of: Callable[[bytes], Any] = orjson.loads,
) -> Any:  # noqa: ANN401
    """The value of a text. JsonError.

    `key_of` gives the key that an object stands for, or None; `scalar_of` the value of a text or number, or
    ValueError.
    """
    return _Reader(raw, key_of, scalar_of).whole()


class _Reader:
    def __init__(
        self, raw: bytes, key_of: Callable[[dict[Any, Any]], Hashable], scalar_of: Callable[[bytes], Any]
    ) -> None:
        self._raw = raw
        self._key_of = key_of
        self._scalar_of = scalar_of
        self._at = 0

    def whole(self) -> Any:  # noqa: ANN401
        value = self._value(0)
        if self._peek():
            raise self._wrong("text after the value")
        return value

    def _value(self, depth: int) -> Any:  # noqa: ANN401
        if depth > DEPTH_MAX:
            raise self._wrong(f"nested deeper than {DEPTH_MAX}")
        first = self._peek()
        if first == b"{":
            return self._object(depth)
        if first == b"[":
            return self._array(depth)
        return self._token(_STRING if first == b'"' else _BARE)

    def _object(self, depth: int) -> dict[Hashable, Any]:
        self._at += 1
        members: dict[Hashable, Any] = {}
        while not self._ends(b"}"):
            key = self._member_name(depth)
            if self._peek() != b":":
                raise self._wrong("no colon")
            self._at += 1
            members[key] = self._value(depth + 1)
            self._comma(b"}")
        return members

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        items: list[Any] = []
        while not self._ends(b"]"):
            items.append(self._value(depth + 1))
            self._comma(b"]")
        return items

    def _member_name(self, depth: int) -> Hashable:
        first = self._peek()
        if first == b"{":
            key = self._key_of(self._value(depth + 1))
            if key is None:
                raise self._wrong("an object that is not a message queue as a key")
            return key
        if first == b'"':
            return str(self._token(_STRING))
        match = _BARE.match(self._raw, self._at)
        if match is None:
            raise self._wrong("no key")
        self._at = match.end()
        return match[0].decode("utf-8", "replace")

    def _token(self, pattern: re.Pattern[bytes]) -> Any:  # noqa: ANN401
        match = pattern.match(self._raw, self._at)
        if match is None:
            raise self._wrong("no value")
        try:
            value = self._scalar_of(match[0])
        except ValueError:
            raise self._wrong("no value") from None
        self._at = match.end()
        return value

    def _ends(self, bracket: bytes) -> bool:
        if self._peek() != bracket:
            return False
        self._at += 1
        return True

    def _comma(self, bracket: bytes) -> None:
        following = self._peek()
        if following == b",":
            self._at += 1
        elif following != bracket:
            raise self._wrong("no comma")

    def _peek(self) -> bytes:
        match = _BLANK.match(self._raw, self._at)
        self._at = match.end() if match else self._at
        return self._raw[self._at : self._at + 1]

    def _wrong(self, what: str) -> JsonError:
        return JsonError(f"not JSON: {what} at byte {self._at}")
