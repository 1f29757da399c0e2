"""The JSON that Java's clients write: message queues as keys of maps, and keys that are bare numbers.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}` and `{0:"host"}` are no JSON, but what fastjson makes
of Java's maps. Input is bounded in size and depth. Knows no body and no file; any thread.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

from firearrow.client.message import MessageQueue

BYTES_MAX = 16 << 20
DEPTH_MAX = 64

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(r"[-+.\w$]+", re.ASCII)


class JsonError(ValueError):
    """The text is not JSON in any form that Java's clients write; says what and where."""


def loads(data: bytes | str) -> Any:  # noqa: ANN401
    """The value of a text. Keys are `str` (numbers, too) or MessageQueue. JsonError."""
    if len(data) > BYTES_MAX:
        raise JsonError(f"JSON of {len(data)} bytes, at most {BYTES_MAX}")
    try:
        text = data.decode() if isinstance(data, bytes) else data
        return json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8: {error}") from None
    except RecursionError:
        raise JsonError(f"nested deeper than {DEPTH_MAX}") from None
    except ValueError:
        return _Reader(text).whole()


def dumps(value: object, *, pretty: bool = False) -> bytes:
    """Compact, or with a member on each line as Java's files are. Keys: `str`, `int` or MessageQueue, order is kept."""
    pieces: list[str] = []
    _write(value, pieces, "\n" if pretty else "")
    return "".join(pieces).encode("utf-8", "replace")


def message_queue(value: object) -> MessageQueue:
    """The queue that an object, or a text that holds one, names. JsonError."""
    if isinstance(value, MessageQueue):
        return value
    if isinstance(value, str):
        value = loads(value)
    if not isinstance(value, dict):
        raise JsonError("a message queue is wanted")
    topic, broker, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
    if not (isinstance(topic, str) and isinstance(broker, str) and is_integer(queue_id, 32)):
        raise JsonError("a message queue without topic, brokerName or queueId")
    return MessageQueue(topic, broker, queue_id)


def queue_json(queue: MessageQueue) -> dict[str, object]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_offsets(value: object) -> dict[MessageQueue, int]:
    """Java's map from queues to offsets, or the list with `offset` that is told to C++ clients. JsonError."""
    pairs: list[tuple[object, object]]
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = [(item, item.get("offset") if isinstance(item, dict) else None) for item in value]
    else:
        raise JsonError("a map from queues to offsets is wanted")
    table: dict[MessageQueue, int] = {}
    for key, offset in pairs:
        queue = message_queue(key)
        if not is_integer(offset, 64):
            raise JsonError(f"{queue}: its offset is no number")
        table[queue] = offset
    return table


def is_integer(value: object, bits: int) -> TypeGuard[int]:
    return type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _write(value: object, pieces: list[str], line: str) -> None:
    """`line` is what a new line begins with, nothing when compact."""
    if isinstance(value, MessageQueue):
        value = queue_json(value)
    if isinstance(value, Mapping):
        _write_members(value, pieces, line)
    elif isinstance(value, list | tuple):
        _write_items(value, pieces, line)
    else:
        pieces.append(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _write_members(members: Mapping[Any, object], pieces: list[str], line: str) -> None:
    inner = line and line + "\t"
    before = "{" + inner
    for key, item in members.items():
        pieces.append(before)
        _write(key if isinstance(key, MessageQueue | int) else str(key), pieces, inner)
        pieces.append(":")
        _write(item, pieces, inner)
        before = "," + inner
    pieces.append(line + "}" if members else "{}")


def _write_items(items: list[object] | tuple[object, ...], pieces: list[str], line: str) -> None:
    inner = line and line + "\t"
    before = "[" + inner
    for item in items:
        pieces.append(before)
        _write(item, pieces, inner)
        before = "," + inner
    pieces.append(line + "]" if items else "[]")


class _Reader:
    """Reads what `json` refuses: keys that are objects or bare, a comma before the closing bracket."""

    def __init__(self, text: str) -> None:
        self._text = text
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
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        return self._token(_STRING if first == '"' else _BARE)

    def _object(self, depth: int) -> dict[str | MessageQueue, Any]:
        self._at += 1
        members: dict[str | MessageQueue, Any] = {}
        while not self._ends("}"):
            key = self._key(depth)
            if self._peek() != ":":
                raise self._wrong("no colon")
            self._at += 1
            members[key] = self._value(depth + 1)
            self._comma("}")
        return members

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        items: list[Any] = []
        while not self._ends("]"):
            items.append(self._value(depth + 1))
            self._comma("]")
        return items

    def _key(self, depth: int) -> str | MessageQueue:
        first = self._peek()
        if first == "{":
            return message_queue(self._value(depth + 1))
        if first == '"':
            return str(self._token(_STRING))
        match = _BARE.match(self._text, self._at)
        if match is None:
            raise self._wrong("no key")
        self._at = match.end()
        return match[0]

    def _token(self, pattern: re.Pattern[str]) -> Any:  # noqa: ANN401
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._wrong("no value")
        try:
            value = json.loads(match[0], parse_constant=_no_constant)
        except ValueError:
            raise self._wrong("no value") from None
        self._at = match.end()
        return value

    def _ends(self, bracket: str) -> bool:
        if self._peek() != bracket:
            return False
        self._at += 1
        return True

    def _comma(self, bracket: str) -> None:
        following = self._peek()
        if following == ",":
            self._at += 1
        elif following != bracket:
            raise self._wrong("no comma")

    def _peek(self) -> str:
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _wrong(self, what: str) -> JsonError:
        return JsonError(f"not JSON: {what} at character {self._at}")
