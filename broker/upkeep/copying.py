"""Files copied as they are: holes stay holes, times stay. `sync_tree` brings them to the disk. Any thread, blocking."""

import errno
import os
from collections.abc import Callable

CHUNK_BYTES = 16 << 20
NO_COPY_RANGE = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
Advance = Callable[[int], None]


def copy_file(source: str, target: str, advance: Advance, *, end: int | None = None) -> int | None:
    """The bytes below `end` (None: all) into a new file as long as the source; how many. None: it is gone. OSError."""
    try:
        held = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        about = os.fstat(held)
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, about.st_mode & 0o777)
        try:
            stop = about.st_size if end is None else min(end, about.st_size)
            copied = _copy_data(held, made, stop, advance)
            os.ftruncate(made, about.st_size)
            os.utime(made, ns=(about.st_atime_ns, about.st_mtime_ns))
        finally:
            os.close(made)
        return copied
    finally:
        os.close(held)


def link_file(source: str, target: str) -> bool:
    """One file under two names; False if the file system does not allow it. OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in CANNOT_LINK:
            return False
        raise
    return True


def sync_path(path: str) -> None:
    """A file, or what a folder lists. OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(root: str) -> None:
    """All files and folders below. OSError."""
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
            if not count:  # the file became shorter meanwhile
                return copied
            at += count
            copied += count
            advance(count)
    return copied


def _seek(fd: int, at: int, how: int, stop: int) -> int:
    try:
        return min(os.lseek(fd, at, how), stop)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole behind it
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
