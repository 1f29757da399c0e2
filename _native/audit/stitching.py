"""Parts of the log put together again: nothing between them may be lost or counted twice. Driver only."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firearrow._native.audit.findings import Findings, Kind
from firearrow._native.audit.log import PartSeen, Rest
from firearrow._native.audit.ranges import LogRange, from_place
from firearrow._native.audit.store import AuditedStore
from firearrow._native.audit.tallies import Tallies
from firearrow._native.audit.wording import between
from firearrow._native.files.rolled import Segment, segment_at

Again = Callable[[Sequence[LogRange]], PartSeen]
"""Looks at a part whose first record begins where its first range does."""


@dataclass(slots=True)
class LogSeen:
    """`end`: behind the last record, -1 if there is none."""

    end: int = -1
    findings: Findings = field(default_factory=Findings)
    tallies: Tallies = field(default_factory=Tallies)
    fitting: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)


def stitched(
    store: AuditedStore,
    parts: Sequence[Sequence[LogRange]],
    seen: Sequence[PartSeen],
    again: Again,
    *,
    growing: bool,
) -> LogSeen:
    """`seen` in the order of `parts`, which lie one behind the other."""
    log = LogSeen()
    segments = [each.segment for part in parts for each in part]
    rest, rest_start, why = Rest.NOTHING, -1, ""
    for ranges, part in zip(parts, seen, strict=True):
        if 0 <= (part.start if part.start >= 0 else part.rest_start) < log.end:
            # A record reaches into this part, farther than to what looked like the first one in it.
            left = from_place(ranges, log.end)
            part = again(left) if left else PartSeen()  # noqa: PLW2901 (it takes the other's place)
        if part.start >= 0:
            start = rest_start if rest is not Rest.NOTHING else max(log.end, segments[0].base)
            if start < part.start:
                _between(
                    log,
                    store,
                    segments,
                    Kind.HOLE if rest is Rest.UNWRITTEN else Kind.TORN,
                    (start, part.start),
                    why,
                )
            log.end, rest, rest_start, why = part.end, part.rest, part.rest_start, part.rest_why
        elif rest is Rest.NOTHING:
            rest, rest_start, why = part.rest, part.rest_start, part.rest_why
        elif rest is Rest.UNWRITTEN and part.rest is Rest.TORN:
            rest, why = part.rest, part.rest_why
        _merge(log, part)
    if rest is Rest.TORN and not growing:
        stop = segment_at(segments, rest_start)
        _between(log, store, segments, Kind.TORN_TAIL, (rest_start, stop.end if stop else rest_start), why)
    return log


def _between(
    log: LogSeen,
    store: AuditedStore,
    segments: Sequence[Segment],
    kind: Kind,
    places: tuple[int, int],
    why: str,
) -> None:
    """Of each segment its part: a place between two segments is none of ours."""
    start, end = places
    for segment in dict.fromkeys(segments):
        low, high = max(start, segment.base), min(end, segment.end)
        if low < high:
            log.findings.add(between(store, segment, kind, low, high, why or "no record begins there"))


def _merge(log: LogSeen, part: PartSeen) -> None:
    log.findings.merge(part.findings)
    log.tallies.merge(part.tallies)
    log.fitting.update(part.fitting)
    log.numbers.update(part.numbers)
