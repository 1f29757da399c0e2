"""Memory that a virtual machine's host has given before a sample needs it, and files that are read in the cache.

A host gives a page when it is touched first and, with free page reporting, takes free ones back within seconds. A page
that it must give costs up to 15 us where a page at hand costs 2: the sample would measure the host, and whoever writes
most to new files would pay for it. Some hosts also make a guest drop what it keeps of files.
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
"""Of memory at hand beside what was free before."""
LOOK_S = 0.01
POPULATE = 23
"""MADV_POPULATE_WRITE (Linux 5.14), which mmap does not name."""


class Reserve(Watch):
    """So many bytes of memory, half of what there is at most, handed out while it is entered: as much as the machine
    takes meanwhile, a little ahead, so that the host has no time to take it. What is left stays for the next time."""

    def __init__(self, size: int) -> None:
        super().__init__(LOOK_S)
        size = max(1, min(size, meminfo("MemAvailable") // 2) // RELEASED_BYTES) * RELEASED_BYTES
        self._mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self._gone = size
        """Below it all was handed out."""

    def fill(self) -> None:
        """It is whole again; that may take seconds."""
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
        """Hand out as much as the machine took."""
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
    """Every file below a folder is in the cache and stays there; where we may not lock memory, it was read at least."""
    with ExitStack() as stack:
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_size:
                with path.open("rb") as file:
                    mapping = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                start = np.frombuffer(mapping, np.uint8).ctypes.data
                if LIBC.mlock(c_void_p(start), c_size_t(len(mapping))):
                    mapping[:: mmap.PAGESIZE]
        yield
