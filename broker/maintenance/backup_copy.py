"""Copies files with their holes and times, and the progress files of a store so that they agree.

`copy_progress` copies config, timer, checkpoint and journal. A running broker replaces its config files every
few seconds, after it has deleted the journal, so that a copy could lack both: it is repeated until nothing
changed during the copy. `sync_tree` makes copies durable. Writes only into the target. Blocking; one thread.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.files.recycled_segment import NAME as SPARE
from firearrow._native.store.log.journal_entries import end_of
from firearrow.broker.maintenance.backup_manifest import NAME, Stamp, stamp_of
from firearrow.broker.replication.log.pair_identity import forget_promotion

CHUNK_BYTES = 16 << 20
NO_COPY_RANGE = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
Advance = Callable[[int], None]


def copy_file(source: str, target: str, advance: Advance, *, end: int | None = None) -> int | None:
    """Copy the bytes before `end` (None: all) into a new file of the source's size; return how many were
    copied.

    None: the source does not exist. Raises OSError.
    """
    try:
        source_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        about = os.fstat(source_fd)
        target_fd = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, about.st_mode & 0o777
        )
        try:
            stop = about.st_size if end is None else min(end, about.st_size)
            copied = _copy_data(source_fd, target_fd, stop, advance)
            os.ftruncate(target_fd, about.st_size)
            os.utime(target_fd, ns=(about.st_atime_ns, about.st_mtime_ns))
        finally:
            os.close(target_fd)
        return copied
    finally:
        os.close(source_fd)


def link_file(source: str, target: str) -> bool:
    """Make a hard link; False if the file system does not allow it. Raises OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in CANNOT_LINK:
            return False
        raise
    return True


def sync_path(path: str) -> None:
    """Sync a file, or the names in a folder. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(root: str) -> None:
    """Sync all files and folders of a tree. Raises OSError."""
    for folder, _, names in os.walk(root):
        for name in names:
            sync_path(os.path.join(folder, name))
        sync_path(folder)


def _copy_data(source: int, target: int, stop: int, advance: Advance) -> int:
    at = copied = 0
    while (at := _seek(source, at, os.SEEK_DATA, stop)) < stop:
        until = _seek(source, at, os.SEEK_HOLE, stop)
        while at < until:
            count = _copy_some(source, target, at, min(until - at, CHUNK_BYTES))
            if not count:  # the file was truncated during the copy
                return copied
            at += count
            copied += count
            advance(count)
    return copied


def _seek(fd: int, at: int, how: int, stop: int) -> int:
    try:
        return min(os.lseek(fd, at, how), stop)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole follows
            return stop
        raise


def _copy_some(source: int, target: int, at: int, count: int) -> int:
    try:
        return os.copy_file_range(source, target, count, at, at)
    except OSError as error:
        if error.errno not in NO_COPY_RANGE:
            raise
    data = os.pread(source, count, at)
    done = 0
    while done < len(data):
        done += os.pwrite(target, data[done:], at + done)
    return done


TRIES = 50
FOLDERS = ("config", "timerlog", "journal")
QUEUES = ("consumequeue", "batchconsumequeue", "index")
NOT_PROGRESS = frozenset(("commitlog", *QUEUES, "lock", "history", SPARE, NAME, *FOLDERS))
WRITTEN_IN_PLACE = frozenset(("timercheck", "timermetrics"))
"""Files that are written in place all the time, and are valid at every moment."""


def copy_progress(source: Path, target: Path, *, live: bool) -> int:
    """Copy everything except log, queues and index; return the bytes.

    Raises StoreUnreadable if it keeps changing.
    """
    for _ in range(TRIES):
        stamps = _stamps(source)
        copied = _copy_all(source, target)
        if not live or stamps == _stamps(source):
            if live:
                _end_journals(target / "journal")
            forget_promotion(target / "config")  # a slave may begin with the copy
            return copied
        for name in FOLDERS:
            shutil.rmtree(target / name, ignore_errors=True)
        for path in target.iterdir():
            if path.name != NAME:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    raise StoreUnreadable(f"{source / 'config'} changed during each of {TRIES} copies: try again")


def copy_tree(source: Path, target: Path) -> int:
    """Copy the regular files of a tree; return the bytes. Files deleted during the copy are left out.

    Raises OSError.
    """
    copied = 0
    for folder, folders, names in os.walk(source):
        here = target / os.path.relpath(folder, source)
        here.mkdir(parents=True, exist_ok=True)
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                copied += copy_file(path, str(here / name), lambda _: None) or 0
    return copied


def _copy_all(source: Path, target: Path) -> int:
    """Copy config with the timer's checkpoint first, then the wheel, then the files that both refer to."""
    copied = copy_tree(source / "config", target / "config") if (source / "config").is_dir() else 0
    for path in sorted(source.iterdir(), key=lambda each: each.name != "timerwheel"):
        if path.name in NOT_PROGRESS or path.name.startswith("removed-") or path.name == "damaged":
            continue
        if path.is_dir():
            copied += copy_tree(path, target / path.name)
        elif path.is_file():
            copied += copy_file(str(path), str(target / path.name), lambda _: None) or 0
    for name in FOLDERS[1:]:
        if (source / name).is_dir():
            copied += copy_tree(source / name, target / name)
    return copied


def _stamps(source: Path) -> dict[str, Stamp | None]:
    """Stamps of the config files, the names of the journal files, and which files a compaction has made: they show what
    changed during the copy."""
    found: dict[str, Stamp | None] = {"abort": stamp_of(str(source / "abort"))}
    config, journal = source / "config", source / "journal"
    for path in config.iterdir() if config.is_dir() else ():
        if path.name not in WRITTEN_IN_PLACE and not path.name.endswith(".tmp"):
            found[path.name] = stamp_of(str(path))
    for path in journal.iterdir() if journal.is_dir() else ():
        found[f"journal/{path.name}"] = None
    for folder, _, names in os.walk(source / "compaction"):
        for name in names:
            stamp = stamp_of(os.path.join(folder, name))
            found[os.path.join(folder, name)] = None if stamp is None else (*stamp[:2], 0, 0)
    return found


def _end_journals(folder: Path) -> None:
    """Clear each journal file after its last valid entry: the next one may be half written."""
    for path in folder.iterdir() if folder.is_dir() else ():
        data = path.read_bytes()
        end = end_of(data)
        with path.open("r+b") as file:
            file.truncate(end)
            file.truncate(len(data))
