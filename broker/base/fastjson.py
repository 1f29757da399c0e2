"""fastjson: the JSON dialect of fastjson 1.x, in which Apache's files and bodies are written.

Three forms are special: bare integer keys `{0:1}`, message queues as keys
`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`, and `{"$ref":"..."}` (not resolved).
Strict JSON goes through orjson. Knows no table; any thread.
"""

import re
from typing import Any, NamedTuple

import orjson

from firearrow._native.wire.fastjson import DEPTH_MAX, read
from firearrow._native.wire.fastjson import JsonError as JsonError  # noqa: PLC0414 (re-exported)

BYTES_MAX = 64 << 20
LENIENT_BYTES_MAX = 4 << 20
BODY_VALUES_MAX = 250_000
BODY_LENIENT_BYTES_MAX = 64 << 10
"""Limits of bodies from peers: parsing a MiB leniently takes seconds, in which no other request is served."""

_BARE_KEY = re.compile(rb'("(?:[^"\\]|\\.)*"?)|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)
_SPACED_KEY = re.compile(rb'^(\t*"(?:[^"\\\n]|\\.)*":) ', re.MULTILINE)


class MessageQueue(NamedTuple):
    """A queue of a broker, the only object that Java uses as a map key. Fields in Java's member order."""

    broker_name: str
    queue_id: int
    topic: str


def loads(data: bytes | str, bytes_max: int = BYTES_MAX, *, lenient_bytes_max: int = BYTES_MAX) -> Any:  # noqa: ANN401
    """Parse a text. Keys are `str` (integer keys too) or `MessageQueue`. JsonError.

    A text of more than `lenient_bytes_max` must be strict JSON.
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(raw) > bytes_max:
        raise JsonError(f"JSON of {len(raw)} bytes, at most {bytes_max}")
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
    return read(raw, message_queue)


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


def dumps(value: object) -> bytes:
    """Write compact JSON: members sorted, integer keys bare, message queues in Java's form. TypeError."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError:
        parts: list[str] = []
        _write(value, parts, None, 0)
        return "".join(parts).encode()


def pretty(value: object) -> bytes:
    """Like `dumps`, but one member a line, indented with tabs: the form of Apache's config files."""
    try:
        options = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_INDENT_2
        return _tabbed(orjson.dumps(value, option=options))
    except orjson.JSONEncodeError:
        parts: list[str] = []
        _write(value, parts, "\n", 0)
        return "".join(parts).encode()


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


def _quoted(match: re.Match[bytes]) -> bytes:
    text, before, digits = match.groups()
    return text if text is not None else before + b'"' + digits + b'"'


def _write(value: object, parts: list[str], line: str | None, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise TypeError(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, MessageQueue):
        value = {"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic}
    if isinstance(value, dict) and all(type(key) is type(item) is int for key, item in value.items()):
        parts.append(_numbers(value, line, depth))
    elif isinstance(value, dict):
        members = [(_key(key), value[key]) for key in sorted(value, key=_rank)]
        _write_all(members, "{}", parts, line, depth)
    elif isinstance(value, list | tuple | set | frozenset):
        _write_all([("", item) for item in value], "[]", parts, line, depth)
    else:
        parts.append(_scalar(value))


def _numbers(value: dict[int, int], line: str | None, depth: int) -> str:
    """Write a map of integers, fast: offsets, of which there are very many."""
    if line is None or not value:
        return "{" + ",".join(f"{key}:{number}" for key, number in sorted(value.items())) + "}"
    inner = line + "\t" * (depth + 1)
    members = ",".join(f"{inner}{key}:{number}" for key, number in sorted(value.items()))
    return f"{{{members}{line}{chr(9) * depth}}}"


def _write_all(
    members: list[tuple[str, object]], brackets: str, parts: list[str], line: str | None, depth: int
) -> None:
    parts.append(brackets[0])
    for n, (key, item) in enumerate(members):
        if n:
            parts.append(",")
        if line is not None:
            parts.append(line + "\t" * (depth + 1))
        parts.append(key)
        _write(item, parts, line, depth + 1)
    if members and line is not None:
        parts.append(line + "\t" * depth)
    parts.append(brackets[1])


def _key(key: object) -> str:
    if isinstance(key, MessageQueue):
        parts: list[str] = []
        _write(key, parts, None, 0)
        return "".join(parts) + ":"
    if isinstance(key, int | str) and not isinstance(key, bool):
        return f"{_scalar(key)}:"
    raise TypeError(f"a key must be a string, an integer or a message queue, not {type(key).__name__}")


def _rank(key: object) -> tuple[int, int, str]:
    """Sort key: integers first, then message queues by id and topic, then strings."""
    if isinstance(key, int):
        return (0, key, "")
    if isinstance(key, MessageQueue):
        return (1, key.queue_id, key.topic)
    return (2, 0, str(key))


def _scalar(value: object) -> str:
    if type(value) is int:
        return str(value)
    return orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()


def message_queue(value: object) -> MessageQueue | None:
    """The message queue that an object describes; None if it is not one."""
    if not isinstance(value, dict):
        return None
    broker, queue_id, topic = value.get("brokerName", ""), value.get("queueId"), value.get("topic")
    if not isinstance(broker, str) or not isinstance(topic, str) or type(queue_id) is not int:
        return None
    return MessageQueue(broker, queue_id, topic)
