"""StoreChecker: opens a folder as a power cut left it, and lists what is wrong with it.

The store must open by itself and contain what was acknowledged, byte for byte, and nothing that was never written;
queues and index agree with the log both ways; it accepts messages, and opening it again finds the same. In this
process, one thread.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firearrow._native.protocol import fastjson
from firearrow._native.store.files.errors import StoreError
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow.broker.base.errors import StartError
from tests.crash.disk import SECTOR_BYTES
from tests.crash.expected import ExpectedState, Queue, WrittenLog
from tests.crash.progress import progress_faults
from tests.support.stores import properties_of, put

NEVER_MS = 1 << 60
NEW_MS = 1_800_000_000_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a reader can see of a store."""

    low: int
    end: int
    log: str
    queues: dict[Queue, tuple[int, int, tuple[tuple[int, int, int], ...]]]
    found: dict[str, list[bytes]]


class StoreChecker:
    def __init__(self, written_log: WrittenLog) -> None:
        self._truth = written_log

    def faults(self, root: Path, expected: ExpectedState, *, kill: bool, again_clean: bool) -> list[str]:
        """What is wrong with the folder, which is changed; empty if all is as promised."""
        faults = [*self._raw_faults(root), *self._file_faults(root, expected)]
        if faults:
            return faults
        try:
            with_new, faults = self._first(root, expected, kill=kill, clean=again_clean)
            if not faults:
                faults = self._second(root, with_new)
        except (StoreError, StartError, OSError) as error:
            return [f"{type(error).__name__}: {error}"]
        return faults

    def _open(self, root: Path) -> MessageStore:
        return MessageStore.open(root, StoreConfig(**self._truth.options))

    def _first(
        self, root: Path, expected: ExpectedState, *, kill: bool, clean: bool
    ) -> tuple[Snapshot, list[str]]:
        store = self._open(root)
        try:
            seen = self._snapshot(root, store)
            faults = [
                *self._log_faults(root, seen, expected, kill=kill),
                *self._queue_faults(seen, expected),
                *self._index_faults(seen, expected),
            ]
            if expected.commits or expected.saved:
                faults += progress_faults(root, store, expected, kill=kill)
            if not faults:
                self._append_more(store)
                seen = self._snapshot(root, store)
            return seen, faults
        finally:
            if clean:
                store.close()
            else:
                store.abandon()

    def _second(self, root: Path, before: Snapshot) -> list[str]:
        store = self._open(root)
        try:
            after = self._snapshot(root, store)
        finally:
            store.abandon()
        return [
            f"opened again, {name} is {getattr(after, name)!r:.300}, not {getattr(before, name)!r:.300}"
            for name in Snapshot.__slots__
            if getattr(after, name) != getattr(before, name)
        ]

    # ---- what is read ----

    def _snapshot(self, root: Path, store: MessageStore) -> Snapshot:
        low, end = store.min_physical, store.written
        queues = {}
        for topic, queue_id in sorted(store.reader.queues()):
            first, last = store.reader.min_offset(topic, queue_id), store.reader.max_offset(topic, queue_id)
            entries = store.reader.entries(topic, queue_id, first, last - first)
            positions = tuple((entry.physical_offset, entry.size, entry.tags_code) for entry in entries)
            queues[topic, queue_id] = (first, last, positions)
        found = {
            record.key: store.reader.query(record.topic, record.key, 32, 0, NEVER_MS)[0]
            for record in self._truth.records
            if record.key
        }
        content = self._log_bytes(root, low)
        return Snapshot(low, end, hashlib.md5(content).hexdigest(), queues, found)

    def _log_bytes(self, root: Path, low: int) -> bytes:
        names = sorted(path for path in (root / "commitlog").iterdir() if int(path.name) >= low)
        return b"".join(path.read_bytes() for path in names)

    # ---- what is wrong ----

    def _raw_faults(self, root: Path) -> Iterator[str]:
        """Before it is opened: no file of the log contains what was written elsewhere. The recovery of another broker
        accepts a record at any offset."""
        folder = root / "commitlog"
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            content, base = path.read_bytes(), int(path.name)
            for at in range(0, len(content), SECTOR_BYTES):
                sector = content[at : at + SECTOR_BYTES]
                true = bytes(self._truth.log[base + at : base + at + SECTOR_BYTES]).ljust(len(sector), b"\0")
                if sector != true and any(
                    one not in (0, other) for one, other in zip(sector, true, strict=True)
                ):
                    yield f"{path.name} contains at {at} what was never written there"
                    break

    def _file_faults(self, root: Path, expected: ExpectedState) -> Iterator[str]:
        """Each file that is replaced as a whole can be read; those that a workload writes itself hold no JSON."""
        for path in sorted((root / "config").glob("*.json")):
            if str(path.relative_to(root)) in expected.saved:
                continue
            try:
                fastjson.loads(path.read_bytes())
            except ValueError as error:
                yield f"{path.name} cannot be read: {error}"

    def _log_faults(self, root: Path, seen: Snapshot, expected: ExpectedState, *, kill: bool) -> list[str]:
        faults = []
        must = expected.written if kill else expected.synced
        if seen.end < must:
            faults.append(f"the log ends at {seen.end}, it was acknowledged up to {must}")
        if seen.end > expected.begun:
            faults.append(f"the log ends at {seen.end}, it was never written past {expected.begun}")
        if seen.low > expected.lowest_max:
            faults.append(f"the log begins at {seen.low}, nothing above {expected.lowest_max} was deleted")
        content = self._log_bytes(root, seen.low)
        length = seen.end - seen.low
        true = self._truth.log[seen.low : seen.end]
        if content[:length] != true:
            first = next(n for n in range(length) if n >= len(content) or content[n] != true[n])
            faults.append(f"the log differs at {seen.low + first} from what was written")
        if content[length:].count(0) != len(content) - length:
            faults.append(f"not all bytes after the log's end at {seen.end} are zero")
        if seen.end not in self._truth.ends and seen.end % self._truth.options["segment_bytes"]:
            faults.append(f"the log ends at {seen.end}, where no record ends")
        return faults

    def _queue_faults(self, seen: Snapshot, expected: ExpectedState) -> list[str]:
        faults = []
        kept = self._truth.entries(seen.low, seen.end)
        ever = self._truth.entries(0, seen.end)
        for queue in sorted(self._truth.queues | set(seen.queues)):
            if queue[0] in expected.forgotten:
                continue
            first, last, positions = seen.queues.get(queue, (0, 0, ()))
            records, all_records = kept.get(queue, []), ever.get(queue, [])
            wanted = [(record.at, record.end - record.at) for record in records for _ in range(record.count)]
            if [position[:2] for position in positions] != wanted:
                faults.append(f"queue {queue} has {_differ(positions, wanted)}")
            elif records and first != records[0].entry:
                faults.append(f"queue {queue} begins at {first}, its first message is {records[0].entry}")
            if all_records and last != all_records[-1].entry + all_records[-1].count:
                faults.append(f"queue {queue} ends at {last}, its last message is {all_records[-1].entry}")
        return faults

    def _index_faults(self, seen: Snapshot, expected: ExpectedState) -> list[str]:
        """A key leads to the records that an entry of a queue points to."""
        faults = []
        for record in self._truth.records:
            if record.topic in expected.forgotten:
                continue
            there = seen.low <= record.at and record.end <= seen.end and record.entry >= 0
            wanted = [bytes(self._truth.log[record.at : record.end])] if there else []
            if record.key and seen.found[record.key] != wanted:
                faults.append(
                    f"key {record.key} of {record.at} finds {len(seen.found[record.key])} records, not {len(wanted)}"
                )
        return faults[:3]

    # ---- continuing ----

    def _append_more(self, store: MessageStore) -> None:
        """One more message in each queue is stored and read."""
        for topic, queue_id in sorted(self._truth.queues):
            properties = properties_of(KEYS="new", TAGS="new")
            placed = put(store, b"new message", topic, queue_id, properties, NEW_MS)
            store.write()
            store.confirm(store.sync())
            got: Any = store.reader.get(topic, queue_id, placed.queue_offset, 32)
            assert got.count == 1, got
            assert got.body == store.reader.record_at(placed.physical_offset)


def _differ(positions: tuple[tuple[int, int, int], ...], wanted: list[tuple[int, int]]) -> str:
    for number, (position, true) in enumerate(zip(positions, wanted, strict=False)):
        if position[:2] != true:
            return f"{position[:2]} at {number} of {len(wanted)}, not {true}"
    return f"{len(positions)} entries, not {len(wanted)}"
