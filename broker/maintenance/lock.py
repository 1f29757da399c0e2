"""The store's lock, as a tool takes it: a stopped store is held so that no broker starts on it meanwhile.

Makes nothing in the folder. One thread; the lock is the process's, as POSIX record locks are.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from firearrow._native.store.files.errors import StoreLocked, StoreUnreadable

BUSY = (errno.EACCES, errno.EAGAIN)


def check_folder(root: str) -> None:
    """StoreUnreadable: there is no store."""
    if not os.path.isdir(root):
        raise StoreUnreadable(f"{root} is no folder: name the folder of a store")
    if not os.path.isdir(os.path.join(root, "commitlog")):
        raise StoreUnreadable(f"{root} is no store, it has no folder commitlog: name the folder above it")


@contextlib.contextmanager
def held(root: str, *, live: bool = False, write: bool = False) -> Iterator[bool]:
    """Keep brokers away; True if that is so. `live`: a broker may be there, then nothing is kept away.

    StoreUnreadable, StoreLocked, OSError. A folder that cannot be written is read without a lock unless `write`.
    """
    check_folder(root)
    path = os.path.join(root, "lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if write else 0), 0o644)
    except FileNotFoundError:  # each broker makes it first
        yield False
        return
    except OSError as error:
        if write or error.errno not in (errno.EROFS, errno.EACCES):
            raise
        yield False
        return
    try:
        yield _take(fd, root, live)
    finally:
        os.close(fd)


def _take(fd: int, root: str, live: bool) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
    except OSError as error:
        if error.errno not in BUSY:
            raise
        if live:
            return False
        raise StoreLocked(
            f"{root} is used by a broker: stop it first, or use --live where there is one"
        ) from None
    return True
