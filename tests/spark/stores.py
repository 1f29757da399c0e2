"""Stores with known messages: made by a FireArrow broker once a run, and unpacked copies of Apache's own.

Tests must not write into `KnownStore.root`, which a whole run shares; `copied` gives a copy to damage.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import CompressionKind, ProducerOptions
from tests import golden

BROKER = "broker-a"
"""Also the name of the store's folder, so that queues have the same names in files and at a live broker."""
SETTINGS = {
    "brokerName": BROKER,
    "autoCreateTopicEnable": "true",
    "mappedFileSizeCommitLog": str(256 * 1024),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "1000",
}
"""Files so small that a few hundred messages roll them."""
TOPICS = {"Orders": 4, "Payments": 2, "Readings": 1}
TAGS = ("created", "paid", None, "shipped")
BODY_KINDS = ("short", "long", "packed")
PACKED = {"zlib": CompressionKind.ZLIB, "lz4": CompressionKind.LZ4, "zstd": CompressionKind.ZSTD}


@dataclass(frozen=True)
class Known:
    """One message of the store. `body` as it was sent, `packed` the compression with which it is stored."""

    queue: MessageQueue
    queue_offset: int
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    unique_id: str
    flag: int
    packed: str | None


@dataclass(frozen=True)
class KnownStore:
    """A closed store; `root` has its broker's name. Messages in the order in which they were stored."""

    root: Path
    messages: tuple[Known, ...]

    def of(self, topic: str) -> list[Known]:
        return [known for known in self.messages if known.queue.topic == topic]

    def in_queue(self, topic: str, queue_id: int) -> list[Known]:
        return [known for known in self.of(topic) if known.queue.queue_id == queue_id]

    def copied(self, folder: Path) -> Path:
        """A separate copy to write into."""
        return Path(shutil.copytree(self.root, folder / self.root.name))


def send_known(name_server: str, each: int = 120) -> tuple[Known, ...]:
    """`each` messages to every queue of TOPICS: tags, keys, properties, flags; every tenth body packed."""
    with blocking.Admin(name_server=name_server) as admin:
        for topic, queues in TOPICS.items():
            admin.create_topic(topic, queues)
    sent: list[Known] = []
    for topic, queues in TOPICS.items():
        for packed in (None, *PACKED):
            options = ProducerOptions(
                compress_over_bytes=512 if packed else 4 << 20, compression=PACKED.get(packed or "zlib")
            )
            with blocking.Producer("known", name_server=name_server, options=options) as producer:
                count = each if packed is None else max(1, each // 30)
                for number in range(count * queues):
                    sent.append(_send(producer, MessageQueue(topic, BROKER, number % queues), number, packed))
    return tuple(sent)


def _send(producer: blocking.Producer, queue: MessageQueue, number: int, packed: str | None) -> Known:
    tags = TAGS[number % len(TAGS)]
    keys = tuple(f"{queue.topic}-{number // step}" for step in (1, 10)[: number % 3])
    body = _body(number, packed)
    own = {"number": str(number), "größe": f"{len(body)} B"} if number % 5 else {}
    message = Message(queue.topic, body, tags=tags, keys=keys, properties=dict(own), flag=number % 7)
    result = producer.send(message, queue=queue).raise_for_status()
    if len(body) < 512:
        packed = None if body else "zlib"  # brokers refuse an empty body, so clients compress an empty one
    return Known(queue, result.queue_offset, body, tags, keys, own, result.message_id, number % 7, packed)


def _body(number: int, packed: str | None) -> bytes:
    if packed is not None:
        return f"{packed} {number} ".encode() * 400
    return b"" if number % 50 == 49 else f"body {number} ".encode() * (1 + number % 40)


@dataclass(frozen=True)
class Golden:
    """An unpacked copy of a store that Apache wrote, and Apache's manifest of it."""

    name: str
    root: Path
    manifest: dict[str, Any]

    def queues(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Topic, and the manifest's object of each queue."""
        for topic in self.manifest["topics"]:
            for queue in topic["queues"]:
                yield topic["topic"], queue


def unpacked(name: str, folder: Path) -> Golden:
    """`store-apache` or `store-apache-crashed`, unpacked to `folder/name`."""
    return Golden(name, golden.unpacked(name, folder), golden.manifest(name))
