"""RecycledSegment: an expired segment file, zeroed and kept to become the log's next segment.

Zeroing it costs less than freeing its blocks, and writing into them costs less than into new ones. It must be
all zeros on the disk first: recovery, Apache's above all, would take its old records for new ones. It is kept
in the store's folder: in the log's folder Apache takes every name for a segment. Order: move it out of the
log, durably; check that no other process has it open; zero it; sync; offer it; move it into the log, durably. A file
left by a killed process may be at any of these steps and is deleted.

Owner: the log. Threads: one for `recycle` and `drop`, `open_as` whichever makes segments.
"""

import contextlib
import os
import stat
from threading import Lock

from firearrow._native.base.durable_files import fsync_dir
from firearrow._native.store.files.exclusive_file import chunks, exclusive_file
from firearrow._native.store.files.segment import Segment, zero_range

NAME = "spare"


class RecycledSegment:
    def __init__(self, root: str, file_bytes: int) -> None:
        self._root = root
        self._path = os.path.join(root, NAME)
        self._bytes = file_bytes
        self._name_lock = Lock()
        self.is_ready = False
        with contextlib.suppress(OSError):  # if it stays, it is replaced later or blocks recycling
            os.unlink(self._path)

    def recycle(self, segment: Segment) -> None:
        """Recycle a detached segment if it is possible and none is waiting yet. If its file is still there
        afterwards, the owner has to discard it. OSError: the disk failed."""
        segment.close()
        if not self._take_file(segment.path):
            return
        try:
            fsync_dir(os.path.dirname(segment.path))
            fsync_dir(self._root)
            self.is_ready = self._zero()
        finally:
            if not self.is_ready:
                self._delete()

    def open_as(self, path: str) -> int:
        """Rename the file to a segment's path and return its open descriptor; -1 if none is ready. The caller
        syncs the folder."""
        with self._name_lock:
            was_ready, self.is_ready = self.is_ready, False
            if not was_ready or os.path.lexists(path):
                return -1
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                return -1
            if self._is_usable(os.fstat(file)) and self._move_to(path):
                return file
            os.close(file)
            return -1

    def drop(self) -> None:
        """Delete it: its disk space is needed, or the store closes. OSError."""
        with self._name_lock:
            self.is_ready = False
        self._delete()

    def _is_usable(self, stats: os.stat_result) -> bool:
        """Whether it is a regular file of the right size; a second hard link means that a backup has it,
        too."""
        return stat.S_ISREG(stats.st_mode) and stats.st_nlink == 1 and stats.st_size == self._bytes

    def _take_file(self, path: str) -> bool:
        """Take the file, unless one is ready: `open_as` would find an old segment instead."""
        with self._name_lock:
            try:
                if self.is_ready or not self._is_usable(os.lstat(path)):
                    return False
                os.rename(path, self._path)
            except OSError:  # it no longer exists, or the log is on another file system
                return False
        return True

    def _move_to(self, path: str) -> bool:
        try:
            os.rename(self._path, path)
        except OSError:
            return False
        try:
            fsync_dir(self._root)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            return False
        return True

    def _zero(self) -> bool:
        with exclusive_file(self._path, self._bytes) as file:
            if file is None or not self._is_usable(os.fstat(file)):
                return False
            try:
                for begin, length in chunks(self._bytes):
                    zero_range(file, begin, length)
                os.fsync(file)
            except OSError:  # the file system does not support it, or the disk failed
                return False
            return True

    def _delete(self) -> None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a folder of that name is not ours
            os.unlink(self._path)
