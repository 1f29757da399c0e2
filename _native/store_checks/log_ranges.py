"""Log ranges: splits the log into ranges and groups them into parts; every byte is in exactly one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from firearrow._native.offline.segment_files import SegmentFile

RANGE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class LogRange:
    """Physical offsets [start, stop) of one segment; stands for the records that begin there."""

    segment: SegmentFile
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def split_log(segments: Sequence[SegmentFile], end: int | None, size: int = RANGE_BYTES) -> list[LogRange]:
    """Ranges of `size` bytes at most, up to physical offset `end`; None: to the end of each segment."""
    found = []
    for segment in segments:
        stop = segment.end if end is None else min(segment.end, end)
        found += [LogRange(segment, at, min(at + size, stop)) for at in range(segment.base, stop, size)]
    return found


def group_ranges(ranges: Sequence[LogRange], count: int) -> list[list[LogRange]]:
    """Groups adjacent ranges into at most `count` parts of about the same size."""
    total = sum(map(len, ranges))
    found: list[list[LogRange]] = []
    passed = 0
    for each in ranges:
        number = passed * max(1, count) // max(1, total)
        if not found or number >= len(found):
            found.append([])
        found[-1].append(each)
        passed += len(each)
    return found


def from_offset(ranges: Sequence[LogRange], physical: int) -> list[LogRange]:
    """The parts of the ranges at or after `physical`."""
    return [
        LogRange(each.segment, max(each.start, physical), each.stop)
        for each in ranges
        if each.stop > physical
    ]
