"""LogFiles: the commit log of one store: finds the file that holds a physical offset.

Lists the folder at `refresh` and when an offset is not in a known file. Never waits for a writer. One thread.
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
        """List the files again. StoreUnreadable: also if the folder no longer exists."""
        self.segments = rolled_files(self.folder)
        if not self.segments and not os.path.isdir(self.folder):
            raise StoreUnreadable(f"{self.folder} does not exist any more")

    @property
    def first(self) -> int:
        """Physical offset of the first byte that is still stored."""
        return self.segments[0].base if self.segments else 0

    def window(self, physical: int) -> MappedFile | None:
        """The mapped file that holds this offset; None: no file does, perhaps because it was deleted."""
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
        """The bytes at this offset if they begin with that size, else none. Uses `pread`: one record needs
        no mapping."""
        segment = segment_at(self.segments, physical)
        if segment is None:
            self.refresh()
            segment = segment_at(self.segments, physical)
        if segment is None or not 0 < size <= segment.end - physical:
            return b""
        return _read(segment.path, physical - segment.base, size)

    def next_file(self, physical: int) -> int | None:
        """Where the first file past this offset begins."""
        return next_base(self.segments, physical)

    def begins(self, physical: int) -> bool:
        """Whether anything was written at this offset."""
        mapping = self.window(physical)
        if mapping is None:
            return False
        position = physical - mapping.base
        return walk(mapping.window, position, position + 1, base=mapping.base)[2] is not End.UNWRITTEN

    def newest(self) -> int:
        """Where the last file begins that is not empty."""
        bases = [segment.base for segment in reversed(self.segments)]
        return next((base for base in bases if self.begins(base)), self.first)

    def end(self, physical: int) -> int:
        """Where the whole records end that follow each other from `physical`, the offset of a record."""
        at = physical
        while (mapping := self.window(at)) is not None:
            _, position, why = walk(
                mapping.window,
                at - mapping.base,
                len(mapping.window),
                base=mapping.base,
                bytes_max=WALK_BYTES,
            )
            at = mapping.end if why is End.BLANK else mapping.base + position
            if why not in (End.BLANK, End.LIMIT):
                break
        return at


def _read(path: str, position: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be opened: {error.strerror}") from None
    try:
        return os.pread(fd, size, position) if os.pread(fd, 4, position) == size.to_bytes(4, "big") else b""
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
