"""fastjson: the JSON dialect of fastjson 1.x, which Apache's files and bodies are written in.

Three forms are special: bare integer keys `{0:1}`, message queues as keys
`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`, and `{"$ref":"..."}` (left as it is).
Strict JSON goes through orjson. Knows no table; any thread.
"""

import re
from typing import Any, NamedTuple

import orjson

BYTES_MAX = 64 << 20
LENIENT_BYTES_MAX = 4 << 20
DEPTH_MAX = 64

_BARE_KEY = re.compile(rb'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)
_SPACED_KEY = re.compile(rb'^(\t*"(?:[^"\\]|\\.)*":) ', re.MULTILINE)
_BLANK = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(rb"[-+.\w$]+")


class JsonError(ValueError):
    """The text is not JSON in any form that fastjson writes; says where."""


class MessageQueue(NamedTuple):
    """A queue of a broker, the one object that Java uses as a key. Its order is Java's member order."""

    broker_name: str
    queue_id: int
    topic: str


def loads(data: bytes | str, bytes_max: int = BYTES_MAX) -> Any:  # noqa: ANN401
    """The value of a text. Keys come back as `str` (integer keys too) or `MessageQueue`. Raises JsonError."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(raw) > bytes_max:
        raise JsonError(f"JSON of {len(raw)} bytes, at most {bytes_max}")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(_BARE_KEY.sub(_quoted, raw))
    except orjson.JSONDecodeError:
        pass
    if len(raw) > LENIENT_BYTES_MAX:
        raise JsonError(
            f"JSON of {len(raw)} bytes is not strict, at most {LENIENT_BYTES_MAX} may be read leniently"
        )
    return _Reader(raw).whole()


def dumps(value: object) -> bytes:
    """Compact, members sorted, integer keys bare, message queues in Java's form. TypeError if it cannot."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError:
        pieces: list[str] = []
        _write(value, pieces, None, 0)
        return "".join(pieces).encode()


def pretty(value: object) -> bytes:
    """As `dumps`, each member on a line of its own, indented by tabs: the form of Apache's config files."""
    try:
        options = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_INDENT_2
        return _tabbed(orjson.dumps(value, option=options))
    except orjson.JSONEncodeError:
        pieces: list[str] = []
        _write(value, pieces, "\n", 0)
        return "".join(pieces).encode()


def _tabbed(text: bytes) -> bytes:
    """Blanks that begin a line become tabs, the one behind a key goes; no text holds a bare line feed."""
    deepest = 0
    while b"\n" + b"  " * (deepest + 1) in text:
        deepest += 1
    for depth in range(deepest, 0, -1):
        text = text.replace(b"\n" + b"  " * depth, b"\n" + b"\t" * depth)
    if any(doubt in text for doubt in (b'\\": ', b' ": ', b'\t": ')):
        return _SPACED_KEY.sub(rb"\1", text)  # a text holds what a key ends with: look at each line
    return text.replace(b'": ', b'":')


def _quoted(match: re.Match[bytes]) -> bytes:
    text, before, digits = match.groups()
    return text if text is not None else before + b'"' + digits + b'"'


def _write(value: object, pieces: list[str], line: str | None, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise TypeError(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, MessageQueue):
        value = {"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic}
    if isinstance(value, dict) and all(type(key) is type(at) is int for key, at in value.items()):
        pieces.append(_numbers(value, line, depth))
    elif isinstance(value, dict):
        members = [(_key(key), value[key]) for key in sorted(value, key=_rank)]
        _write_all(members, "{}", pieces, line, depth)
    elif isinstance(value, list | tuple | set | frozenset):
        _write_all([("", item) for item in value], "[]", pieces, line, depth)
    else:
        pieces.append(_scalar(value))


def _numbers(value: dict[int, int], line: str | None, depth: int) -> str:
    """A map of numbers: offsets, of which there are very many."""
    if line is None or not value:
        return "{" + ",".join(f"{key}:{at}" for key, at in sorted(value.items())) + "}"
    inner = line + "\t" * (depth + 1)
    return f"{{{','.join(f'{inner}{key}:{at}' for key, at in sorted(value.items()))}{line}{chr(9) * depth}}}"


def _write_all(
    members: list[tuple[str, object]], brackets: str, pieces: list[str], line: str | None, depth: int
) -> None:
    pieces.append(brackets[0])
    for n, (key, item) in enumerate(members):
        if n:
            pieces.append(",")
        if line is not None:
            pieces.append(line + "\t" * (depth + 1))
        pieces.append(key)
        _write(item, pieces, line, depth + 1)
    if members and line is not None:
        pieces.append(line + "\t" * depth)
    pieces.append(brackets[1])


def _key(key: object) -> str:
    if isinstance(key, MessageQueue):
        pieces: list[str] = []
        _write(key, pieces, None, 0)
        return "".join(pieces) + ":"
    if isinstance(key, int | str) and not isinstance(key, bool):
        return f"{_scalar(key)}:"
    raise TypeError(f"a key may be text, a number or a message queue, not {type(key).__name__}")


def _rank(key: object) -> tuple[int, int, str]:
    """Numbers before texts, each in its order; queues by topic, then number."""
    if isinstance(key, int):
        return (0, key, "")
    if isinstance(key, MessageQueue):
        return (1, key.queue_id, key.topic)
    return (2, 0, str(key))


def _scalar(value: object) -> str:
    if type(value) is int:
        return str(value)
    return orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()


class _Reader:
    """Reads what orjson refuses: object keys, bare keys, a comma before the closing bracket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
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

    def _object(self, depth: int) -> dict[str | MessageQueue, Any]:
        self._at += 1
        members: dict[str | MessageQueue, Any] = {}
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

    def _member_name(self, depth: int) -> str | MessageQueue:
        first = self._peek()
        if first == b"{":
            queue = message_queue(self._value(depth + 1))
            if queue is None:
                raise self._wrong("an object key that is no message queue")
            return queue
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
            value = orjson.loads(match[0])
        except orjson.JSONDecodeError:
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


def message_queue(value: object) -> MessageQueue | None:
    """The queue that an object names; None if it names none."""
    if not isinstance(value, dict):
        return None
    broker, number, topic = value.get("brokerName", ""), value.get("queueId"), value.get("topic")
    if not isinstance(broker, str) or not isinstance(topic, str) or type(number) is not int:
        return None
    return MessageQueue(broker, number, topic)
