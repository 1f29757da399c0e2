"""ConfirmOffsetFile: `confirmOffset`, up to where readers could see the log of a store whose readers wait for copies.

i64, little-endian, in a shared mapping: what a killed process noted is kept. After a power cut it may be an older one:
then readers wait for what they saw already, until it is confirmed again.
"""

import contextlib
import mmap
import os
import struct

from firearrow._native.base.durable_files import fsync_dir

FILE_NAME = "confirmOffset"
OFFSET = struct.Struct("<q")


class ConfirmOffsetFile:
    def __init__(self, root: str, end: int) -> None:
        """`end`: of the log. OSError."""
        path = os.path.join(root, FILE_NAME)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            noted = os.pread(descriptor, OFFSET.size + 1, 0)
            self.at_open = end
            """What was noted, at most `end`."""
            if len(noted) == OFFSET.size:
                self.at_open = min(max(OFFSET.unpack(noted)[0], 0), end)
            # not in the mapping: the disk may be full; and first: zeros of a longer file would hide the whole log
            os.pwrite(descriptor, OFFSET.pack(self.at_open), 0)
            os.ftruncate(descriptor, OFFSET.size)
            os.fsync(descriptor)
            self._page = mmap.mmap(descriptor, OFFSET.size)
            self._synced = self._page[:]
        finally:
            os.close(descriptor)
        fsync_dir(root)

    def note(self, offset: int) -> None:
        OFFSET.pack_into(self._page, 0, offset)  # one store of 8 bytes: a kill leaves the old or the new one

    def sync(self) -> None:
        """Another thread may call it. OSError."""
        noted = self._page[:]
        if noted != self._synced:
            self._page.flush()
            self._synced = noted

    def close(self) -> None:
        self._page.close()


def remove_confirm_offset(root: str) -> None:
    """Readers wait for no copies from now on. OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(root, FILE_NAME))
        fsync_dir(root)  # else it may be there again, and hide what readers see from now on
