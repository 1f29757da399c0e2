"""fastjson: the JSON dialect of fastjson 1.x, which Apache's files and bodies are written in.

Three forms are special: bare integer keys `{0:1}`, message queues as keys
`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`, and `{"$ref":"..."}` (left as it is).
Strict JSON goes through orjson. Knows no table; any thread.
"""

import re
from typing import Any, NamedTuple

import orjson

from firearrow._native.wire.fastjson import DEPTH_MAX, read
from firearrow._native.wire.fastjson import JsonError as JsonError  # noqa: PLC0414 (handed on)

BYTES_MAX = 64 << 20
LENIENT_BYTES_MAX = 4 << 20
BODY_VALUES_MAX = 250_000
BODY_LENIENT_BYTES_MAX = 64 << 10
"""Of what a peer sends: leniently a MiB takes seconds, in which nobody else is served."""

_BARE_KEY = re.compile(rb'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)
_SPACED_KEY = re.compile(rb'^(\t*"(?:[^"\\]|\\.)*":) ', re.MULTILINE)


class MessageQueue(NamedTuple):
    """A queue of a broker, the one object that Java uses as a key. Its order is Java's member order."""

    broker_name: str
    queue_id: int
    topic: str


def loads(data: bytes | str, bytes_max: int = BYTES_MAX, *, lenient_bytes_max: int = BYTES_MAX) -> Any:  # noqa: ANN401
    """The value of a text. Keys come back as `str` (integer keys too) or `MessageQueue`. Raises JsonError.

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
    most = min(LENIENT_BYTES_MAX, lenient_bytes_max)
    if len(raw) > most:
        raise JsonError(f"JSON of {len(raw)} bytes is not strict, at most {most} may be read leniently")
    return read(raw, message_queue)


def loads_body(
    body: bytes,
    bytes_max: int = BYTES_MAX,
    *,
    lenient_bytes_max: int = BODY_LENIENT_BYTES_MAX,
    values_max: int = BODY_VALUES_MAX,
) -> Any:  # noqa: ANN401
    """As `loads`, of what a peer sent: it must be strict JSON unless it is small, and hold not too much. JsonError."""
    if body.count(b",") > values_max:
        raise JsonError(f"JSON of {len(body)} bytes with more than {values_max} commas")
    return loads(body, bytes_max, lenient_bytes_max=lenient_bytes_max)


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


def message_queue(value: object) -> MessageQueue | None:
    """The queue that an object names; None if it names none."""
    if not isinstance(value, dict):
        return None
    broker, number, topic = value.get("brokerName", ""), value.get("queueId"), value.get("topic")
    if not isinstance(broker, str) or not isinstance(topic, str) or type(number) is not int:
        return None
    return MessageQueue(broker, number, topic)
