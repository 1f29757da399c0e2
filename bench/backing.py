"""Reserves memory of a virtual machine's host before a sample needs it, and keeps files in the page cache.

A host provides a page when it is first touched and, with free page reporting, takes free pages back within
seconds. A page that the host must provide costs up to 15 us, otherwise 2 us: the sample would measure the
host, and servers that write most to new files would look slow. Some hosts also make a guest drop its page
cache.
"""

import mmap
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import CDLL, c_size_t, c_void_p
from pathlib import Path
from typing import Self

import numpy as np

from bench.watch import Watch

LIBC = CDLL(None)
RELEASED_BYTES = 16 << 20
AHEAD_BYTES = 128 << 20
"""Reserved in addition to the memory that was free before."""
LOOK_S = 0.01
POPULATE = 23
"""MADV_POPULATE_WRITE (Linux 5.14), which mmap does not name."""


class Reserve(Watch):
    """Reserved memory, at most half of the machine's, which is released while this context is entered: as
    much as the machine uses and slightly more, so that the host cannot take it. The rest remains
    reserved.
    """

    def __init__(self, size: int) -> None:
        super().__init__(LOOK_S)
        size = max(1, min(size, meminfo("MemAvailable") // 2) // RELEASED_BYTES) * RELEASED_BYTES
        self._mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self._gone = size
        """Everything below this position was released."""

    def fill(self) -> None:
        """Reserve the full size again; may take seconds."""
        if self._gone:
            self._mapping.madvise(POPULATE, 0, self._gone)
        self._gone = 0

    def __enter__(self) -> Self:
        self.fill()
        self._wanted = meminfo("MemFree") + AHEAD_BYTES
        self.look()
        return super().__enter__()

    def close(self) -> None:
        self._mapping.close()

    @property
    def left(self) -> int:
        """Bytes."""
        return len(self._mapping) - self._gone

    def look(self) -> None:
        """Release as much as the machine used."""
        while meminfo("MemFree") < self._wanted and self.left:
            self._mapping.madvise(mmap.MADV_DONTNEED, self._gone, RELEASED_BYTES)
            self._gone += RELEASED_BYTES


def meminfo(name: str) -> int:
    """Bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Read every file below a folder into the page cache and lock it there, if we may lock memory."""
    with ExitStack() as stack:
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_size:
                with path.open("rb") as file:
                    mapping = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                start = np.frombuffer(mapping, np.uint8).ctypes.data
                if LIBC.mlock(c_void_p(start), c_size_t(len(mapping))):
                    mapping[:: mmap.PAGESIZE]
        yield
