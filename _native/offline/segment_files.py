"""Segment files of a folder in order, each named by the position of its first byte.

Reads names and sizes only. A listing is a snapshot: a running broker adds and deletes files at any time.
"""

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.files.segment_files import FILE_NAME


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One file. `base`: position of its first byte; `length`: its size on disk in bytes."""

    path: str
    base: int
    length: int

    @property
    def end(self) -> int:
        return self.base + self.length


def rolled_files(folder: str) -> list[SegmentFile]:
    """The files in order, without empty ones; none if the folder does not exist. StoreUnreadable."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir():
                    continue
                if not FILE_NAME.fullmatch(entry.name):
                    raise StoreUnreadable(f"{entry.path} does not belong to a store: move it away")
                length = _length(entry)
                if length > 0:
                    found.append(SegmentFile(entry.path, int(entry.name), length))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnreadable(f"{folder} cannot be listed: {error.strerror}") from None
    return sorted(found, key=lambda segment: segment.base)


def _length(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def segment_at(segments: Sequence[SegmentFile], position: int) -> SegmentFile | None:
    """The file that holds the position."""
    number = bisect_right(segments, position, key=lambda segment: segment.base) - 1
    return segments[number] if number >= 0 and position < segments[number].end else None


def next_base(segments: Sequence[SegmentFile], position: int) -> int | None:
    """Where the first file past the position begins."""
    number = bisect_right(segments, position, key=lambda segment: segment.base)
    return segments[number].base if number < len(segments) else None


def missing(segments: Sequence[SegmentFile]) -> list[tuple[int, int]]:
    """Positions [start, end) between the first and the last file that are in no file."""
    pairs = pairwise(segments)
    return [(left.end, right.base) for left, right in pairs if left.end < right.base]
