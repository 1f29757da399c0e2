"""Blocks: disk space behind the log's end, given before a sync begins, as much as may come while it runs.

Without them the file system gives new bytes their place when it brings them to the disk, and a write to the file waits
meanwhile: 60 ms at a time where 500 MB a second are written. They hold nothing: what is read of them is zeros, as of a
hole. A disk that has none to spare gives none.

Owner: the log. Thread: the one that syncs it.
"""

import os
from collections.abc import Iterable

from firearrow._native.store.files.segment import give_blocks

TIMES = 4
"""As many times what came since the last sync: the load may grow, and the next sync take longer."""
BYTES_MIN = 1 << 20
"""Less than that is brought to the disk in no time."""
CHUNK_BYTES = 32 << 20
"""The file takes no writes while a piece is given."""
ROOM_TIMES = 8
"""So many times as much must be free."""


class Preallocator:
    def __init__(self) -> None:
        self._until = 0

    def preallocate(self, segments: Iterable[tuple[int, int, int]], flushed: int, written: int) -> None:
        """`segments`: descriptor, first physical offset and the one behind, of those that are and will be written."""
        grown = written - flushed
        if grown < BYTES_MIN:
            return
        until = written + TIMES * grown
        for file, base, end in segments:
            at, stop = max(self._until, written, base), min(until, end)
            try:
                if at < stop and _free_bytes(file) < ROOM_TIMES * (stop - at):
                    return
                while at < stop:
                    size = min(CHUNK_BYTES, stop - at)
                    give_blocks(file, at - base, size)
                    self._until = at = at + size
            except OSError:
                return


def _free_bytes(file: int) -> int:
    about = os.fstatvfs(file)
    return about.f_bavail * about.f_frsize
