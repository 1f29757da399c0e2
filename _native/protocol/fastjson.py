"""fastjson: the JSON dialect of fastjson 1.x, in which Apache's files and bodies are written.

Three forms are special: bare integer keys `{0:1}`, message queues as keys
`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`, and `{"$ref":"..."}` (not resolved). Input is bounded in size and
depth. Strict JSON goes through orjson. Knows no table; any thread.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeGuard

import orjson

from firearrow._native.protocol.message_queue import MessageQueue

BYTES_MAX = 64 << 20
LENIENT_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = 16 << 20
BODY_VALUES_MAX = 250_000
BODY_LENIENT_BYTES_MAX = 64 << 10
"""Limits of bodies from peers: parsing a MiB leniently takes seconds, in which no other request is served."""
DEPTH_MAX = 64

_BLANK = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(rb"[-+.\w$]+")
_BARE_KEY = re.compile(rb'("(?:[^"\\]|\\.)*"?)|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)
_SPACED_KEY = re.compile(rb'^(\t*"(?:[^"\\\n]|\\.)*":) ', re.MULTILINE)
_QUEUE_KEY = re.compile(rb'\{"brokerName":"([^"\\]*)","queueId":(-?[0-9]{1,10}),"topic":"([^"\\]*)"\}(?=:)')
"""A message queue as a key, as fastjson writes it; no string of JSON contains this."""
_QUEUE_TEXT = rb'"\\u0000\1\\u0000\2\\u0000\3"'
"""The same as a string that no other key is: broker, queue and topic, each after a NUL."""
_OVER_18_DIGITS = re.compile(rb"[0-9]{19}")


class JsonError(ValueError):
    """The text is not JSON in any form that fastjson writes; the message says what is wrong and where."""


# ---- reading ----


def loads(data: bytes | str, bytes_max: int = BYTES_MAX, *, lenient_bytes_max: int = BYTES_MAX) -> Any:  # noqa: ANN401
    """Parse a text. Keys are `str` (integer keys, too) or `MessageQueue`. JsonError.

    A text of more than `lenient_bytes_max` must be strict JSON.
    """
    raw = _raw(data, bytes_max)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    if len(raw) <= lenient_bytes_max:
        try:
            return orjson.loads(_BARE_KEY.sub(_quoted, raw))
        except orjson.JSONDecodeError:
            pass
    limit = min(LENIENT_BYTES_MAX, lenient_bytes_max)
    if len(raw) > limit:
        raise JsonError(f"JSON of {len(raw)} bytes is not strict, at most {limit} can be parsed leniently")
    return _Reader(raw, message_queue, orjson.loads).whole()


def loads_body(
    body: bytes,
    bytes_max: int = BYTES_MAX,
    *,
    lenient_bytes_max: int = BODY_LENIENT_BYTES_MAX,
    values_max: int = BODY_VALUES_MAX,
) -> Any:  # noqa: ANN401
    """Like `loads`, for a body from a peer: strict JSON unless small, with a limited number of values.
    JsonError."""
    if body.count(b",") > values_max:
        raise JsonError(f"JSON of {len(body)} bytes with more than {values_max} commas")
    return loads(body, bytes_max, lenient_bytes_max=lenient_bytes_max)


def loads_answer(data: bytes | str) -> Any:  # noqa: ANN401
    """Like `loads`, for what a client gets from a broker or keeps in a file: lenient up to its limit, and exact beyond
    64 bits. JsonError."""
    raw = _raw(data, ANSWER_BYTES_MAX)
    with contextlib.suppress(ValueError):
        return _exact(raw)
    quoted, count = _QUEUE_KEY.subn(_QUEUE_TEXT, raw)
    if count and b"\\u0000" not in raw:
        with contextlib.suppress(ValueError):
            return _with_queues(_exact(quoted), count)
    return _Reader(raw, queue_of, _exact).whole()


def is_integer(value: object, bits: int) -> TypeGuard[int]:
    return type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def message_queue(value: object) -> MessageQueue | None:
    """The message queue that an object describes; None if it is not one."""
    if not isinstance(value, dict):
        return None
    broker, queue_id, topic = value.get("brokerName", ""), value.get("queueId"), value.get("topic")
    if not isinstance(broker, str) or not isinstance(topic, str) or not is_integer(queue_id, 64):
        return None
    return MessageQueue(topic, broker, queue_id)


def queue_of(value: object) -> MessageQueue:
    """The queue of a key, an object, or a string that contains one. JsonError."""
    if isinstance(value, MessageQueue):
        return value
    if isinstance(value, str):
        value = loads_answer(value)
    if not isinstance(value, dict):
        raise JsonError("a message queue must be an object")
    queue = message_queue(value)
    if queue is None or "brokerName" not in value or not is_integer(queue.queue_id, 32):
        raise JsonError("a message queue without valid topic, brokerName or queueId")
    return queue


def queue_offsets(value: object) -> dict[MessageQueue, int]:
    """Java's map from queues to offsets, or the list with `offset` that C++ clients get. JsonError."""
    pairs: list[tuple[object, object]]
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = [(item, item.get("offset") if isinstance(item, dict) else None) for item in value]
    else:
        raise JsonError("offsets must be a map from queues to offsets")
    table: dict[MessageQueue, int] = {}
    for key, offset in pairs:
        queue = queue_of(key)
        if not is_integer(offset, 64):
            raise JsonError(f"{queue}: the offset is not a number")
        table[queue] = offset
    return table


def _raw(data: bytes | str, bytes_max: int) -> bytes:
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(raw) > bytes_max:
        raise JsonError(f"JSON of {len(raw)} bytes, at most {bytes_max}")
    return raw


def _exact(raw: bytes) -> Any:  # noqa: ANN401
    """Standard JSON. By orjson, and by json if it may contain integers over 64 bits, which orjson turns to floats.
    ValueError."""
    value = orjson.loads(raw)
    try:
        return json.loads(raw) if _OVER_18_DIGITS.search(raw) else value
    except RecursionError:
        raise ValueError("nested too deep") from None


def _with_queues(value: Any, count: int) -> Any:  # noqa: ANN401
    """The value with queues in place of `count` keys of the form _QUEUE_TEXT: a tenth of the time that the reader below
    takes. JsonError."""
    waiting = [value]
    while waiting and count:
        node = waiting.pop()
        if isinstance(node, dict):
            items = list(node.items())
            marked = sum(key.startswith("\0") for key in node)
            if marked:
                count -= marked
                node.clear()
                node.update((_queue_key(key) if key[:1] == "\0" else key, item) for key, item in items)
            if not count:
                break
            node = node.values()
        waiting += [item for item in node if isinstance(item, dict | list)]
    return value


def _queue_key(text: str) -> MessageQueue:
    _, broker, queue_id, topic = text.split("\0")
    number = int(queue_id)
    if not is_integer(number, 32):
        raise JsonError(f"queueId {queue_id} is not a queue")
    return MessageQueue(topic, broker, number)


def _quoted(match: re.Match[bytes]) -> bytes:
    text, before, digits = match.groups()
    return text if text is not None else before + b'"' + digits + b'"'


class _Reader:
    """Reads what is not valid JSON: keys that are objects or unquoted, a trailing comma."""

    def __init__(
        self,
        raw: bytes,
        key_of: Callable[[object], MessageQueue | None],
        scalar_of: Callable[[bytes], Any],
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
            key = self._key_of(self._value(depth + 1))
            if key is None:
                raise self._wrong("an object as a key that is no message queue")
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


# ---- writing ----


def dumps(value: object, *, is_sorted: bool = True) -> bytes:
    """Write compact JSON: members sorted, integer keys bare, message queues in Java's form. TypeError."""
    try:
        return orjson.dumps(value, option=_options(is_sorted=is_sorted))
    except orjson.JSONEncodeError:
        return _Writer(is_sorted=is_sorted, is_pretty=False).text(value)


def pretty(value: object, *, is_sorted: bool = True) -> bytes:
    """Like `dumps`, but one member a line, indented with tabs: the form of Apache's config files."""
    try:
        return _tabbed(orjson.dumps(value, option=_options(is_sorted=is_sorted) | orjson.OPT_INDENT_2))
    except orjson.JSONEncodeError:
        return _Writer(is_sorted=is_sorted, is_pretty=True).text(value)


def _options(*, is_sorted: bool) -> int:
    return orjson.OPT_PASSTHROUGH_DATACLASS | (orjson.OPT_SORT_KEYS if is_sorted else 0)


def _tabbed(text: bytes) -> bytes:
    """Replace indenting spaces by tabs and remove the space after a key; no string contains a bare line
    feed."""
    deepest = 0
    while b"\n" + b"  " * (deepest + 1) in text:
        deepest += 1
    for depth in range(deepest, 0, -1):
        text = text.replace(b"\n" + b"  " * depth, b"\n" + b"\t" * depth)
    if any(ending in text for ending in (b'\\": ', b' ": ', b'\t": ')):
        return _SPACED_KEY.sub(rb"\1", text)  # a string contains the end of a key: check each line
    return text.replace(b'": ', b'":')


_FIRST, _SECOND = itemgetter(0), itemgetter(1)


class _Writer:
    """Writes what is not valid JSON: keys that are integers or message queues."""

    def __init__(self, *, is_sorted: bool, is_pretty: bool) -> None:
        self._is_sorted = is_sorted
        self._line = "\n" if is_pretty else ""
        self._tab = "\t" if is_pretty else ""
        self._parts: list[str] = []

    def text(self, value: object) -> bytes:
        self._write(value, 0)
        return "".join(self._parts).encode()

    def _write(self, value: object, depth: int) -> None:
        if isinstance(value, int | str):  # most values, and the rest of the questions takes longer
            self._parts.append(_scalar(value))
            return
        if depth > DEPTH_MAX:
            raise TypeError(f"nested deeper than {DEPTH_MAX}")
        if isinstance(value, MessageQueue):
            value = {"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic}
        if isinstance(value, dict | Mapping):
            if all(type(key) is type(item) is int for key, item in value.items()):
                self._parts.append(self._numbers(value, depth))
            else:
                members = sorted(value.items(), key=_rank) if self._is_sorted else value.items()
                self._write_all("{}", list(map(_FIRST, members)), map(_SECOND, members), depth)
        elif isinstance(value, list | tuple | set | frozenset):
            self._write_all("[]", None, value, depth)
        else:
            self._parts.append(_scalar(value))

    def _numbers(self, value: Mapping[int, int], depth: int) -> str:
        """A map of integers, fast: offsets, of which there are very many."""
        inner = self._line + self._tab * (depth + 1)
        items = sorted(value.items()) if self._is_sorted else value.items()
        members = ",".join([f"{inner}{key}:{number}" for key, number in items])
        return f"{{{members}{self._line + self._tab * depth if members else ''}}}"

    def _write_all(
        self, brackets: str, keys: Sequence[object] | None, items: Iterable[object], depth: int
    ) -> None:
        """`keys`: of an object's members, in their order; a list has none."""
        before = brackets[0]
        for n, item in enumerate(items):
            self._parts.append(before + self._line + self._tab * (depth + 1))
            if keys is not None:
                self._write_key(keys[n], depth + 1)
            self._write(item, depth + 1)
            before = ","
        self._parts.append(self._line + self._tab * depth + brackets[1] if before == "," else brackets)

    def _write_key(self, key: object, depth: int) -> None:
        if isinstance(key, MessageQueue):
            self._write(key, depth)
        elif isinstance(key, int | str) and not isinstance(key, bool):
            self._parts.append(_scalar(key))
        else:
            raise TypeError(
                f"a key must be a string, an integer or a message queue, not {type(key).__name__}"
            )
        self._parts.append(":")


def _rank(member: tuple[object, object]) -> tuple[int, int, str]:
    """Sort key of an object's members: integers first, then message queues by id and topic, then strings."""
    key = member[0]
    if isinstance(key, int):
        return (0, key, "")
    if isinstance(key, MessageQueue):
        return (1, key.queue_id, key.topic)
    return (2, 0, str(key))


def _scalar(value: object) -> str:
    if type(value) is int:
        return str(value)
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()  # a half of a surrogate pair
    return orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
