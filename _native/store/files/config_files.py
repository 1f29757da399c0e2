"""What the store and its checks need of the broker's config files. Any thread; a file that cannot be read is empty.

The log still has the records of a deleted topic. They have no queue entries, also when the topic was created again;
`config/deletedTopics.json`, which the broker's DeletedTopics writes before it deletes, states which records these are.
"""

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

Deletions = dict[bytes, tuple[int, int]]
"""Topic → end of the log and time (ms) when it was last deleted. A record is of the deleted topic if it begins below
that end and was stored up to that time: after a power cut the log may be shorter than it was."""
Trims = dict[tuple[bytes, int], int]
"""(Topic, queue) → physical offset below which the queue was trimmed."""
T = TypeVar("T")
LONG_MAX = (1 << 63) - 1
FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def deletions(root: str) -> Deletions:
    """Of the store in this folder; empty in stores of Apache's broker."""
    return _read(root, "deletedTopics.json", _deletions) or {}


def trims(root: str) -> Trims:
    """Of the store in this folder; empty in stores of Apache's broker."""
    return _read(root, "trimmedQueues.json", _trims) or {}


def topics(root: str) -> frozenset[bytes] | None:
    """The topics that the store's broker knows; None: that is not known."""
    return _read(root, "topics.json", _topics)


def topic_kinds(root: str) -> dict[bytes, bool]:
    """Topic → whether it has batch queues, of the topics that the store's broker knows; empty if none may have them."""
    if not os.path.isdir(os.path.join(root, "batchconsumequeue")) and not _mentions(root, b"BatchCQ"):
        return {}  # the file may be large
    return _read(root, "topics.json", _kinds) or {}


def _mentions(root: str, text: bytes) -> bool:
    for name in ("topics.json", "topics.json.bak"):
        try:
            with open(os.path.join(root, "config", name), "rb") as file:
                if text in file.read():
                    return True
        except OSError:
            continue
    return False


def _read(root: str, name: str, take: Callable[[Any], T]) -> T | None:
    """From the file, or from its `.bak`."""
    for each in (name, f"{name}.bak"):
        try:
            with open(os.path.join(root, "config", each), "rb") as file:
                return take(json.load(file))
        except FAULTS:
            continue
    return None


def _deletions(document: Any) -> Deletions:  # noqa: ANN401 (JSON)
    return {
        _name(of["topic"]): (_number(of["logEnd"]), _number(of["timestamp"])) for of in document["topics"]
    }


def _trims(document: Any) -> Trims:  # noqa: ANN401
    return {
        (_name(of["topic"]), _number(of["queueId"])): _number(of["physicalOffset"])
        for of in document["queues"]
    }


def _topics(document: Any) -> frozenset[bytes]:  # noqa: ANN401
    return frozenset(map(_name, document["topicConfigTable"]))


def _kinds(document: Any) -> dict[bytes, bool]:  # noqa: ANN401
    return {
        _name(topic): of.get("attributes", {}).get("queue.type") == "BatchCQ"
        for topic, of in document["topicConfigTable"].items()
    }


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LONG_MAX:
        raise ValueError(f"{value!r} is not a number from 0 to {LONG_MAX}")
    return value


def _name(topic: str) -> bytes:
    return topic.encode("utf-8", "replace")
