"""What a store's `config` folder says: topics and the offsets of groups, in Java's JSON. Read only, any thread.

A file that is missing says nothing. One that cannot be read is replaced by its `.bak`, as the broker would do it: it
may be in the middle of being written.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from firearrow.client.rebalance.fastjson import BYTES_MAX, JsonError, loads
from firearrow.spark_tools.base.errors import StoreUnreadable

QUEUES_MAX = 65536
QUEUE_ID = re.compile(r"[0-9]{1,10}")
OFFSET_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")


class DeclaredTopics:
    """What `topics.json` says; read again only when it has changed."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, "config", "topics.json")
        self._stamp: tuple[int, int] | None = None
        self._queues: dict[str, int] = {}

    def queues(self) -> dict[str, int]:
        """Topic → how many queues can be read. StoreUnreadable."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            table = _member(self._path, "topicConfigTable")
            self._queues = {topic: _count(config) for topic, config in table.items()}
            self._stamp = stamp
        return self._queues


def group_offsets(root: str) -> dict[tuple[str, str], dict[int, int]]:
    """(Group, topic) → queue → the next offset to consume; of two files the newer one counts. StoreUnreadable."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    paths = [os.path.join(root, "config", name) for name in OFFSET_FILES]
    for path in sorted(paths, key=_stamp):
        for key, queues in _member(path, "offsetTable").items():
            topic, mark, group = key.partition("@")
            if mark and isinstance(queues, dict):
                found[group, topic] = _offsets(queues)
        for key, queue_offset in _member(path, "lmqOffsetTable").items():
            topic, mark, group = key.partition("@")
            if mark and type(queue_offset) is int:
                found[group, topic] = {0: queue_offset}
    return found


def _count(config: object) -> int:
    count = config.get("readQueueNums") if isinstance(config, dict) else 0
    return count if type(count) is int and 0 < count <= QUEUES_MAX else 0


def _offsets(queues: Mapping[object, object]) -> dict[int, int]:
    return {
        int(str(queue_id)): queue_offset
        for queue_id, queue_offset in queues.items()
        if QUEUE_ID.fullmatch(str(queue_id)) and type(queue_offset) is int
    }


def _stamp(path: str) -> tuple[int, int]:
    """When it changed, and its size."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return about.st_mtime_ns, about.st_size


def _member(path: str, name: str) -> dict[str, object]:
    """An object in the object that a file holds; empty if either is missing."""
    wrong: JsonError | None = None
    for each in (path, path + ".bak"):
        try:
            whole = _read(each)
        except JsonError as error:
            wrong = wrong or error
            continue
        if whole is not None:
            part = whole.get(name) if isinstance(whole, dict) else None
            return {str(key): value for key, value in part.items()} if isinstance(part, dict) else {}
    if wrong is not None:
        raise StoreUnreadable(f"{path} cannot be read: {wrong}")
    return {}


def _read(path: str) -> object:
    """None if there is nothing."""
    try:
        size = os.stat(path).st_size
        if size > BYTES_MAX:
            raise JsonError(f"{size} bytes, at most {BYTES_MAX}")
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be read: {error.strerror}") from None
    return loads(data) if data.strip() else None
