"""Page cache and disk may differ after an unclean end of a store: sync or drop the cached pages.

A killed process leaves pages that were never synced: `fsync_store` writes them before anything relies on
them. A failed sync leaves pages that the kernel calls clean although the disk lacks them: `drop_page_cache`
makes the store read the disk again; a marker file informs the next open. Thread: the appender's; `mark_suspect`
and `fsync_store` any.
"""

import contextlib
import os
from collections.abc import Iterator

from firearrow._native.store.files.parallel import for_each_parallel
from firearrow._native.store.files.recycled_segment import NAME as RECYCLED
from firearrow._native.store.files.repair_log import RepairLog

MARK = "unsynced"
LOCK = "lock"


def mark_suspect(root: str) -> None:
    """Note that a sync in this store failed. A disk that refuses the marker must be remounted before the next
    open."""
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(root, MARK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def is_suspect(root: str) -> bool:
    return os.path.exists(os.path.join(root, MARK))


def drop_page_cache(root: str, log_folder: str, repair_log: RepairLog) -> None:
    """Drop the cached pages, so that reads see the disk. No file may be mapped yet. OSError."""
    repair_log.record(
        "a sync had failed: files are read again from the disk, queues and index are compared with the log"
    )
    repair_log.rebuild = True
    for file in _opened(root, log_folder):
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.unlink(os.path.join(root, MARK))


def fsync_store(root: str, log_folder: str) -> None:
    """fsync all files of the store. OSError: some may not be durable."""
    for_each_parallel(_sync, _paths(root, log_folder))


def _sync(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # deleted concurrently
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(file)
        finally:
            os.close(file)


def _paths(root: str, log_folder: str) -> list[str]:
    """All files of the store but its lock, which closing would release, and the recycled segment, which is
    not part of it yet."""
    return sorted(
        {*_files(root), *_files(log_folder)} - {os.path.join(root, name) for name in (LOCK, RECYCLED)}
    )


def _opened(root: str, log_folder: str) -> Iterator[int]:
    for path in _paths(root, log_folder):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # deleted concurrently
            continue
        try:
            yield file
        finally:
            os.close(file)


def _files(folder: str) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in names)
