"""PageCache: what the kernel holds of a store's files may not be what the disk holds, after an end that was not clean.

A killed process leaves pages that no sync has seen: `fsync_store` brings them to the disk before anything says that they
are there. A sync that failed leaves pages that the kernel calls clean though the disk lacks them: `drop_page_cache` lets what
the disk has be read. A mark in the folder tells the next open. Thread: the appender's; `mark_suspect` and `fsync_store` any.
"""

import contextlib
import os
from collections.abc import Iterator

from firearrow._native.store.files.parallel import for_each_parallel
from firearrow._native.store.files.recycled_segment import NAME as SPARE
from firearrow._native.store.files.repair_log import RepairLog

MARK = "unsynced"
LOCK = "lock"


def mark_suspect(root: str) -> None:
    """A sync of a file in this folder failed. A disk that takes no mark is mounted anew before the next open."""
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(root, MARK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def is_suspect(root: str) -> bool:
    return os.path.exists(os.path.join(root, MARK))


def drop_page_cache(root: str, log_folder: str, repair_log: RepairLog) -> None:
    """What is read from now on is what the disk has. Nothing of it is mapped yet. OSError."""
    repair_log.record(
        "a sync had failed: what the disk holds is read, queues and index are compared with the log"
    )
    repair_log.rebuild = True
    for file in _opened(root, log_folder):
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.unlink(os.path.join(root, MARK))


def fsync_store(root: str, log_folder: str) -> None:
    """All is on the disk as it is read. OSError: in doubt."""
    for_each_parallel(_sync, _paths(root, log_folder))


def _sync(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # taken away meanwhile
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(file)
        finally:
            os.close(file)


def _paths(root: str, log_folder: str) -> list[str]:
    """Each file of the store; not its lock, which would be given up when it is closed, nor the spare, which is no
    part of it yet."""
    return sorted({*_files(root), *_files(log_folder)} - {os.path.join(root, name) for name in (LOCK, SPARE)})


def _opened(root: str, log_folder: str) -> Iterator[int]:
    for path in _paths(root, log_folder):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # taken away meanwhile
            continue
        try:
            yield file
        finally:
            os.close(file)


def _files(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names)
