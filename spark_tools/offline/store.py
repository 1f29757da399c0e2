"""OfflineStore: the store folder of one broker, FireArrow's or Apache's: topics, queues, groups and the log.

Read only. One thread.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from firearrow._native.offline.config_tables import QUEUE_ID, group_offsets, member, read_object
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.store.files.segment_files import FILE_NAME
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import StoreUnreadable, TopicNotFound
from firearrow.spark_tools.offline.queue import StoredQueue

QUEUES_MAX = 65536


class OfflineStore:
    """`name` is the broker name of its queues. StoreUnreadable: `root` is not a readable store."""

    def __init__(self, name: str, root: str, mappings: MappedFiles) -> None:
        self.name = name
        self.root = root
        _check(root)
        self._declared = DeclaredTopics(root)
        self._queues = os.path.join(root, "consumequeue")
        self._batches = os.path.join(root, "batchconsumequeue")
        self.index = os.path.join(root, "index")
        """Folder of the key index; it may not exist."""
        self.log = LogFiles(os.path.join(root, "commitlog"), mappings)

    def topics(self) -> set[str]:
        """All topics that are configured or have a queue."""
        return {*self._declared.queues(), *_folders(self._queues), *_folders(self._batches)}

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that are configured or have files, sorted. TopicNotFound; StoreUnreadable: a BatchCQ or
        compaction topic."""
        what = ""
        if topic in _folders(self._batches):
            what = "has batch queues (queue.type=BatchCQ), which"
        elif topic in self._declared.compacted():
            what = "is a compaction topic (cleanup.policy=COMPACTION), which"
        if what:
            raise StoreUnreadable(
                f"{topic} in {self.root} {what} cannot be read from files: read the topic from its broker, "
                "with the option nameServer"
            )
        declared = self._declared.queues().get(topic)
        if declared is None and topic not in _folders(self._queues):
            raise TopicNotFound(f"{self.root} has no topic {topic!r}")
        numbers = set(range(declared or 0)).union(self._numbers(topic))
        return [MessageQueue(topic, self.name, number) for number in sorted(numbers)]

    def queue(self, queue: MessageQueue) -> StoredQueue:
        """The caller closes the queue."""
        return StoredQueue(queue, self._folder(queue.topic, str(queue.queue_id)), self.log, self.log_end)

    def stored_queues(self) -> Iterator[MessageQueue]:
        """The queues that have a folder, of all topics."""
        for topic in _folders(self._queues):
            for number in self._numbers(topic):
                yield MessageQueue(topic, self.name, number)

    def deleted_until(self, topic: str) -> int:
        """Physical offset at which the topic was last deleted, if a FireArrow broker did so; else where the log
        begins. StoreUnreadable."""
        return max(_deletions(self.root).get(topic, 0), self.log.first)

    def groups(self) -> Iterator[tuple[str, MessageQueue, int]]:
        """Yields group, queue and the next offset that the group consumes."""
        for (group, topic), queues in group_offsets(self.root).items():
            for number, queue_offset in queues.items():
                yield group, MessageQueue(topic, self.name, number), queue_offset

    @property
    def is_marked(self) -> bool:
        """Whether the abort file exists: a broker runs or was killed."""
        return os.path.exists(os.path.join(self.root, "abort"))

    def log_end(self) -> int:
        """The physical end of the last whole record. Starts at the last records of the queues, so it walks
        little."""
        self.log.refresh()
        known = self.log.newest()
        for queue in self.stored_queues():
            with self.queue(queue) as stored:
                known = max(known, stored.last_whole())
        return self.log.end(known)

    def _numbers(self, topic: str) -> list[int]:
        return [int(name) for name in _folders(self._folder(topic)) if QUEUE_ID.fullmatch(name)]

    def _folder(self, *names: str) -> str:
        """A path below `consumequeue`. TopicNotFound: the name would lead out of it."""
        if any(os.sep in name or "\0" in name or name in ("", os.curdir, os.pardir) for name in names):
            raise TopicNotFound(f"{names[0]!r} is not a valid topic name")
        return os.path.join(self._queues, *names)


def _folders(path: str) -> list[str]:
    """The names of the folders in a folder, sorted; none if it does not exist. StoreUnreadable."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be listed: {error.strerror}") from None


def _check(root: str) -> None:
    if not os.path.isdir(root):
        raise StoreUnreadable(f"{root} is not a folder: give the store folder of a broker")
    if not os.path.isdir(os.path.join(root, "commitlog")):
        if any(FILE_NAME.fullmatch(name) for name in os.listdir(root)):
            raise StoreUnreadable(f"{root} is a folder inside a store: give the folder above it")
        raise StoreUnreadable(
            f"{root} is not a store: it has no folder commitlog. If storePathCommitLog is elsewhere, make a "
            "folder with links to the three folders, named commitlog, consumequeue and config, and give that"
        )
    in_rocksdb = os.path.isdir(os.path.join(root, "consumequeue_r"))
    if in_rocksdb and not _folders(os.path.join(root, "consumequeue")):
        raise StoreUnreadable(
            f"{root} keeps its queues in RocksDB (consumequeue_r), which cannot be read from files: "
            "read it from its broker, with the option nameServer"
        )


class DeclaredTopics:
    """The topics in `topics.json`; read again only when the file has changed."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, "config", "topics.json")
        self._stamp: tuple[int, int] | None = None
        self._queues: dict[str, int] = {}
        self._compacted: set[str] = set()

    def queues(self) -> dict[str, int]:
        """Topic → number of readable queues. StoreUnreadable."""
        self._read()
        return self._queues

    def compacted(self) -> set[str]:
        """The compaction topics. StoreUnreadable."""
        self._read()
        return self._compacted

    def _read(self) -> None:
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            table = member(read_object(Path(self._path)), "topicConfigTable")
            self._queues = {str(topic): _count(config) for topic, config in table.items()}
            self._compacted = {str(topic) for topic, config in table.items() if _is_compacted(config)}
            self._stamp = stamp


def _deletions(root: str) -> dict[str, int]:
    """Topic → the end of the log when a FireArrow broker last deleted it. StoreUnreadable."""
    topics = read_object(Path(root, "config", "deletedTopics.json")).get("topics")
    found: dict[str, int] = {}
    for each in topics if isinstance(topics, list) else []:
        if isinstance(each, dict) and type(each.get("logEnd")) is int:
            found[str(each.get("topic"))] = each["logEnd"]
    return found


def _count(config: object) -> int:
    count = config.get("readQueueNums") if isinstance(config, dict) else 0
    return count if type(count) is int and 0 < count <= QUEUES_MAX else 0


def _is_compacted(config: object) -> bool:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return isinstance(attributes, dict) and attributes.get("cleanup.policy") == "COMPACTION"


def _stamp(path: str) -> tuple[int, int]:
    """Modification time and size; zeros if the file does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
