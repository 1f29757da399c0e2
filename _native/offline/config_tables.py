"""Reads a store's config files (Java's JSON): any of their objects, and the offsets of consumer groups. Any thread.

A file that is missing or empty counts as empty. Instead of one that cannot be parsed its `.bak` is read, as a broker
does: the file may be half written.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firearrow._native.protocol.fastjson import BYTES_MAX, JsonError, loads
from firearrow._native.store.files.errors import StoreUnreadable

OFFSET_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
QUEUE_ID = re.compile(r"[0-9]{1,10}")
GroupOffsets = dict[tuple[str, str], dict[int, int]]
"""(Group, topic) → queue id → the next offset to consume."""


def document(path: Path) -> Any:  # noqa: ANN401 (JSON)
    """The JSON of a file; None: it is missing or empty. JsonError, OSError."""
    try:
        size = os.stat(path).st_size
        if size > BYTES_MAX:
            raise JsonError(f"{size} bytes, at most {BYTES_MAX}")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return loads(data) if data.strip() else None


def read_object(path: Path) -> Mapping[Any, Any]:
    """The object in a config file, or in its `.bak`; empty if both are missing. StoreUnreadable."""
    damaged: StoreUnreadable | None = None
    for each in (path, Path(f"{path}.bak")):
        try:
            value = document(each)
        except OSError as error:
            raise StoreUnreadable(f"{each} cannot be read: {error.strerror}") from None
        except JsonError as error:
            damaged = damaged or StoreUnreadable(f"{each} cannot be read: {error}")
            continue
        if isinstance(value, dict) and (value or each != path):
            return value
    if damaged is not None:
        raise damaged
    return {}


def member(whole: Mapping[Any, Any], name: str) -> dict[Any, Any]:
    """A member that is an object; else empty."""
    found = whole.get(name)
    return found if isinstance(found, dict) else {}


def group_offsets(root: str) -> GroupOffsets:
    """Of the store in this folder; the newer of two files counts. StoreUnreadable."""
    found: GroupOffsets = {}
    for path in sorted((Path(root, "config", name) for name in OFFSET_FILES), key=_changed_ns):
        whole = read_object(path)
        for key, queues in member(whole, "offsetTable").items():
            topic, at_sign, group = str(key).partition("@")
            if at_sign and isinstance(queues, dict):
                found[group, topic] = {
                    int(queue): offset for queue, offset in queues.items() if _is_offset(queue, offset)
                }
        for key, offset in member(whole, "lmqOffsetTable").items():
            topic, at_sign, group = str(key).partition("@")
            if at_sign and type(offset) is int:
                found[group, topic] = {0: offset}
    return found


def _is_offset(queue: object, offset: object) -> bool:
    return QUEUE_ID.fullmatch(str(queue)) is not None and type(offset) is int


def _changed_ns(path: Path) -> int:
    return os.stat(path).st_mtime_ns if path.exists() else 0
