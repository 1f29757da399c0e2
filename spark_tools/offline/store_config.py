"""Store config: reads topics and consumer offsets from a store's `config` folder (Java's JSON). Any thread.

A missing file counts as empty. Instead of a file that cannot be parsed, its `.bak` is read, as a broker
does: the file may be half written.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from firearrow._native.protocol.fastjson import ANSWER_BYTES_MAX, JsonError, loads_answer
from firearrow.spark_tools.base.errors import StoreUnreadable

QUEUES_MAX = 65536
QUEUE_ID = re.compile(r"[0-9]{1,10}")
OFFSET_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")


class DeclaredTopics:
    """The topics in `topics.json`; read again only when the file has changed."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, "config", "topics.json")
        self._stamp: tuple[int, int] | None = None
        self._queues: dict[str, int] = {}

    def queues(self) -> dict[str, int]:
        """Topic → number of readable queues. StoreUnreadable."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            table = _member(self._path, "topicConfigTable")
            self._queues = {topic: _count(config) for topic, config in table.items()}
            self._stamp = stamp
        return self._queues


def group_offsets(root: str) -> dict[tuple[str, str], dict[int, int]]:
    """(Group, topic) → queue id → the next offset to consume; the newer of two files wins.
    StoreUnreadable."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    paths = [os.path.join(root, "config", name) for name in OFFSET_FILES]
    for path in sorted(paths, key=_stamp):
        for key, queues in _member(path, "offsetTable").items():
            topic, at_sign, group = key.partition("@")
            if at_sign and isinstance(queues, dict):
                found[group, topic] = _offsets(queues)
        for key, queue_offset in _member(path, "lmqOffsetTable").items():
            topic, at_sign, group = key.partition("@")
            if at_sign and type(queue_offset) is int:
                found[group, topic] = {0: queue_offset}
    return found


def deletions(root: str) -> dict[str, int]:
    """Topic → the end of the log when a FireArrow broker last deleted it. StoreUnreadable."""
    topics = _value(os.path.join(root, "config", "deletedTopics.json"), "topics")
    found: dict[str, int] = {}
    for each in topics if isinstance(topics, list) else []:
        if isinstance(each, dict) and type(each.get("logEnd")) is int:
            found[str(each.get("topic"))] = each["logEnd"]
    return found


def config_faults(root: str) -> list[tuple[str, str]]:
    """(Path, what is wrong) of each JSON file in `config` that a broker or a reader cannot use as it is."""
    folder = os.path.join(root, "config")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = []
    for path in (os.path.join(folder, name) for name in names if name.endswith(".json")):
        try:
            document = _read(path)
        except (JsonError, StoreUnreadable) as error:
            found.append((path, f"it cannot be read: {error}"))
            continue
        if not isinstance(document, dict):
            found.append((path, "it is empty" if document is None else "it is not a JSON object"))
    if "topics.json" not in names and os.path.isdir(os.path.join(root, "consumequeue")):
        found.append((os.path.join(folder, "topics.json"), "it is missing, but there are queues"))
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
    """Modification time and size; zeros if the file does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _member(path: str, name: str) -> dict[str, object]:
    """The member `name` of the JSON object in a file, if it is an object; else empty."""
    member = _value(path, name)
    return {str(key): value for key, value in member.items()} if isinstance(member, dict) else {}


def _value(path: str, name: str) -> object:
    """The member `name` of the JSON object in a file; None if the file or the member is missing."""
    first_error: JsonError | None = None
    for each in (path, path + ".bak"):
        try:
            document = _read(each)
        except JsonError as error:
            first_error = first_error or error
            continue
        if document is not None:
            return document.get(name) if isinstance(document, dict) else None
    if first_error is not None:
        raise StoreUnreadable(f"{path} cannot be read: {first_error}")
    return None


def _read(path: str) -> object:
    """None if the file is missing or empty."""
    try:
        size = os.stat(path).st_size
        if size > ANSWER_BYTES_MAX:
            raise JsonError(f"{size} bytes, at most {ANSWER_BYTES_MAX}")
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be read: {error.strerror}") from None
    return loads_answer(data) if data.strip() else None
