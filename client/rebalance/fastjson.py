"""The JSON that Java's clients write: message queues as keys of maps, and keys that are bare numbers.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}` and `{0:"host"}` are no JSON, but what fastjson makes
of Java's maps. Input is bounded in size and depth. Knows no body and no file; any thread.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

import orjson

from firearrow._native.wire.fastjson import JsonError as JsonError  # noqa: PLC0414 (handed on)
from firearrow._native.wire.fastjson import read
from firearrow.client.base.message import MessageQueue

BYTES_MAX = 16 << 20
_BEYOND_A_LONG = re.compile(rb"[0-9]{19}")


def loads(data: bytes | str) -> Any:  # noqa: ANN401
    """The value of a text. Keys are `str` (numbers, too) or MessageQueue. JsonError."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(raw) > BYTES_MAX:
        raise JsonError(f"JSON of {len(raw)} bytes, at most {BYTES_MAX}")
    try:
        return _read_strictly(raw)
    except (ValueError, RecursionError):
        return read(raw, message_queue, _read_strictly)


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


def _read_strictly(raw: bytes) -> Any:  # noqa: ANN401
    """Of JSON as it stands: by orjson, and again if it may hold an integer beyond 64 bits, which that makes a float."""
    value = orjson.loads(raw)
    return json.loads(raw) if _BEYOND_A_LONG.search(raw) else value


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
