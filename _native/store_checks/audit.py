"""StoreAudit: audits one store, from its log to its consumer groups. Parallel work goes through an Executor.

The order gives consistent results for a growing store: first the offsets of groups and the end of the log
are read, then the log up to that end, then the queues; entries that point past that end are ignored.
Driver; one thread.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from firearrow._native.offline.segment_files import SegmentFile, missing
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.findings import Extent, Findings, Kind
from firearrow._native.store_checks.groups import GroupLag, lags, read_offsets
from firearrow._native.store_checks.index_files import IndexFileInfo, check_index, has_keys, index_files
from firearrow._native.store_checks.log_part import LogPart, PartResult, PartSettings
from firearrow._native.store_checks.log_ranges import LogRange, group_ranges, split_log
from firearrow._native.store_checks.merge_parts import LogResult, merge_parts
from firearrow._native.store_checks.queues import (
    LogBounds,
    QueueName,
    QueueResult,
    QueueResults,
    check_queue,
    is_written,
    survey_queues,
)
from firearrow._native.store_checks.top_counts import LogCounts

QUEUES_PER_TASK = 256
T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Calls `work` for each task; results are in task order. `weights`: bytes of each task, for progress."""

    width: int
    """Into how many tasks one log should be split."""

    def __call__(
        self, step: str, work: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int]
    ) -> list[R]: ...


class SerialExecutor:
    """Runs all tasks in this thread, one after the other."""

    def __init__(self, width: int = 4) -> None:
        self.width = width

    def __call__(
        self, step: str, work: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int]
    ) -> list[R]:
        return [work(task) for task in tasks]


@dataclass(frozen=True, slots=True)
class QueueRow:
    """Offsets [first, end) can be read; messages and bytes are those in the log. Times ms, None without
    messages."""

    topic: str
    queue_id: int
    first: int | None
    end: int | None
    messages: int
    bytes: int
    first_ms: int | None
    last_ms: int | None


@dataclass(slots=True)
class StoreResult:
    """The result of an audit of one store. `state`: notes that are not findings."""

    store: StoreFolder
    state: list[str] = field(default_factory=list)
    segments: int = 0
    log: LogBounds = field(default_factory=lambda: LogBounds(0, 0))
    numbers: Counter[str] = field(default_factory=Counter)
    counts: LogCounts = field(default_factory=LogCounts)
    queues: dict[QueueName, QueueResult] = field(default_factory=dict)
    lags: list[GroupLag] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    seconds: float = 0.0

    def queue_names(self) -> list[QueueName]:
        """Queues that have files or messages in the log, sorted."""
        return sorted({*self.queues, *((str(key[0]), int(key[1])) for key in self.counts.queues.rows)})

    def queue_rows(self) -> list[QueueRow]:
        rows = []
        for name in self.queue_names():
            queue = self.queues.get(name)
            first, end = (queue.first, queue.end) if queue is not None else (None, None)
            messages, size = self.counts.queues.rows.get(name, (0, 0))
            rows.append(
                QueueRow(*name, first, end, messages, size, *self.counts.times.get(name, (None, None)))
            )
        return rows


@dataclass(frozen=True, slots=True)
class LogPartTask:
    """Checks one part of the log. Picklable."""

    store: StoreFolder
    index: tuple[IndexFileInfo, ...]
    settings: PartSettings

    def __call__(self, ranges: Sequence[LogRange]) -> PartResult:
        return LogPart(self.store, ranges, self.index, self.settings, exact=False).run()

    def exactly(self, ranges: Sequence[LogRange]) -> PartResult:
        return LogPart(self.store, ranges, self.index, self.settings, exact=True).run()


class StoreAudit:
    """Call `run` once. `index_slots` 0: found from the index files. StoreUnreadable: the folder is not a
    store."""

    def __init__(
        self,
        store: StoreFolder,
        executor: Executor,
        *,
        check_crc: bool = True,
        with_index: bool = True,
        delays_s: tuple[int, ...] = (),
        index_slots: int = 0,
        range_bytes: int = 128 << 20,
    ) -> None:
        self._store, self._executor, self._range_bytes = store, executor, range_bytes
        self._growing = store.is_running()
        self._settings = PartSettings(
            check_crc,
            with_index,
            self._growing,
            delays_s,
            trims=store.trims(),
            deletions=store.deletions(),
            topics=store.topics(),
        )
        self._index_slots = index_slots
        self.seen = StoreResult(store)

    def run(self) -> StoreResult:
        began = time.monotonic()
        seen, store = self.seen, self._store
        segments, end = store.segments(), None
        offsets = read_offsets(store, seen.findings)
        if self._growing:
            end = store.log_end()
            segments = store.segments()
        index = index_files(store, self._index_slots) if self._settings.with_index else []
        self._describe(segments, index)
        log = self._look_at_log(segments, end, index)
        start = segments[0].base if segments else 0
        seen.log = LogBounds(
            start, max(log.end, start) if end is None else end, tuple(missing(segments)), self._growing
        )
        if store.has_queues():
            self._look_at_queues(segments, log)
            self._look_again()
        self._look_at_index(index)
        seen.lags = lags(store, offsets, seen.queues, seen.findings)
        self._note_what_was_not_checked()
        seen.seconds = time.monotonic() - began
        return seen

    def _describe(self, segments: Sequence[SegmentFile], index: Sequence[IndexFileInfo]) -> None:
        seen, store = self.seen, self._store
        seen.segments = len(segments)
        if self._growing:
            seen.state.append("a broker is running: checked up to where the log ended when the audit began")
        elif store.was_killed():
            seen.state.append("the broker was not stopped cleanly: its next start checks the end of the log")
        if not store.has_queues():
            seen.state.append("it has no folder consumequeue: queues were not checked")
        if self._settings.with_index and not index:
            self._note_no_index(segments)
        for start, stop in missing(segments):
            path, why = (
                store.path("commitlog", f"{start:020d}"),
                f"{stop - start} bytes of the log are missing",
            )
            where = Extent(store.name, path, 0, start, bytes=stop - start)
            seen.findings.add(Kind.MISSING_SEGMENT.finding(where, why))
        length = max((segment.length for segment in segments), default=0)
        for segment in segments[:-1] if self._growing else segments:
            if segment.length < length:
                why = f"it has {segment.length} bytes, but other files have {length}"
                where = Extent(store.name, segment.path, segment.length, bytes=length - segment.length)
                seen.findings.add(Kind.CUT_FILE.finding(where, why))

    def _note_no_index(self, segments: Sequence[SegmentFile]) -> None:
        store = self._store
        if not has_keys(store, segments):
            self.seen.state.append("it has no index files: keys were not checked")
            return
        why = (
            "there are no index files, but messages have keys; skip the index if messageIndexEnable is false"
        )
        self.seen.findings.add(Kind.INDEX_FILE.finding(Extent(store.name, store.path("index"), 0), why))

    def _note_what_was_not_checked(self) -> None:
        seen, store = self.seen, self._store
        if seen.numbers["deleted"]:
            seen.state.append(
                f"{seen.numbers['deleted']} records of deleted topics, which have no queue entries"
            )
        if seen.numbers["gone"]:
            seen.state.append("files of the log were deleted during the audit: they were not checked")
        if seen.numbers["keys_outside"]:
            seen.state.append(f"{seen.numbers['keys_outside']} keys of records that the index does not cover")
        if os.path.isdir(store.path("consumequeue_r")):
            seen.state.append("it has queues in RocksDB, which were not checked")

    def _look_at_log(
        self, segments: Sequence[SegmentFile], end: int | None, index: Sequence[IndexFileInfo]
    ) -> LogResult:
        tasks = group_ranges(split_log(segments, end, self._range_bytes), self._executor.width)
        settings = replace(self._settings, index_from=_index_from(segments, index))
        work = LogPartTask(self._store, tuple(index), settings)
        weights = [sum(map(len, task)) for task in tasks]
        found = self._executor("log", work, tasks, weights)
        log = merge_parts(self._store, tasks, found, work.exactly, growing=self._growing)
        self.seen.counts, self.seen.numbers = log.counts, log.numbers
        self.seen.findings.merge(log.findings)
        return log

    def _look_at_queues(self, segments: Sequence[SegmentFile], log: LogResult) -> None:
        store, bounds = self._store, self.seen.log
        names = list(store.queues())
        tasks = [names[at : at + QUEUES_PER_TASK] for at in range(0, len(names), QUEUES_PER_TASK)]
        work = partial(survey_queues, store, log=bounds)
        found = QueueResults()
        for each in self._executor("queues", work, tasks, [len(task) for task in tasks]):
            found.merge(each)
        self.seen.queues = found.queues
        self.seen.findings.merge(found.findings)
        records = self.seen.counts.queues.rows
        odd = [
            (
                name,
                (name[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), name[1])
                not in records,
            )
            for name, queue in found.queues.items()
            if log.fitting[os.fsencode(name[0]), name[1]] != queue.within
            or (queue.beyond and not bounds.growing)
        ]
        for lost in self._executor(
            "entries", partial(_check_queue_entries, store, segments, bounds), odd, [1] * len(odd)
        ):
            self._add_entries(lost)

    def _add_entries(self, findings: Findings) -> None:
        """Entries that are already listed with their records are not listed again."""
        known = [each for each in findings.listed if self.seen.findings.is_listed_at(each.where)]
        findings.totals[Kind.LOST_RECORD] -= sum(each.where.count for each in known)
        findings.listed = [each for each in findings.listed if each not in known]
        findings.totals = +findings.totals
        self.seen.findings.merge(findings)

    def _look_again(self) -> None:
        """Check missing entries again: while a broker writes, an entry may be written a moment after its
        record."""
        if not self._growing:
            return
        for each in [each for each in self.seen.findings.listed if each.kind is Kind.NO_ENTRY]:
            where = each.where
            assert where.topic is not None
            assert where.queue_id is not None
            assert where.queue_offset is not None
            if is_written(self._store, (where.topic, where.queue_id), where.queue_offset, where.count):
                self.seen.findings.retract(each)

    def _look_at_index(self, index: Sequence[IndexFileInfo]) -> None:
        tasks = [[(file, self._growing and file is index[-1])] for file in index]
        weights = [file.segment.length for file in index]
        for findings, entries in self._executor("index", partial(check_index, self._store), tasks, weights):
            self.seen.findings.merge(findings)
            self.seen.numbers["index entries"] += entries


def _index_from(segments: Sequence[SegmentFile], index: Sequence[IndexFileInfo]) -> int:
    """The first record whose keys the index must have.

    Older index files may be deleted, and with them some keys of the record with which the oldest remaining
    file begins.
    """
    begin = index[0].head.begin_offset if index else 0
    return begin if segments and begin == segments[0].base else begin + 1


def _check_queue_entries(
    store: StoreFolder, segments: Sequence[SegmentFile], log: LogBounds, task: tuple[QueueName, bool]
) -> Findings:
    return check_queue(store, task[0], segments, log, is_lmq=task[1])
