"""StoreFolder: one store's folder, held by one broker. Lock, abort mark, and whether the folder is a store at all."""

import errno
import fcntl
import os

from firearrow._native.store.files.directory_sync import fsync_dir, make_dirs
from firearrow._native.store.files.errors import StoreForeign, StoreLocked

KNOWN = frozenset(
    (
        "commitlog",
        "consumequeue",
        "index",
        "config",
        "checkpoint",
        "abort",
        "abort.bak",
        "lock",
        "timerlog",
        "timerwheel",
    )
)
RUN_PREFIX = "firearrow-"
RUN_CHARS = len(RUN_PREFIX) + 16
_HELD: set[tuple[int, int]] = set()
"""Folders that this process holds: a record lock does not keep a process from locking twice."""


class StoreFolder:
    """Locked from construction to `unlock`. The lock is Java's (byte 0 of `lock`): it and we exclude each other."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.run = ""
        make_dirs(root)
        self._check()
        self._check_own()
        self._lock = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take_lock()
        except BaseException:
            os.close(self._lock)
            raise
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"lock", 0)

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    @property
    def was_killed(self) -> bool:
        return os.path.exists(self.path("abort"))

    def mark_running(self) -> None:
        """`abort` stands there while a broker runs. It holds `run`, the name of the run of ours that was not stopped
        cleanly and still goes on: Apache's broker writes another word, or takes the mark away."""
        unfinished = self._unfinished_run()
        if unfinished is not None:  # it stands there, and is never half written
            self.run = unfinished
        else:
            self.run = RUN_PREFIX + os.urandom(8).hex()
            with open(self.path("abort"), "w") as file:
                file.write(self.run)
                file.flush()
                os.fsync(file.fileno())
        fsync_dir(self.root)

    def _unfinished_run(self) -> str | None:
        try:
            with open(self.path("abort"), encoding="ascii", errors="replace") as file:
                word = file.read(RUN_CHARS + 1)
        except FileNotFoundError:
            return None
        return word if word.startswith(RUN_PREFIX) and len(word) == RUN_CHARS and word.isascii() else None

    def mark_stopped(self) -> None:
        os.unlink(self.path("abort"))

    def unlock(self) -> None:
        if self._lock >= 0:
            _HELD.discard(self._identity)
            os.close(self._lock)
            self._lock = -1

    def _check(self) -> None:
        names = set(os.listdir(self.root))
        if names and not names & KNOWN:
            raise StoreForeign(
                f"{self.root} is not empty and no store: name an empty folder or a store with --store"
            )

    def _check_own(self) -> None:
        """Before the file is opened: closing any descriptor of it would give up the lock that this process holds."""
        try:
            about = os.stat(self.path("lock"))
        except FileNotFoundError:
            return
        if (about.st_dev, about.st_ino) in _HELD:
            raise self._locked()

    def _locked(self) -> StoreLocked:
        return StoreLocked(
            f"{self.root} is used by another broker: stop it, or name another folder with --store"
        )

    def _take_lock(self) -> None:
        about = os.fstat(self._lock)
        self._identity = (about.st_dev, about.st_ino)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise self._locked() from None
            raise
        _HELD.add(self._identity)
