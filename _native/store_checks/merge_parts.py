"""Merges the results of the parts of the log: nothing between them is lost or counted twice. Driver."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firearrow._native.offline.segment_files import SegmentFile, segment_at
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.findings import Findings, Kind
from firearrow._native.store_checks.log_part import PartEnd, PartResult, gap_finding
from firearrow._native.store_checks.log_ranges import LogRange, from_offset
from firearrow._native.store_checks.top_counts import LogCounts

Again = Callable[[Sequence[LogRange]], PartResult]
"""Checks a part again; its first record begins at the start of its first range."""


@dataclass(slots=True)
class LogResult:
    """`end`: of the last record, -1 if there is none."""

    end: int = -1
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
    rest, rest_start, why = PartEnd.NOTHING, -1, ""
    for ranges, part in zip(parts, seen, strict=True):
        if 0 <= (part.start if part.start >= 0 else part.rest_start) < log.end:
            # A record reaches into this part, past what looked like its first record.
            left = from_offset(ranges, log.end)
            part = again(left) if left else PartResult()  # noqa: PLW2901 (it takes the other's place)
        if part.start >= 0:
            start = rest_start if rest is not PartEnd.NOTHING else max(log.end, segments[0].base)
            if start < part.start:
                _between(
                    log,
                    store,
                    segments,
                    Kind.HOLE if rest is PartEnd.UNWRITTEN else Kind.TORN,
                    (start, part.start),
                    why,
                )
            log.end, rest, rest_start, why = part.end, part.rest, part.rest_start, part.rest_why
        elif rest is PartEnd.NOTHING:
            rest, rest_start, why = part.rest, part.rest_start, part.rest_why
        elif rest is PartEnd.UNWRITTEN and part.rest is PartEnd.TORN:
            rest, why = part.rest, part.rest_why
        _merge(log, part)
    if rest is PartEnd.TORN and not growing:
        stop = segment_at(segments, rest_start)
        _between(log, store, segments, Kind.TORN_TAIL, (rest_start, stop.end if stop else rest_start), why)
    return log


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
