"""ExpectedState: what may be in the store and what must be, at one moment of a recorded run.

`WrittenLog` is the whole run: every record that was put, and the bytes of the log as they were written.
`ExpectedState` follows the marks: how far the log is acknowledged so far.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from firearrow._native.store.log.record import decode
from tests.crash.promises import Promises
from tests.crash.recording import Kind, Op

Queue = tuple[str, int]
PREPARED = 4
BLANK = bytes.fromhex("cbd43194")


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """A record that was put; `entry` -1: it has none."""

    topic: str
    queue: int
    entry: int
    at: int
    end: int
    key: str
    count: int = 1
    """Its messages, in a batch queue."""


@dataclass(slots=True)
class WrittenLog:
    """`log`: the bytes of the log by physical offset; `records` by their physical offset, in order."""

    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """For a whole broker, besides the options of its store."""
    log: bytearray = field(default_factory=bytearray)
    records: list[KnownRecord] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    queues: set[Queue] = field(default_factory=set)

    @staticmethod
    def of(ops: Iterable[Op]) -> "WrittenLog":
        written_log = WrittenLog()
        bases: dict[int, int] = {}
        named: dict[str, int] = {}
        put: list[dict[str, Any]] = []
        is_derived = False
        for op in ops:
            if op.kind == Kind.CREATE:
                named[op.names[0]] = op.file
            elif op.kind == Kind.RENAME and op.names[0] in named:
                named[op.names[1]] = named.pop(op.names[0])
            if op.kind in (Kind.CREATE, Kind.RENAME) and op.names[-1].startswith("commitlog/"):
                bases[named[op.names[-1]]] = int(op.names[-1].rpartition("/")[2])
            elif op.kind == Kind.WRITE and op.file in bases and op.data.count(0) != len(op.data):
                written_log._take(bases[op.file] + op.at, op.data)
            elif op.kind == Kind.MARK:
                mark = json.loads(op.data)
                if mark["what"] == "options":
                    written_log.options = {name: value for name, value in mark.items() if name != "what"}
                elif mark["what"] == "settings":
                    written_log.settings = {name: value for name, value in mark.items() if name != "what"}
                elif mark["what"] == "putting":
                    put.append(mark)
                elif mark["what"] == "derived":
                    is_derived = True
        if is_derived:
            put = list(written_log._derived())
        for mark in put:
            written_log._add(mark)
        return written_log

    def _take(self, at: int, data: bytes) -> None:
        if len(self.log) < at + len(data):
            self.log += bytes(at + len(data) - len(self.log))
        self.log[at : at + len(data)] = data

    def _derived(self) -> Iterator[dict[str, Any]]:
        """What the log itself shows was put."""
        at = 0
        while at + 8 <= len(self.log) and (size := int.from_bytes(self.log[at : at + 4], "big")):
            if self.log[at + 4 : at + 8] != BLANK:
                record = decode(bytes(self.log[at : at + size]))
                key = dict(
                    part.split("\x01") for part in record.properties_bytes.decode().split("\x02") if part
                )
                entry = -1 if record.sys_flag & PREPARED else record.queue_offset
                position = {"topic": record.topic, "queue": record.queue_id, "entry": entry}
                yield {**position, "at": at, "key": key.get("KEYS", "")}
            at += size

    def _add(self, mark: dict[str, Any]) -> None:
        at = mark["at"]
        end = at + int.from_bytes(self.log[at : at + 4], "big")
        if end > at:
            self.records.append(
                KnownRecord(
                    mark["topic"], mark["queue"], mark["entry"], at, end, mark["key"], mark.get("count", 1)
                )
            )
            self.ends.add(end)
            self.queues.add((mark["topic"], mark["queue"]))

    def entries(self, low: int, high: int) -> dict[Queue, list[KnownRecord]]:
        """The records of each queue between these offsets of the log, in order."""
        found: dict[Queue, list[KnownRecord]] = defaultdict(list)
        for record in self.records:
            if record.entry >= 0 and record.at >= low and record.end <= high:
                found[record.topic, record.queue].append(record)
        return found


@dataclass(slots=True)
class ExpectedState:
    """Offsets of the log: what was begun may be there, what was synced must be after a power cut, what was written
    after a kill. `lowest_max`: the log begins there or below. `forgotten`: topics whose queues may be gone."""

    segment_bytes: int
    begun: int = 0
    written: int = 0
    synced: int = 0
    lowest_max: int = 0
    forgotten: set[str] = field(default_factory=set)
    saved: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Config file → version that must be there, version that may be."""
    commits: dict[Queue, tuple[int, int, int]] = field(default_factory=dict)
    """Queue → offset that must be known after a power cut, after a kill, and that may be known."""
    steps: dict[int, int] = field(default_factory=dict)
    """Step in the journal → it counts if the log ends there or later."""
    promises: Promises = field(default_factory=Promises)

    def apply(self, op: Op) -> None:
        if op.kind != Kind.MARK:
            return
        mark = json.loads(op.data)
        match mark["what"]:
            case "writing":
                self.begun = max(self.begun, mark["end"])
            case "written":
                self.written = max(self.written, mark["end"])
            case "synced":
                self.synced = max(self.synced, mark["end"])
            case "stored":  # the record that begins there was written, whole
                self.written = max(self.written, mark["at"] + 1)
            case "acknowledged":  # the record that begins there is on the disk, whole
                self.written = self.synced = max(self.synced, mark["at"] + 1)
            case "dropping":
                self.lowest_max += mark["most"] * self.segment_bytes
            case "dropped" | "expiring":
                self.lowest_max = mark["below"]
            case "forgetting":
                self.forgotten.add(mark["topic"])
            case "committing":
                queue = mark["topic"], mark["queue"]
                self.commits[queue] = *self.commits.get(queue, (0, 0, 0))[:2], mark["offset"]
            case "noted":
                queue = mark["topic"], mark["queue"]
                self.commits[queue] = self.commits[queue][0], mark["offset"], mark["offset"]
            case "committed":
                self.commits[mark["topic"], mark["queue"]] = (mark["offset"],) * 3
            case "step":
                self.steps[mark["value"]] = mark["end"]
            case "saving":
                self.saved[mark["file"]] = (self.saved.get(mark["file"], (0, 0))[0], mark["version"])
            case "saved":
                self.saved[mark["file"]] = (mark["version"], mark["version"])
            case _:
                self.promises.apply(mark)
