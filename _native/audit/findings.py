"""Findings: what is wrong with a store, each with file, position and a sentence.

Lists are bounded, counts are exact. Also turns the faults of native checks into findings. One thread for
each Findings; they are merged afterwards.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.checks.findings import Fault, FaultKind
from firearrow._native.offline.queue_reader import ENTRY
from firearrow._native.offline.segment_files import SegmentFile, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreUnreadable

LISTED_MAX = 1000
"""Listed findings of a kind; more are only counted."""


class Kind(StrEnum):
    MISSING_SEGMENT = "missing segment"
    CUT_FILE = "cut file"
    TORN = "torn"
    """Bytes inside the log that are not a record."""
    TORN_TAIL = "torn tail"
    HOLE = "hole"
    """Nothing was written inside the log."""
    BAD_CRC = "bad CRC"
    NO_ENTRY = "no queue entry"
    WRONG_ENTRY = "wrong queue entry"
    WRONG_TAGS = "wrong tags code"
    LOST_RECORD = "queue entry without record"
    QUEUE_GAP = "queue gap"
    QUEUE_ORDER = "queue order"
    NO_KEY = "key not in index"
    WRONG_KEY = "wrong index entry"
    INDEX_CHAIN = "index chain"
    INDEX_SLOT = "index slot"
    INDEX_ORDER = "index order"
    INDEX_FILE = "index file"
    OFFSET_BEYOND = "offset beyond the end"
    CHECKPOINT = "checkpoint"
    CONFIG = "config file"
    TIMER = "timer file"
    JOURNAL = "journal"
    UNREADABLE = "unreadable file"


@dataclass(frozen=True, slots=True)
class Finding:
    """`position`: bytes from the file's start. `count`: adjacent faults of this kind, with `bytes` in
    total."""

    kind: Kind
    store: str
    file: str
    position: int
    text: str
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    bytes: int = 0

    def as_row(self) -> dict[str, str | int | None]:
        return {**asdict(self), "kind": str(self.kind)}


@dataclass(slots=True)
class Findings:
    listed: list[Finding] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    """How many of each kind there are; a finding counts as often as its `count`."""
    _positions: set[tuple[str, int]] = field(default_factory=set)
    _kept: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return self.totals.total() > 0

    def add(self, finding: Finding) -> None:
        self.count(finding.kind, finding.count)
        self.name(finding)

    def count(self, kind: Kind, number: int) -> None:
        """Count `number` findings of a kind without listing them."""
        if number:
            self.totals[str(kind)] += number

    def name(self, finding: Finding) -> None:
        """List a finding that is already counted."""
        if self._kept[finding.kind] < LISTED_MAX:
            self._kept[finding.kind] += 1
            self._positions.add((finding.file, finding.position))
            self.listed.append(finding)

    def retract(self, finding: Finding) -> None:
        """Remove a listed finding that turned out to be none."""
        self.listed.remove(finding)
        self._kept[finding.kind] -= 1
        self._positions.discard((finding.file, finding.position))
        self.totals[str(finding.kind)] -= finding.count
        self.totals = +self.totals

    def names(self, file: str, position: int) -> bool:
        """Whether a listed finding is at this position."""
        return (file, position) in self._positions

    def merge(self, other: "Findings") -> None:
        self.totals.update(other.totals)
        for finding in other.listed:
            self.name(finding)

    def ordered(self) -> list[Finding]:
        """The listed findings, sorted by kind and position."""
        order = {kind: number for number, kind in enumerate(Kind)}
        return sorted(self.listed, key=lambda each: (order[each.kind], each.store, each.file, each.position))


KINDS = {
    FaultKind.BAD_CRC: Kind.BAD_CRC,
    FaultKind.NO_ENTRY: Kind.NO_ENTRY,
    FaultKind.WRONG_ENTRY: Kind.WRONG_ENTRY,
    FaultKind.WRONG_TAGS: Kind.WRONG_TAGS,
    FaultKind.LOST_RECORD: Kind.LOST_RECORD,
    FaultKind.QUEUE_GAP: Kind.QUEUE_GAP,
    FaultKind.QUEUE_ORDER: Kind.QUEUE_ORDER,
    FaultKind.NO_KEY: Kind.NO_KEY,
    FaultKind.WRONG_KEY: Kind.WRONG_KEY,
    FaultKind.INDEX_CHAIN: Kind.INDEX_CHAIN,
    FaultKind.INDEX_SLOT: Kind.INDEX_SLOT,
    FaultKind.INDEX_ORDER: Kind.INDEX_ORDER,
}


def log_finding(store: AuditedStore, segments: Sequence[SegmentFile], fault: Fault) -> Finding:
    """BAD_CRC and NO_KEY."""
    kind = KINDS[fault.kind]
    segment = segment_at(segments, fault.physical_offset)
    assert segment is not None, "a fault is in the segment that was walked"
    of_body = kind is Kind.BAD_CRC
    text = (
        "the body does not match the record's CRC"
        if of_body
        else f"a key with hash {fault.seen} is not in the index"
    )
    return Finding(
        kind,
        store.name,
        segment.path,
        fault.physical_offset - segment.base,
        text + and_others(fault.times),
        physical_offset=fault.physical_offset,
        count=fault.times,
        bytes=fault.size if of_body else 0,
    )


def queue_finding(store: AuditedStore, topic: bytes, queue_id: int, fault: Fault) -> Finding:
    """All kinds of queue entries."""
    path, base = _queue_file(store, topic, queue_id, fault.number)
    return Finding(
        KINDS[fault.kind],
        store.name,
        path,
        fault.number * ENTRY.size - base,
        _sentence(fault) + and_others(fault.times),
        physical_offset=fault.physical_offset if fault.physical_offset >= 0 else None,
        topic=topic.decode("utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=fault.number,
        count=fault.times,
        bytes=fault.size,
    )


def gap_finding(
    store: AuditedStore, segment: SegmentFile, kind: Kind, start: int, end: int, why: str
) -> Finding:
    """Physical offsets [start, end), `start` in the segment, hold no record."""
    return Finding(
        kind,
        store.name,
        segment.path,
        start - segment.base,
        f"{end - start} bytes are not a record: {why}",
        physical_offset=start,
        bytes=end - start,
    )


def and_others(count: int) -> str:
    return f", and {count - 1} more after it" if count > 1 else ""


def _sentence(fault: Fault) -> str:
    number, at, seen = fault.number, fault.physical_offset, fault.seen
    match fault.kind:
        case FaultKind.NO_ENTRY:
            return f"the record at {at} has queue offset {number}, but the queue has no such entry"
        case FaultKind.WRONG_ENTRY if seen == at:
            return f"entry {number} points to {at} with another size than the record has"
        case FaultKind.WRONG_ENTRY:
            return f"entry {number} points to {seen}, but its record is at {at}"
        case FaultKind.WRONG_TAGS:
            return f"entry {number} has tags code {seen}, but the record at {at} has other tags"
        case FaultKind.LOST_RECORD:
            return f"entry {number} points to {at}, where its record is not"
        case FaultKind.QUEUE_GAP:
            return f"nothing was written at queue offset {number}"
        case _:
            return f"entry {number} points to {at}, out of order: its neighbour points to {seen}"


def _queue_file(store: AuditedStore, topic: bytes, queue_id: int, number: int) -> tuple[str, int]:
    """The file that holds an entry, and its base; the folder if no file does."""
    folder = store.queue_folder(topic, queue_id)
    if folder is None:
        return store.path("consumequeue"), 0
    try:
        segment = segment_at(rolled_files(folder), number * ENTRY.size)
    except StoreUnreadable:
        segment = None
    return (str(Path(folder)), 0) if segment is None else (segment.path, segment.base)
