"""The lock of a stopped store, which a tool takes so that no broker starts on it while the tool works.

Creates nothing in the folder, except the lock file for a repair. One thread; POSIX record locks belong to the
process.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from firearrow._native.store.files.errors import StoreLocked, StoreUnreadable

BUSY = (errno.EACCES, errno.EAGAIN)


def check_folder(root: str) -> None:
    """Raises StoreUnreadable if the folder is not a store."""
    if not os.path.isdir(root):
        raise StoreUnreadable(f"{root} is not a folder: give the folder of a store")
    if not os.path.isdir(os.path.join(root, "commitlog")):
        raise StoreUnreadable(
            f"{root} is not a store, it has no commitlog folder: give the folder that contains commitlog"
        )


@contextlib.contextmanager
def held(root: str, *, live: bool = False, write: bool = False) -> Iterator[bool]:
    """Hold the store's lock; yields True if it is held.

    `live`: a broker may run; then the store is used without the lock. A folder that cannot be written is used
    without the lock as well, unless `write`. Raises StoreUnreadable, StoreLocked, OSError.
    """
    check_folder(root)
    path = os.path.join(root, "lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if write else 0), 0o644)
    except FileNotFoundError:  # no broker has used this store
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
            f"{root} is in use by a broker: stop it, or use --live if the command has it"
        ) from None
    return True
