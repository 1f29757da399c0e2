"""The commit log of one store: which file has a physical offset.

Listed when asked for what is not known yet, and at `refresh`. Never waits for a writer. One thread.
"""

import os

from firearrow._native.columnar.record_spans import End, walk
from firearrow._native.offline.mapped_files import MappedFile, MappedFiles
from firearrow._native.offline.segment_files import SegmentFile, next_base, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreUnreadable

WALK_BYTES = 16 << 20


class LogFiles:
    """`folder` is the store's `commitlog`."""

    def __init__(self, folder: str, mappings: MappedFiles) -> None:
        self.folder = folder
        self._mappings = mappings
        self.segments: list[SegmentFile] = []
        self.refresh()

    def refresh(self) -> None:
        """Look which files there are now. StoreUnreadable: also if the folder is gone."""
        self.segments = rolled_files(self.folder)
        if not self.segments and not os.path.isdir(self.folder):
            raise StoreUnreadable(f"{self.folder} is not there any more")

    @property
    def first(self) -> int:
        """Physical offset of the first byte that is still there."""
        return self.segments[0].base if self.segments else 0

    def window(self, physical: int) -> MappedFile | None:
        """The mapped file that has this offset; None: it is not there, maybe not any more."""
        found = self._window(physical)
        if found is None and physical >= self.first:
            self.refresh()
            found = self._window(physical)
        return found

    def _window(self, physical: int) -> MappedFile | None:
        segment = segment_at(self.segments, physical)
        mapping = None if segment is None else self._mappings.get(segment)
        return mapping if mapping is not None and physical < mapping.end else None

    def record(self, physical: int, size: int) -> bytes:
        """The bytes there, if they begin as a record of that size; else none. Read, not mapped: it is only one."""
        segment = segment_at(self.segments, physical)
        if segment is None:
            self.refresh()
            segment = segment_at(self.segments, physical)
        if segment is None or not 0 < size <= segment.end - physical:
            return b""
        return _read(segment.path, physical - segment.base, size)

    def next_file(self, physical: int) -> int | None:
        """Where the first file behind this offset begins."""
        return next_base(self.segments, physical)

    def begins(self, physical: int) -> bool:
        """Whether something is written there."""
        mapping = self.window(physical)
        if mapping is None:
            return False
        place = physical - mapping.base
        return walk(mapping.window, place, place + 1, base=mapping.base)[2] is not End.UNWRITTEN

    def newest(self) -> int:
        """Where the last file begins that has something in it."""
        bases = [segment.base for segment in reversed(self.segments)]
        return next((base for base in bases if self.begins(base)), self.first)

    def end(self, physical: int) -> int:
        """Where the row of whole records ends that begins at `physical`, a record's place."""
        at = physical
        while (mapping := self.window(at)) is not None:
            _, place, why = walk(
                mapping.window,
                at - mapping.base,
                len(mapping.window),
                base=mapping.base,
                bytes_max=WALK_BYTES,
            )
            at = mapping.end if why is End.BLANK else mapping.base + place
            if why not in (End.BLANK, End.LIMIT):
                break
        return at


def _read(path: str, place: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be opened: {error.strerror}") from None
    try:
        return os.pread(fd, size, place) if os.pread(fd, 4, place) == size.to_bytes(4, "big") else b""
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
