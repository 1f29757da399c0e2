"""Sole: a file that nobody else has, open or mapped, in this process or another; only then may its bytes change.

The kernel tells by a lease to write, which it gives to the only holder of a file. It is asked twice, first beside a
mapping of our own: where files lie over others (overlayfs) a lease does not know of mappings, and nothing is sole.
Who opens a file under a lease waits for its end; the signal that the kernel sends then is one that nobody hears.
What is done to large files is done in pieces: a CPU and a journal have others to serve. Any thread, blocking.
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
    """The file, open for writing, as long as nobody else may have it; None: somebody has, or it cannot be told."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield file if _is_mapped(file, path, size) and _is_leased(file) else None
    finally:
        os.close(file)  # and the lease with it


def chunks(size: int) -> Iterator[tuple[int, int]]:
    """(begin, length) of each, the last one first, with a pause behind it."""
    for begin in reversed(range(0, size, CHUNK_BYTES)):
        yield begin, min(CHUNK_BYTES, size - begin)
        time.sleep(PAUSE_S)


def delete_recycled(segment: Segment) -> None:
    """Delete a file that its owner let go of, for good; whoever has it reads on. OSError: it still stands.

    Its blocks are freed in pieces, when it has no name left under which anybody may still come to it.
    """
    segment.close()
    with exclusive_file(segment.path, segment.size) as file:
        segment.discard(True)
        if file is None or os.fstat(file).st_nlink > 0:
            return
        with contextlib.suppress(OSError):  # then all are freed at once
            for begin, _ in chunks(segment.size):
                os.ftruncate(file, begin)


def _is_mapped(file: int, path: str, size: int) -> bool:
    """Whether the kernel refuses a lease while the file is mapped."""
    mapped = Segment(os.path.dirname(path), 0, size, os.path.basename(path))
    try:
        with memoryview(mapped):
            return not _is_leased(file)
    except OSError:
        return False
    finally:
        mapped.close()


def _is_leased(file: int) -> bool:
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    return True
