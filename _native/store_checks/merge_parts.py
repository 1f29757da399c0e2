"""Merges the results of the parts of the log: nothing between them is lost or counted twice. Driver."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firearrow._native.offline.segment_files import SegmentFile, segment_at
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.findings import Findings, Kind
from firearrow._native.store_checks.log_part import OFFSET_MAX, Gap, PartResult, gap_finding
from firearrow._native.store_checks.log_ranges import LogRange, from_offset
from firearrow._native.store_checks.top_counts import LogCounts

Again = Callable[[Sequence[LogRange]], PartResult]
"""Checks a part again; its first record begins at the start of its first range."""


@dataclass(slots=True)
class LogResult:
    """`end`: of the last record, 0 before the first one."""

    end: int = 0
    findings: Findings = field(default_factory=Findings)
    counts: LogCounts = field(default_factory=LogCounts)
    fitting: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)


def merge_parts(
    store: StoreFolder,
    parts: Sequence[Sequence[LogRange]],
    seen: Sequence[PartResult],
    again: Again,
    *,
    growing: bool,
) -> LogResult:
    """`seen` is in the order of `parts`, which follow each other in the log."""
    log = LogResult()
    segments = [each.segment for part in parts for each in part]
    rest: Gap | None = None
    for ranges, part in zip(parts, seen, strict=True):
        if begin_of(part) < log.end:
            # A record reaches into this part, past what looked like its first record.
            left = from_offset(ranges, log.end)
            part = again(left) if left else PartResult()  # noqa: PLW2901 (it takes the other's place)
        if part.records is not None:
            first, end = part.records
            start = max(log.end, segments[0].base) if rest is None else rest.start
            if start < first:
                kind = Kind.TORN if rest is None or rest.is_torn else Kind.HOLE
                _between(log, store, segments, kind, (start, first), "" if rest is None else rest.why)
            log.end, rest = end, part.rest
        else:
            rest = part.rest if rest is None else rest.then(part.rest)
        _merge(log, part)
    if rest is not None and rest.is_torn and not growing:
        stop = segment_at(segments, rest.start)
        interval = rest.start, stop.end if stop else rest.start
        _between(log, store, segments, Kind.TORN_TAIL, interval, rest.why)
    return log


def begin_of(part: PartResult) -> int:
    """Where its first record begins, else what is not a record; OFFSET_MAX: it has neither."""
    if part.records is not None:
        return part.records[0]
    return OFFSET_MAX if part.rest is None else part.rest.start


def _between(
    log: LogResult,
    store: StoreFolder,
    segments: Sequence[SegmentFile],
    kind: Kind,
    interval: tuple[int, int],
    why: str,
) -> None:
    """One finding for each segment; gaps between segments are reported elsewhere."""
    start, end = interval
    for segment in dict.fromkeys(segments):
        low, high = max(start, segment.base), min(end, segment.end)
        if low < high:
            log.findings.add(gap_finding(store, segment, kind, low, high, why or "no record begins there"))


def _merge(log: LogResult, part: PartResult) -> None:
    log.findings.merge(part.findings)
    log.counts.merge(part.counts)
    log.fitting.update(part.fitting)
    log.numbers.update(part.numbers)
