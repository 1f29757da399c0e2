"""IndexReader: looks up a few keys in the key index of a store: which physical offsets may hold them.

The index holds hashes, so callers compare each hit with its record. A file covers the physical offsets
between its first and last entry; offsets that no undamaged file covers are unknown. One thread.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from mmap import mmap

from firearrow._native.offline.index_file import covered_by, find_keys, head_of, slots_of
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.segment_files import SegmentFile
from firearrow._native.store.files.errors import StoreUnreadable

FILE_NAME = re.compile(r"[0-9]{17}")
Interval = tuple[int, int]
"""[start, end): physical offsets of the log, or offsets of a queue."""


@dataclass(frozen=True, slots=True)
class IndexHits:
    """The hits in one index file. `entries`: hash and physical offset; no other offset in `covered` has
    these keys."""

    path: str
    covered: Interval
    entries: list[tuple[int, int]]


class IndexReader:
    """`folder` is the store's `index`. `damaged` is called with a sentence for each unreadable or damaged
    file."""

    def __init__(self, folder: str, damaged: Callable[[str], None]) -> None:
        self._folder = folder
        self._damaged = damaged

    def lookup(self, hashes: Collection[int], within: Interval, *, hits_max: int) -> list[IndexHits] | None:
        """The hits among records in `within`; None: more than `hits_max`."""
        maps, found, left = MappedFiles(1), [], hits_max
        for path in self._paths():
            try:
                mapping = maps.get(SegmentFile(path, 0, 0))
                if mapping is None:
                    raise ValueError("it is empty")
                hits = _hits_of(path, mapping.window, hashes, within, left)
            except StoreUnreadable as error:
                self._damaged(str(error))
                continue
            except ValueError as error:
                self._damaged(f"{path} is damaged: {error}")
                continue
            left -= len(hits.entries)
            if left < 0:
                return None
            found.append(hits)
        return found

    def _paths(self) -> list[str]:
        """The index files, oldest first."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError as error:
            self._damaged(f"{self._folder} cannot be listed: {error.strerror}")
            return []
        return [os.path.join(self._folder, name) for name in names if FILE_NAME.fullmatch(name)]


def _hits_of(path: str, window: mmap, hashes: Iterable[int], within: Interval, hits_max: int) -> IndexHits:
    """The first and last record are not covered: some of their keys may be in the neighbouring files.

    ValueError: the file is damaged.
    """
    head = head_of(window)
    if head.next_entry < 2 or head.begin_offset >= within[1] or head.end_offset < within[0]:
        return IndexHits(path, (0, 0), [])
    slots = slots_of(window)
    if not slots:
        raise ValueError("the number of its slots cannot be determined")
    begin, end = covered_by(window, slots)
    entries = find_keys(window, slots, hashes, offset_from=within[0], offset_to=within[1], most=hits_max)
    return IndexHits(path, (begin + 1, end), entries)


def outside(intervals: Iterable[Interval], within: Interval) -> list[Interval]:
    """The parts of `within` that no interval covers, ascending."""
    found, at = [], within[0]
    for start, end in sorted(each for each in intervals if each[0] < each[1]):
        if start > at:
            found.append((at, min(start, within[1])))
        at = max(at, end)
    return [each for each in [*found, (at, within[1])] if each[0] < each[1]]
