"""Memory asked of a virtual machine's host before a sample instead of within it, and files that are read in the cache.

A host gives a page when it is touched first and, with free page reporting, takes free ones back within seconds. A page
that it must give costs up to 15 us where a page at hand costs 2: the sample would measure the host, and whoever writes
most to new files would pay for it. Some hosts also make a guest drop what it keeps of files.
"""

import mmap
import re
from pathlib import Path

PIECE_BYTES = 1 << 20


def back(size: int) -> None:
    """Touch so many bytes of memory, half of what there is at most, and free them: they are handed out next."""
    available_kb = int(re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())[1])  # type: ignore[index]
    size = min(size, available_kb * 1024 // 2)
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def cache(folder: Path) -> None:
    """Read every file below a folder once."""
    piece = bytearray(PIECE_BYTES)
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(piece):
                    pass
