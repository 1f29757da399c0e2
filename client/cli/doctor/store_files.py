"""Facts of a store folder, FireArrow's or Apache's, read as files: nothing is written, no lock is taken.

The disk is measured by one small file that is written, synced and deleted, unless the folder cannot be written. A
store that a broker has open is read as it is at this moment. Linux only. Any thread.
"""

import os
import time
from pathlib import Path
from typing import Any

from firearrow._native.base import last_backup, machine
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import QueueReader, reader_of
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.log.record import Record, RecordError, decode
from firearrow.client.admin_api import records
from firearrow.client.admin_api.records import Members, read
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.cli.doctor.facts import (
    Broker,
    Facts,
    Group,
    Progress,
    Queue,
    QueueState,
    Sample,
    StoreState,
    Topic,
)
from firearrow.client.cli.doctor.store_samples import damages

FILE_BYTES_MAX = 256 << 20
DELAYED = ("DELAY", "TIMER_OUT_MS", "REAL_TOPIC", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "TRAN_MSG")
UNIQUE_ID = "UNIQ_KEY"


def store_facts(folder: str) -> Facts:
    """ConfigError: it is no store. OSError: a file cannot be read."""
    try:
        return _facts_of(os.path.abspath(folder))
    except StoreUnreadable as error:
        raise OSError(str(error)) from None


def _facts_of(root: str) -> Facts:
    store = StoreFolder("", root)
    if not os.path.isdir(store.path("commitlog")):
        raise ConfigError(f"{root} is not a store: it has no folder commitlog")
    facts = Facts(time.time_ns() // 1_000_000)
    broker = Broker("store", root, machine=_machine(store))
    facts.brokers[broker.name] = broker
    files = _StoreFiles(store, facts, broker.name)
    files.tables()
    files.queues()
    files.progress()
    oldest_ms = files.oldest_ms()
    broker.runtime = {"earliestMessageTimeStamp": str(oldest_ms)}
    found, left_out = damages(store)
    facts.store = StoreState(root, store.was_killed(), store.is_running(), oldest_ms, found, left_out)
    return facts


def _machine(store: StoreFolder) -> dict[str, Any]:
    """What GET_MACHINE says of a broker's disks; there is no process."""
    backup = last_backup.read(store.root)
    found: dict[str, Any] = {
        "store": machine.disk(store.root),
        "log": machine.disk(store.path("commitlog")),
        "syncMs": None,
        "lastBackup": None if backup is None else {"madeMs": backup.made_ms, "target": backup.target},
    }
    if os.access(store.root, os.W_OK):
        found["syncMs"] = machine.sync_ms(store.root)
    return found


class _StoreFiles:
    """Fills `facts` from one store. `name` stands for its broker, whose name the files do not say."""

    def __init__(self, store: StoreFolder, facts: Facts, name: str) -> None:
        self._store = store
        self._facts = facts
        self._name = name
        self._log = LogFiles(store.path("commitlog"), MappedFiles(1))
        self._readers: dict[Queue, QueueReader] = {}

    def tables(self) -> None:
        """Topics and groups; a table that is damaged is left out, and `unasked` says so."""
        for name, config in self._table("topics.json", "topicConfigTable"):
            self._facts.topics.setdefault(name, Topic(name)).configs[self._name] = records.topic_config(
                config
            )
        for name, config in self._table("subscriptionGroup.json", "subscriptionGroupTable"):
            self._facts.groups[name] = Group(name, records.group_config(config))

    def _table(self, file: str, member: str) -> list[tuple[str, Members]]:
        path = Path(self._store.path("config", file))
        try:
            with path.open("rb") as opened:
                pairs = read(opened.read(FILE_BYTES_MAX), lambda table: table.members(member).pairs())
            return [(str(name), Members(value)) for name, value in pairs]
        except FileNotFoundError:  # a broker writes it with the first topic, group or offset
            return []
        except (OSError, ClientError, ValueError) as error:
            self._facts.unasked.append(f"{path} cannot be read: {error}")
            return []

    def queues(self) -> None:
        for name, number in self._store.queues():
            queue = Queue(name, self._name, number)
            reader = reader_of(self._store.folder_of(name, number))
            reader.refresh()
            self._readers[queue] = reader
            first, end = self._first(reader), reader.end()
            topic = self._facts.topics.setdefault(name, Topic(name))
            state = QueueState(min(first, end), end, 0)
            topic.queues[queue] = state
            last = self._record(queue, end - 1) if state.messages else None
            if last is not None:
                state.last_ms = last.store_timestamp
                topic.newest.append(_sample(last))
            reader.close()

    def _first(self, reader: QueueReader) -> int:
        """The first entry whose record is in the log; `end` if there is none."""
        low, high = reader.first, reader.end()
        while low < high:
            middle = (low + high) // 2
            entry = reader.at(middle)
            if entry is not None and not entry.is_blank and entry.physical >= self._log.first:
                high = middle
            else:
                low = middle + 1
        return low

    def progress(self) -> None:
        """Of the groups in consumerOffset.json, with what each reads next."""
        for key, offsets in self._table("consumerOffset.json", "offsetTable"):
            topic, _, group = key.partition("@")
            found = self._facts.topics.get(topic)
            if found is None or not group or "@" in group:  # offsets of broadcasting clients have a second @
                continue
            found.groups.add(group)
            for number, offset in offsets.pairs():
                queue = Queue(topic, self._name, int(number))
                state = found.queues.get(queue)
                if state is not None and isinstance(offset, int):
                    self._advance(group, queue, state, offset)

    def _advance(self, group: str, queue: Queue, state: QueueState, offset: int) -> None:
        progress = Progress(offset, state.min_offset, state.max_offset)
        self._facts.groups.setdefault(group, Group(group)).progress[queue] = progress
        if progress.lag:
            head = self._record(queue, max(offset, state.min_offset))
            if head is not None:
                progress.head = _sample(head)
                self._facts.groups[group].heads[queue] = progress

    def oldest_ms(self) -> int:
        """When the oldest message of any queue was stored; 0: there is none."""
        stored = [
            record.store_timestamp
            for topic in self._facts.topics.values()
            for queue, state in topic.queues.items()
            if state.messages and (record := self._record(queue, state.min_offset)) is not None
        ]
        return min(stored, default=0)

    def _record(self, queue: Queue, number: int) -> Record | None:
        entry = self._readers[queue].at(number)
        self._readers[queue].close()
        if entry is None or not entry.is_written or entry.is_blank:
            return None
        try:
            return decode(self._log.record(entry.physical, entry.size), check_crc=False)
        except RecordError:
            return None


def _sample(record: Record) -> Sample:
    properties = record.properties
    host = ".".join(map(str, record.born_host[:4])) if len(record.born_host) == 8 else "its client"
    identity = properties.get(UNIQUE_ID) or f"at offset {record.physical_offset} of the log"
    return Sample(
        identity,
        record.born_timestamp,
        record.store_timestamp,
        record.size,
        host,
        any(name in properties for name in DELAYED),
    )
