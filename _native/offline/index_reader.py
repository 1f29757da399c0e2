"""The key index of a store, asked for a few keys: what each file tells of where they may be.

It knows hashes, so what it tells is to be compared with the record. A file tells of the places between its first and
its last entry; what no file tells of, because there is none or it is damaged, is not known. One thread.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from mmap import mmap

from firearrow._native.checks.index_files import covered_by, find_keys, head_of, slots_of
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.segment_files import SegmentFile
from firearrow._native.store.files.errors import StoreUnreadable

FILE_NAME = re.compile(r"[0-9]{17}")
Stretch = tuple[int, int]
"""Places of the log, or offsets of a queue: [start, end)."""


@dataclass(frozen=True, slots=True)
class IndexHits:
    """By one file. `entries`: hash and place of those that were asked for; of other places in `stretch` it says that no
    such key is there."""

    path: str
    stretch: Stretch
    entries: list[tuple[int, int]]


class IndexReader:
    """`folder` is the store's `index`. `damaged` is told, in a sentence, of files that cannot be read or believed."""

    def __init__(self, folder: str, damaged: Callable[[str], None]) -> None:
        self._folder = folder
        self._damaged = damaged

    def lookup(self, hashes: Collection[int], within: Stretch, *, most: int) -> list[IndexHits] | None:
        """Of records in `within`; None: more than `most` entries."""
        maps, found, left = MappedFiles(1), [], most
        for path in self._paths():
            try:
                mapping = maps.get(SegmentFile(path, 0, 0))
                if mapping is None:
                    raise ValueError("it is empty")
                told = _hits_of(path, mapping.window, hashes, within, left)
            except StoreUnreadable as error:
                self._damaged(str(error))
                continue
            except ValueError as error:
                self._damaged(f"{path} is damaged: {error}")
                continue
            left -= len(told.entries)
            if left < 0:
                return None
            found.append(told)
        return found

    def _paths(self) -> list[str]:
        """In the order in which they were made."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError as error:
            self._damaged(f"{self._folder} cannot be listed: {error.strerror}")
            return []
        return [os.path.join(self._folder, name) for name in names if FILE_NAME.fullmatch(name)]


def _hits_of(path: str, window: mmap, hashes: Iterable[int], within: Stretch, most: int) -> IndexHits:
    """Keys of the records at either end may be in the neighbouring files, so of those it does not tell. ValueError: it
    is damaged."""
    head = head_of(window)
    if head.next_entry < 2 or head.begin_place >= within[1] or head.end_place < within[0]:
        return IndexHits(path, (0, 0), [])
    slots = slots_of(window)
    if not slots:
        raise ValueError("its slots cannot be told from its entries")
    begin, end = covered_by(window, slots)
    entries = find_keys(window, slots, hashes, place_from=within[0], place_to=within[1], most=most)
    return IndexHits(path, (begin + 1, end), entries)


def outside(stretches: Iterable[Stretch], within: Stretch) -> list[Stretch]:
    """What of `within` is in none of them, ascending."""
    found, at = [], within[0]
    for start, end in sorted(each for each in stretches if each[0] < each[1]):
        if start > at:
            found.append((at, min(start, within[1])))
        at = max(at, end)
    return [each for each in [*found, (at, within[1])] if each[0] < each[1]]
