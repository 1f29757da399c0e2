"""Queue checks: the range of each queue, gaps in its files, and entries without records.

`survey_queues` counts entries from the files alone; only queues whose count differs from that of the
records are compared entry by entry (`check_queue`). Reads only; one thread for each call.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import ENTRY, is_batch_folder, reader_of
from firearrow._native.offline.segment_files import SegmentFile, missing, rolled_files, segment_at
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store_checks.findings import Extent, Findings, Kind, StoreFinding
from firearrow._native.store_checks.queue_entries import (
    EntriesResult,
    check_entries,
    count_entries,
    list_entries,
)
from firearrow._native.store_checks.raw_findings import RawFinding, RawFindings

if TYPE_CHECKING:
    from firearrow._native.store_checks.queue_entries import Window

ENTRIES_AT_ONCE = 1 << 16
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


def survey_queues(store: StoreFolder, names: Sequence[QueueName], log: LogBounds) -> QueueResults:
    seen, maps = QueueResults(), MappedFiles(1)
    for name in names:
        folder = store.folder_of(*name)
        try:
            files = rolled_files(folder)
            survey = _survey_batches if is_batch_folder(folder) else _survey
            seen.queues[name] = survey(store, name, files, log, maps, seen.findings)
        except StoreUnreadable as error:
            where = Extent(store.name, folder, 0, topic=name[0], queue_id=name[1])
            seen.findings.add(Kind.UNREADABLE.finding(where, str(error)))
    return seen


def _survey(
    store: StoreFolder,
    name: QueueName,
    files: Sequence[SegmentFile],
    log: LogBounds,
    maps: MappedFiles,
    findings: Findings,
) -> QueueResult:
    raw = RawFindings()
    found: list[tuple[SegmentFile, EntriesResult]] = []
    for file in files:
        mapping = maps.get(file)
        if mapping is not None:
            first, bounds = -(-file.base // ENTRY.size), (log.start, log.end)
            found.append((file, count_entries(mapping.window, first, *bounds, raw)))
    _add(store, os.fsencode(name[0]), name[1], raw, findings)
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


def _survey_batches(
    store: StoreFolder,
    name: QueueName,
    files: Sequence[SegmentFile],
    log: LogBounds,
    _maps: MappedFiles,
    findings: Findings,
) -> QueueResult:
    """As `_survey`, of a batch queue."""
    raw, folder = RawFindings(), store.folder_of(*name)
    found = [count_entries(rows, first, log.start, log.end, raw) for rows, first in _batch_windows(folder)]
    _add(store, os.fsencode(name[0]), name[1], raw, findings)
    for start, end in missing(files):
        where = Extent(store.name, f"{folder}/{start:020d}", 0, None, *name, None, 1, end - start)
        findings.add(Kind.QUEUE_GAP.finding(where, "a file of the queue is missing"))
    end = max((entries.end for entries in found), default=0)
    return QueueResult(
        first=next((entries.first for entries in found if entries.first >= 0), end),
        end=end,
        within=sum(entries.within for entries in found),
        beyond=sum(entries.beyond for entries in found),
    )


def _batch_windows(folder: str) -> Iterator[tuple[bytes, int]]:
    """The entries of a batch queue in the form of a plain one's, and the queue offset of the first."""
    entries = reader_of(folder)
    entries.refresh()
    try:
        for first, rows in entries.runs(entries.first, entries.end(), ENTRIES_AT_ONCE):
            yield rows, first
    finally:
        entries.close()


def _windows(folder: str) -> "Iterator[tuple[Window, int]]":
    """The entries of each file of a queue, and the queue offset of the first."""
    if is_batch_folder(folder):
        yield from _batch_windows(folder)
        return
    maps = MappedFiles(1)
    for file in rolled_files(folder):
        mapping = maps.get(file)
        if mapping is not None:
            yield mapping.window, -(-file.base // ENTRY.size)


def _find_gaps(
    store: StoreFolder,
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


def _gap(store: StoreFolder, name: QueueName, file: str, start: int, size: int, why: str) -> StoreFinding:
    """`start`: the byte of the queue where the gap begins."""
    count, number = size // ENTRY.size, start // ENTRY.size
    path = os.path.join(store.folder_of(*name), file)
    where = Extent(store.name, path, start - int(file), None, *name, number, count, size)
    return Kind.QUEUE_GAP.finding(where, f"{count} entries are missing from queue offset {number} on: {why}")


def _add(store: StoreFolder, topic: bytes, queue_id: int, raw: RawFindings, findings: Findings) -> None:
    findings.extend(raw.totals(), (queue_finding(store, topic, queue_id, each) for each in raw.listed()))


def check_queue(
    store: StoreFolder, name: QueueName, segments: Sequence[SegmentFile], log: LogBounds, *, is_lmq: bool
) -> Findings:
    """Finds each entry that points to no record of the queue; with `is_lmq`, to no record at all."""
    topic, findings, raw = os.fsencode(name[0]), Findings(), RawFindings()
    windows = MappedFiles()
    for rows, first in _windows(store.folder_of(*name)):
        seen = count_entries(rows, first, log.start, log.end, RawFindings())
        for segment in segments:
            until = min(segment.end, log.end)
            window = (
                windows.get(segment) if segment.base <= seen.highest and until > seen.lowest >= 0 else None
            )
            if window is not None:
                check_entries(
                    rows,
                    first,
                    window.window,
                    base=segment.base,
                    until=until,
                    topic=topic,
                    queue_id=name[1],
                    is_lmq=is_lmq,
                    findings=raw,
                )
        for start, end in (*log.holes, *(() if log.growing else ((log.end, (1 << 63) - 1),))):
            list_entries(rows, first, offset_from=start, offset_to=end, findings=raw)
    _add(store, topic, name[1], raw, findings)
    return findings


def queue_finding(store: StoreFolder, topic: bytes, queue_id: int, raw: RawFinding) -> StoreFinding:
    """Of any kind of queue entries. The folder is named if no file has the entry."""
    folder = store.queue_folder(topic, queue_id)
    path, base = store.path("consumequeue") if folder is None else folder, 0
    if folder is not None and is_batch_folder(folder):
        base = raw.number * ENTRY.size
    elif folder is not None and (file := _file_of(folder, raw.number)) is not None:
        path, base = file.path, file.base
    where = Extent(
        store.name,
        path,
        raw.number * ENTRY.size - base,
        raw.physical_offset if raw.physical_offset >= 0 else None,
        topic.decode("utf-8", "replace"),
        queue_id,
        raw.number,
        raw.times,
        raw.size,
    )
    return raw.kind.finding(where, _sentence(raw) + and_others(raw.times))


def _file_of(folder: str, number: int) -> SegmentFile | None:
    """The file that holds an entry."""
    try:
        return segment_at(rolled_files(folder), number * ENTRY.size)
    except StoreUnreadable:
        return None


def _sentence(raw: RawFinding) -> str:
    number, at, seen = raw.number, raw.physical_offset, raw.seen
    match raw.kind:
        case Kind.NO_ENTRY:
            return f"the record at {at} has queue offset {number}, but the queue has no such entry"
        case Kind.WRONG_ENTRY if seen == at:
            return f"entry {number} points to {at} with another size than the record has"
        case Kind.WRONG_ENTRY:
            return f"entry {number} points to {seen}, but its record is at {at}"
        case Kind.WRONG_TAGS:
            return f"entry {number} has tags code {seen}, but the record at {at} has other tags"
        case Kind.LOST_RECORD:
            return f"entry {number} points to {at}, where its record is not"
        case Kind.QUEUE_GAP:
            return f"nothing was written at queue offset {number}"
        case _:
            return f"entry {number} points to {at}, out of order: its neighbour points to {seen}"


def and_others(count: int) -> str:
    return f", and {count - 1} more after it" if count > 1 else ""


def is_written(store: StoreFolder, name: QueueName, start: int, count: int) -> bool:
    """Whether the entries at queue offsets [start, start + count) are written now."""
    entries = reader_of(store.folder_of(*name))
    entries.refresh()
    try:
        return start + count <= entries.end()
    finally:
        entries.close()
