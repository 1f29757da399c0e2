"""LogPart: checks a part of the log in a worker: its records, against their queue entries and the index.

The ranges of a part follow each other, and each continues where the previous one ended; only the first
range of a part, if it begins inside a segment, searches for a record. Reads only; one thread for each part.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from firearrow._native.columnar.record_spans import End, find
from firearrow._native.columnar.unwritten import first_written
from firearrow._native.offline.mapped_files import MappedFile, MappedFiles
from firearrow._native.offline.queue_reader import QueueReader, reader_of
from firearrow._native.offline.segment_files import SegmentFile, segment_at
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store_checks.findings import Extent, Findings, Kind, StoreFinding
from firearrow._native.store_checks.index_entries import match_keys, settle_keys
from firearrow._native.store_checks.index_files import IndexFileInfo
from firearrow._native.store_checks.log_ranges import LogRange
from firearrow._native.store_checks.log_records import TORN, Survey, SurveyedQueue
from firearrow._native.store_checks.queues import and_others, queue_finding
from firearrow._native.store_checks.raw_findings import RawFinding
from firearrow._native.store_checks.top_counts import LogCounts

ENTRIES_AT_ONCE = 1 << 18
CHUNK_BYTES = 64 << 20
"""How much of the log is compared with queues and index at a time."""
SYSTEM_PREFIXES = (b"rmq_sys_", b"RMQ_SYS_", b"SCHEDULE_TOPIC_XXXX", b"%LMQ%")
"""Of topics that are never deleted, or that no file names."""
QUEUES_MAX = 8192
"""Queues whose file lists are cached."""
OFFSET_MAX = (1 << 63) - 1
UNWRITTEN = "nothing was written here"
COUNTED = (
    "records",
    "log_bytes",
    "half",
    "deleted",
    "keys_expected",
    "tags_expected",
    "keys_found",
    "tags_found",
    "keys_outside",
)


@dataclass(frozen=True, slots=True)
class PartSettings:
    """`growing`: a broker writes the store. `delays_s`: of the delay levels, seconds; empty: not known.
    `index_from`: the index has the keys of records from this physical offset on. `trims`, `deletions` and `topics`: see
    `StoreFolder`."""

    check_crc: bool = True
    with_index: bool = True
    growing: bool = False
    delays_s: tuple[int, ...] = ()
    index_from: int = 0
    trims: Mapping[tuple[bytes, int], int] = field(default_factory=dict)
    deletions: Mapping[bytes, tuple[int, int]] = field(default_factory=dict)
    topics: frozenset[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes from physical offset `start` on that are not a record: torn, or nothing was written there."""

    start: int
    is_torn: bool
    why: str

    def then(self, later: "Gap | None") -> "Gap":
        """This gap, which goes on with a later one."""
        return (
            self if later is None or self.is_torn or not later.is_torn else replace(later, start=self.start)
        )


@dataclass(slots=True)
class PartResult:
    """The result of a part of the log. `records`: where the first one begins and the last one ends, physical offsets.
    `rest`: what follows the last one."""

    records: tuple[int, int] | None = None
    rest: Gap | None = None
    findings: Findings = field(default_factory=Findings)
    counts: LogCounts = field(default_factory=LogCounts)
    fitting: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """Number of entries of each queue that match their records."""
    numbers: Counter[str] = field(default_factory=Counter)


class LogPart:
    """`ranges` in order; `exact`: the first one starts at a record. `run` once."""

    def __init__(
        self,
        store: StoreFolder,
        ranges: Sequence[LogRange],
        index: Sequence[IndexFileInfo],
        settings: PartSettings,
        *,
        exact: bool,
    ) -> None:
        self._store, self._ranges, self._exact = store, ranges, exact
        self._index = index if settings.with_index else ()
        self._settings = settings
        self._survey = Survey(
            check_crc=settings.check_crc,
            with_keys=bool(self._index),
            delays_ms=[1000 * s for s in settings.delays_s],
            deletions=settings.deletions,
        )
        self._maps = MappedFiles()
        self._seen = PartResult()
        self._chunk: int | None = None
        self._judged: dict[tuple[bytes, int], bool] = {}
        self._deleted: set[tuple[bytes, int]] = set()
        self._entries: dict[tuple[bytes, int], QueueReader] = {}

    def run(self) -> PartResult:
        at = self._ranges[0].start if self._exact else None
        for part in self._ranges:
            mapping = self._maps.get(part.segment)
            if mapping is None:
                self._seen.numbers["gone"] += 1
                continue
            if at is None or at < part.start:
                at = self._begin(mapping, part)
            if at is not None:
                at = self._range(mapping, part, at)
            mapping.passed(min(part.stop, mapping.end) - mapping.base)
        self._finish()
        return self._seen

    def _begin(self, mapping: MappedFile, part: LogRange) -> int | None:
        """The offset of the first record of a range that may begin inside a record."""
        if part.start == part.segment.base:
            return part.start
        start, data_end = part.start - mapping.base, min(part.stop - mapping.base, mapping.data_end)
        found = find(mapping.window, start, data_end, base=mapping.base) if start < data_end else -1
        if found >= 0:
            return mapping.base + found
        is_torn = start < data_end and first_written(mapping.window, start, data_end) < data_end
        self._remains(Gap(part.start, is_torn, "no record begins there"))
        return None

    def _range(self, mapping: MappedFile, part: LogRange, at: int) -> int:
        """Checks from `at` to the range's end; returns where the next record begins, if known."""
        base, stop = mapping.base, min(part.stop, mapping.end)
        while at < stop:
            goal = min(stop, at + CHUNK_BYTES)
            next_position, end = self._survey.walk(mapping.window, at - base, goal - base, base=base)
            if self._chunk is None:
                self._chunk = at
            if base + next_position > at:
                self._records(at, base + next_position, end)
            at = base + next_position
            mapping.passed(next_position)
            if end is End.LIMIT:
                self._settle(at)
            elif end is not End.BLANK:
                at = self._pass(mapping, at, stop, end)
        self._settle(at)
        return at

    def _records(self, start: int, end: int, why: End) -> None:
        """Whole records, or a blank, are in [start, end); bytes skipped before them are inside the log."""
        seen = self._seen
        first = start if seen.records is None else seen.records[0]
        if seen.rest is not None and seen.records is not None:
            self._inside(seen.rest, start)
        seen.records, seen.rest = (first, end), None
        seen.numbers["blanks"] += why is End.BLANK

    def _pass(self, mapping: MappedFile, at: int, stop: int, why: End) -> int:
        """Skips bytes that are not a record; returns the next record, or the range's end."""
        base = mapping.base
        data_end = min(stop, base + mapping.data_end)
        written = first_written(mapping.window, at - base, data_end - base) + base if at < data_end else stop
        if why is End.UNWRITTEN and written >= data_end:
            self._remains(Gap(at, is_torn=False, why=UNWRITTEN))
            return stop
        found = find(mapping.window, at - base + 1, data_end - base, base=base) if at + 1 < data_end else -1
        if why is End.TORN:
            self._remains(Gap(at, is_torn=True, why=TORN[self._survey.torn]))
        elif found < 0:
            self._remains(Gap(at, is_torn=True, why=f"bytes from {written} on are not a record"))
        else:
            self._remains(Gap(at, is_torn=False, why=UNWRITTEN))
        return stop if found < 0 else base + found

    def _remains(self, gap: Gap) -> None:
        self._seen.rest = gap if self._seen.rest is None else self._seen.rest.then(gap)

    def _inside(self, gap: Gap, end: int) -> None:
        segment = segment_at(self._segments(), gap.start)
        assert segment is not None, "walked bytes are in a segment"
        kind = Kind.TORN if gap.is_torn else Kind.HOLE
        self._seen.findings.add(gap_finding(self._store, segment, kind, gap.start, end, gap.why))

    def _segments(self) -> list[SegmentFile]:
        return [part.segment for part in self._ranges]

    # ---- comparison with queues and index ----

    def _settle(self, until: int) -> None:
        """Compare the records walked since the last call, then forget them."""
        survey = self._survey
        if self._chunk is not None and until > self._chunk:
            if self._store.has_queues():
                for queue in survey.queues():
                    if queue.low >= 0:
                        self._match(queue)
            if self._index:
                self._match_keys(self._chunk, until)
        survey.clear()
        self._chunk = None

    def _match(self, queue: SurveyedQueue) -> None:
        if not self._is_judged(queue):
            return
        entries = self._entries_of(queue)
        begin = 0
        if entries is not None:
            for first, rows in entries.runs(max(0, queue.low), queue.high + 1, ENTRIES_AT_ONCE):
                self._survey.match(queue.number, rows, first)
            begin = _begin(entries)
            entries.close()
        trimmed_below = self._settings.trims.get((queue.topic, queue.queue_id), 0)
        self._survey.settle(queue.number, trimmed_below, begin)

    def _entries_of(self, queue: SurveyedQueue) -> QueueReader | None:
        """The cached file list of a queue; listed again if it does not reach far enough."""
        key = queue.topic, queue.queue_id
        entries = self._entries.get(key)
        if entries is None or entries.at(queue.high) is None:
            folder = self._store.queue_folder(*key)
            if folder is None:
                return None
            if len(self._entries) >= QUEUES_MAX:
                self._entries.clear()
            entries = reader_of(folder)
            try:
                entries.refresh()
            except StoreUnreadable:
                return None  # `survey_queues` reports it
            self._entries[key] = entries
        return entries

    def _is_judged(self, queue: SurveyedQueue) -> bool:
        """Whether the queue can be checked: light queues that were never created, and queues of topics that were
        deleted, have no entries."""
        key = queue.topic, queue.queue_id
        if key not in self._judged:
            folder = self._store.queue_folder(*key)
            is_lmq = queue.is_lmq and not queue.messages and (folder is None or not os.path.isdir(folder))
            is_deleted = folder is not None and self._is_deleted(queue.topic, os.path.dirname(folder))
            if is_deleted:
                self._deleted.add(key)
            self._judged[key] = not (is_lmq or is_deleted)
        return self._judged[key]

    def _is_deleted(self, topic: bytes, folder: str) -> bool:
        """Whether no file names the topic and it has no folder of queues."""
        topics = self._settings.topics
        is_unknown = topics is not None and topic not in topics and not topic.startswith(SYSTEM_PREFIXES)
        return is_unknown and not os.path.isdir(folder)

    def _match_keys(self, start: int, until: int) -> None:
        for number, file in enumerate(self._index):
            if file.slots and file.head.end_offset >= start and file.head.begin_offset < until:
                mapping = self._maps.get(file.segment)
                if mapping is not None and file.is_whole:
                    match_keys(
                        self._survey,
                        mapping.window,
                        file.slots,
                        offset_from=start,
                        offset_to=until,
                        owner=number,
                    )
        end = self._index[-1].head.end_offset - 1 if self._settings.growing else OFFSET_MAX
        settle_keys(self._survey, covered_from=self._settings.index_from, covered_to=end)

    # ---- the end ----

    def _finish(self) -> None:
        survey, seen = self._survey, self._seen
        seen.counts.add_counts(survey)
        queues = survey.queues()
        seen.fitting = {(queue.topic, queue.queue_id): queue.fitting for queue in queues if queue.fitting}
        for name in COUNTED:
            seen.numbers[name] = getattr(survey, name)
        for queue in queues:
            key = queue.topic, queue.queue_id
            if key in self._deleted:
                seen.numbers["deleted"] += queue.messages
        seen.findings.extend(
            survey.findings.totals(), (self._finding(each, queues) for each in survey.findings.listed())
        )

    def _finding(self, raw: RawFinding, queues: Sequence[SurveyedQueue]) -> StoreFinding:
        if raw.kind is Kind.WRONG_KEY:
            return self._index[raw.owner].finding(self._store, raw)
        if raw.kind is Kind.BAD_CRC:
            return self._in_log(raw, "the body does not match the record's CRC", raw.size)
        if raw.kind is Kind.NO_KEY:
            return self._in_log(raw, f"a key with hash {raw.seen} is not in the index", 0)
        queue = queues[raw.owner]
        return queue_finding(self._store, queue.topic, queue.queue_id, raw)

    def _in_log(self, raw: RawFinding, text: str, size: int) -> StoreFinding:
        at = raw.physical_offset
        segment = segment_at(self._segments(), at)
        assert segment is not None, "a record that was walked is in a segment"
        where = Extent(self._store.name, segment.path, at - segment.base, at, count=raw.times, bytes=size)
        return raw.kind.finding(where, text + and_others(raw.times))


def gap_finding(
    store: StoreFolder, segment: SegmentFile, kind: Kind, start: int, end: int, why: str
) -> StoreFinding:
    """Physical offsets [start, end), `start` in the segment, hold no record."""
    where = Extent(store.name, segment.path, start - segment.base, start, bytes=end - start)
    return kind.finding(where, f"{end - start} bytes are not a record: {why}")


def _begin(entries: QueueReader) -> int:
    """Where the queue's first entry of all points; 0 if it is deleted or not in order. What the log has of the
    queue before that is of a deleted topic with the same name."""
    first, second = entries.at(0), entries.at(1)
    if first is None or not first.is_written or first.is_blank:
        return 0
    in_order = second is None or not second.is_written or second.is_blank or first.physical < second.physical
    return first.physical if in_order else 0
