"""Exclusive access to a file that is not open or mapped elsewhere, here or in another process.

A write lease (fcntl F_SETLEASE) proves it: the kernel grants one only to the sole holder of a file. We try
twice, first while we map the file ourselves: on overlayfs a lease ignores mappings, so there no file counts
as exclusive. A process that opens a leased file blocks until the lease ends; the kernel's signal to us
(SIGURG) is ignored. Large files are processed in chunks with pauses, to leave CPU and journal to others. Any
thread; blocks.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator

from firearrow._native.store.files.segment import Segment

CHUNK_BYTES = 16 << 20
PAUSE_S = 0.001


@contextlib.contextmanager
def exclusive_file(path: str, size: int) -> Iterator[int | None]:
    """Yield a descriptor open for writing if the file is open nowhere else; None if it may be."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield file if _lease_sees_mappings(file, path, size) and _take_lease(file) else None
    finally:
        os.close(file)  # and the lease with it


def chunks(size: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, length) of each chunk, the last one first, and pause after each."""
    for begin in reversed(range(0, size, CHUNK_BYTES)):
        yield begin, min(CHUNK_BYTES, size - begin)
        time.sleep(PAUSE_S)


def delete_recycled(segment: Segment) -> None:
    """Delete a segment that its owner has detached, durably; processes that have it open can still read it.

    If no name is left, its blocks are freed chunk by chunk. OSError: the file still exists.
    """
    segment.close()
    with exclusive_file(segment.path, segment.size) as file:
        segment.discard(True)
        if file is None or os.fstat(file).st_nlink > 0:
            return
        with contextlib.suppress(OSError):  # closing then frees all blocks at once
            for begin, _ in chunks(segment.size):
                os.ftruncate(file, begin)


def _lease_sees_mappings(file: int, path: str, size: int) -> bool:
    """Whether the kernel refuses a lease while we map the file, so that a lease proves anything."""
    mapped = Segment(os.path.dirname(path), 0, size, os.path.basename(path))
    try:
        with memoryview(mapped):
            return not _take_lease(file)
    except OSError:
        return False
    finally:
        mapped.close()


def _take_lease(file: int) -> bool:
    """Whether the kernel grants a write lease; closing the file ends it."""
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    return True
