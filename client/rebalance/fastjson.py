"""The JSON of Java's clients, with message queues and bare numbers as keys.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}` and `{0:"host"}` are not JSON, but fastjson
writes Java's maps so. Input is bounded in size and depth. Any thread.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

import orjson

from firearrow._native.wire.fastjson import JsonError as JsonError  # noqa: PLC0414 (re-exported)
from firearrow._native.wire.fastjson import read
from firearrow.client.base.message import MessageQueue

BYTES_MAX = 16 << 20
_OVER_18_DIGITS = re.compile(rb"[0-9]{19}")


def loads(data: bytes | str) -> Any:  # noqa: ANN401
    """Parse JSON. Keys become `str` (numbers as well) or MessageQueue. JsonError."""
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(raw) > BYTES_MAX:
        raise JsonError(f"JSON of {len(raw)} bytes, at most {BYTES_MAX} are allowed")
    try:
        return _read_strictly(raw)
    except (ValueError, RecursionError):
        return read(raw, message_queue, _read_strictly)


def dumps(value: object, *, pretty: bool = False) -> bytes:
    """Compact, or one member per line as in Java's files. Keys: `str`, `int` or MessageQueue, in order."""
    chunks: list[str] = []
    _write(value, chunks, "\n" if pretty else "")
    return "".join(chunks).encode("utf-8", "replace")


def message_queue(value: object) -> MessageQueue:
    """The queue named by an object, or by a string that contains one. JsonError."""
    if isinstance(value, MessageQueue):
        return value
    if isinstance(value, str):
        value = loads(value)
    if not isinstance(value, dict):
        raise JsonError("a message queue must be an object")
    topic, broker, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
    if not (isinstance(topic, str) and isinstance(broker, str) and is_integer(queue_id, 32)):
        raise JsonError("a message queue without valid topic, brokerName or queueId")
    return MessageQueue(topic, broker, queue_id)


def queue_json(queue: MessageQueue) -> dict[str, object]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


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
        queue = message_queue(key)
        if not is_integer(offset, 64):
            raise JsonError(f"{queue}: the offset is not a number")
        table[queue] = offset
    return table


def is_integer(value: object, bits: int) -> TypeGuard[int]:
    return type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _read_strictly(raw: bytes) -> Any:  # noqa: ANN401
    """Parse standard JSON: by orjson, and by json if it may contain integers over 64 bits, which orjson turns
    to floats.
    """
    value = orjson.loads(raw)
    return json.loads(raw) if _OVER_18_DIGITS.search(raw) else value


def _write(value: object, chunks: list[str], line: str) -> None:
    """`line`: the beginning of a new line, empty if compact."""
    if isinstance(value, MessageQueue):
        value = queue_json(value)
    if isinstance(value, Mapping):
        _write_members(value, chunks, line)
    elif isinstance(value, list | tuple):
        _write_items(value, chunks, line)
    else:
        chunks.append(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _write_members(members: Mapping[Any, object], chunks: list[str], line: str) -> None:
    inner = line and line + "\t"
    separator = "{" + inner
    for key, item in members.items():
        chunks.append(separator)
        _write(key if isinstance(key, MessageQueue | int) else str(key), chunks, inner)
        chunks.append(":")
        _write(item, chunks, inner)
        separator = "," + inner
    chunks.append(line + "}" if members else "{}")


def _write_items(items: list[object] | tuple[object, ...], chunks: list[str], line: str) -> None:
    inner = line and line + "\t"
    separator = "[" + inner
    for item in items:
        chunks.append(separator)
        _write(item, chunks, inner)
        separator = "," + inner
    chunks.append(line + "]" if items else "[]")
