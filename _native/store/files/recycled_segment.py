"""Spare: the one file that waits to be a segment of the log again. To zero it costs less than to free its blocks, and
to write into them less than into new ones.

It was an expired segment. All of it is zeros, on the disk, before it may be a segment: recovery, Apache's above all,
would take its old records for new ones. It lies in the store's folder: in the log's, every name is a segment to Apache.
Order: out of the log, for good; nobody else has it; zeros; on the disk; offered; into the log, for good. One that a
killed process left may be at any of these steps and is deleted.

Owner: the log. Thread: `recycle` and `drop` one, `open_as` whichever makes segments.
"""

import contextlib
import os
import stat
from threading import Lock

from firearrow._native.store.files.directory_sync import fsync_dir
from firearrow._native.store.files.exclusive_file import chunks, exclusive_file
from firearrow._native.store.files.segment import Segment, zero_range

NAME = "spare"


class RecycledSegment:
    def __init__(self, root: str, file_bytes: int) -> None:
        self._root = root
        self._path = os.path.join(root, NAME)
        self._bytes = file_bytes
        self._naming = Lock()
        self.is_ready = False
        with contextlib.suppress(OSError):  # what stands there all the same is replaced, or in the way
            os.unlink(self._path)

    def recycle(self, segment: Segment) -> None:
        """Of a segment that its owner let go of, if it can be and there is none yet. What the segment's name still
        stands for then is the owner's to discard. OSError: the disk refuses."""
        segment.close()
        if not self._is_moved_here(segment.path):
            return
        try:
            fsync_dir(os.path.dirname(segment.path))
            fsync_dir(self._root)
            self.is_ready = self._is_zeroed()
        finally:
            if not self.is_ready:
                self._delete()

    def open_as(self, path: str) -> int:
        """Its file, open, under a segment's name, which is on the disk once that folder is; -1 if there is none."""
        with self._naming:
            offered, self.is_ready = self.is_ready, False
            if not offered or os.path.lexists(path):
                return -1
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                return -1
            if self._is_fit(os.fstat(file)) and self._is_moved_to(path):
                return file
            os.close(file)
            return -1

    def drop(self) -> None:
        """Its room is wanted, or the store closes. OSError."""
        with self._naming:
            self.is_ready = False
        self._delete()

    def _is_fit(self, about: os.stat_result) -> bool:
        """A file that has another name belongs to a backup, too."""
        return stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and about.st_size == self._bytes

    def _is_moved_here(self, path: str) -> bool:
        """Not while one is offered: `open_as` would find an old segment in its place."""
        with self._naming:
            try:
                if self.is_ready or not self._is_fit(os.lstat(path)):
                    return False
                os.rename(path, self._path)
            except OSError:  # it is gone, or the log lies on another file system
                return False
        return True

    def _is_moved_to(self, path: str) -> bool:
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

    def _is_zeroed(self) -> bool:
        with exclusive_file(self._path, self._bytes) as file:
            if file is None or not self._is_fit(os.fstat(file)):
                return False
            try:
                for begin, length in chunks(self._bytes):
                    zero_range(file, begin, length)
                os.fsync(file)
            except OSError:  # the file system has no such call, or the disk refuses
                return False
            return True

    def _delete(self) -> None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a folder there is somebody else's
            os.unlink(self._path)
