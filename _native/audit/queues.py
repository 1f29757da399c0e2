"""Queue checks: the range of each queue, gaps in its files, and entries without records.

`survey_queues` counts entries from the files alone; only queues whose count differs from that of the
records are compared entry by entry (`check_queue`). Reads only; one thread for each call.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from firearrow._native.audit.findings import KINDS, Finding, Findings, Kind, queue_finding
from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.checks.findings import FaultKind, Faults
from firearrow._native.checks.queue_entries import EntriesResult, check_entries, count_entries, list_entries
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import ENTRY, QueueReader
from firearrow._native.offline.segment_files import SegmentFile, missing, rolled_files
from firearrow._native.store.files.errors import StoreUnreadable

QueueName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Physical offsets [start, end) of the log, except `holes`, each [start, end)."""

    start: int
    end: int
    holes: tuple[tuple[int, int], ...] = ()
    growing: bool = False


@dataclass(frozen=True, slots=True)
class QueueResult:
    """Queue offsets [first, end) can be read; `within` entries point into the log, `beyond` past its end."""

    first: int
    end: int
    within: int
    beyond: int


@dataclass(slots=True)
class QueueResults:
    queues: dict[QueueName, QueueResult] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)

    def merge(self, other: "QueueResults") -> None:
        self.queues.update(other.queues)
        self.findings.merge(other.findings)


def survey_queues(store: AuditedStore, names: Sequence[QueueName], log: LogBounds) -> QueueResults:
    seen, maps = QueueResults(), MappedFiles(1)
    for name in names:
        folder = store.path("consumequeue", name[0], str(name[1]))
        try:
            files = rolled_files(folder)
            seen.queues[name] = _survey(store, name, files, log, maps, seen.findings)
        except StoreUnreadable as error:
            seen.findings.add(
                Finding(Kind.UNREADABLE, store.name, folder, 0, str(error), topic=name[0], queue_id=name[1])
            )
    return seen


def _survey(
    store: AuditedStore,
    name: QueueName,
    files: Sequence[SegmentFile],
    log: LogBounds,
    maps: MappedFiles,
    findings: Findings,
) -> QueueResult:
    faults = Faults()
    found: list[tuple[SegmentFile, EntriesResult]] = []
    for file in files:
        mapping = maps.get(file)
        if mapping is not None:
            first, bounds = -(-file.base // ENTRY.size), (log.start, log.end)
            found.append((file, count_entries(mapping.window, first, *bounds, faults)))
    _take(store, os.fsencode(name[0]), name[1], faults, findings)
    while found and not found[-1][1].written:
        found.pop()
    if not found:
        end = -(-files[0].base // ENTRY.size) if files else 0
        return QueueResult(end, end, 0, 0)
    _find_gaps(store, name, found, findings)
    end = found[-1][1].end
    return QueueResult(
        first=next((entries.first for _, entries in found if entries.first >= 0), end),
        end=end,
        within=sum(entries.within for _, entries in found),
        beyond=sum(entries.beyond for _, entries in found),
    )


def _find_gaps(
    store: AuditedStore,
    name: QueueName,
    found: Sequence[tuple[SegmentFile, EntriesResult]],
    findings: Findings,
) -> None:
    """Gaps between files, and at the end of all files but the last."""
    for start, end in missing([file for file, _ in found]):
        findings.add(_gap(store, name, f"{start:020d}", start, end - start, "the file is missing"))
    for file, entries in found[:-1]:
        start = max(entries.end * ENTRY.size, file.base)
        size = file.end - file.length % ENTRY.size - start
        if size > 0:
            findings.add(_gap(store, name, os.path.basename(file.path), start, size, "nothing was written"))


def _gap(store: AuditedStore, name: QueueName, file: str, start: int, size: int, why: str) -> Finding:
    """`start`: the byte of the queue where the gap begins."""
    count, number = size // ENTRY.size, start // ENTRY.size
    return Finding(
        Kind.QUEUE_GAP,
        store.name,
        store.path("consumequeue", name[0], str(name[1]), file),
        start - int(file),
        f"{count} entries are missing from queue offset {number} on: {why}",
        topic=name[0],
        queue_id=name[1],
        queue_offset=number,
        count=count,
        bytes=size,
    )


def _take(store: AuditedStore, topic: bytes, queue_id: int, faults: Faults, findings: Findings) -> None:
    for kind in (FaultKind.QUEUE_GAP, FaultKind.QUEUE_ORDER):
        findings.count(KINDS[kind], faults.total(kind))
    for fault in faults.listed():
        findings.name(queue_finding(store, topic, queue_id, fault))


def check_queue(
    store: AuditedStore, name: QueueName, segments: Sequence[SegmentFile], log: LogBounds, *, is_lmq: bool
) -> Findings:
    """Finds each entry that points to no record of the queue; with `is_lmq`, to no record at all."""
    topic, findings, faults = os.fsencode(name[0]), Findings(), Faults()
    maps, windows = MappedFiles(1), MappedFiles()
    for file in rolled_files(store.path("consumequeue", name[0], str(name[1]))):
        mapping = maps.get(file)
        if mapping is None:
            continue
        first = -(-file.base // ENTRY.size)
        seen = count_entries(mapping.window, first, log.start, log.end, Faults())
        for segment in segments:
            until = min(segment.end, log.end)
            window = (
                windows.get(segment) if segment.base <= seen.highest and until > seen.lowest >= 0 else None
            )
            if window is not None:
                check_entries(
                    mapping.window,
                    first,
                    window.window,
                    base=segment.base,
                    until=until,
                    topic=topic,
                    queue_id=name[1],
                    is_lmq=is_lmq,
                    faults=faults,
                )
        for start, end in (*log.holes, *(() if log.growing else ((log.end, (1 << 63) - 1),))):
            list_entries(mapping.window, first, offset_from=start, offset_to=end, faults=faults)
    findings.count(Kind.LOST_RECORD, faults.total(FaultKind.LOST_RECORD))
    for fault in faults.listed():
        findings.name(queue_finding(store, topic, name[1], fault))
    return findings


def is_written(store: AuditedStore, name: QueueName, start: int, count: int) -> bool:
    """Whether the entries at queue offsets [start, start + count) are written now."""
    entries = QueueReader(store.path("consumequeue", name[0], str(name[1])))
    entries.refresh()
    try:
        return start + count <= entries.end()
    finally:
        entries.close()
