"""StoreFolder: the folder of a store, locked by one broker, and its `abort` file."""

import contextlib
import errno
import fcntl
import os

from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow._native.store.files.errors import StoreForeign, StoreLocked

KNOWN = frozenset(
    (
        "commitlog",
        "consumequeue",
        "batchconsumequeue",
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
"""Lock files that this process has locked: a POSIX record lock does not stop a process from locking twice."""


class StoreFolder:
    """Locked from construction to `unlock`. Apache's broker uses the same lock (byte 0 of `lock`)."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.run = ""
        make_dirs(root)
        self._check()
        self._check_own()
        self._lock = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._identity = self._take_lock()
        except BaseException:
            os.close(self._lock)
            raise
        if os.pread(self._lock, 5, 0) != b"lock":
            with contextlib.suppress(OSError):  # a full disk: the text means nothing
                os.ftruncate(self._lock, 0)
                os.pwrite(self._lock, b"lock", 0)

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    @property
    def was_killed(self) -> bool:
        return os.path.exists(self.path("abort"))

    def mark_running(self) -> None:
        """Create `abort`, which exists while a broker runs and contains `run`, the name of our run. A run
        that did not stop cleanly continues under its name, unless Apache's broker has rewritten or deleted
        the file."""
        unfinished = self._unfinished_run()
        if unfinished is not None:  # the file is complete: keep it
            self.run = unfinished
        else:
            self.run = RUN_PREFIX + os.urandom(8).hex()
            try:
                self._write_run()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._drop_old_journal()
                self._write_run()
        fsync_dir(self.root)

    def _write_run(self) -> None:
        was_killed = self.was_killed
        try:
            with open(self.path("abort"), "w") as file:
                file.write(self.run)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            if not was_killed:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.path("abort"))
            raise

    def _drop_old_journal(self) -> None:
        """Delete the journal of another run, which is never read again: its space is needed."""
        folder = self.path("journal")
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            os.unlink(os.path.join(folder, name))

    def _unfinished_run(self) -> str | None:
        try:
            with open(self.path("abort"), encoding="ascii", errors="replace") as file:
                name = file.read(RUN_CHARS + 1)
        except FileNotFoundError:
            return None
        return name if name.startswith(RUN_PREFIX) and len(name) == RUN_CHARS and name.isascii() else None

    def mark_stopped(self) -> None:
        os.unlink(self.path("abort"))

    def delete_incomplete_files(self) -> None:
        """Called before a killed store is opened. Queue files from the first empty one or the first gap on were
        never synced, nor was an empty index file; all of them are rebuilt from the log. OSError."""
        for kind in ("consumequeue", "batchconsumequeue"):
            for topic in _folders(self.path(kind)):
                for queue in _folders(topic):
                    _delete_incomplete_files(queue)
        index = self.path("index")
        for name in os.listdir(index) if os.path.isdir(index) else ():
            path = os.path.join(index, name)
            if os.path.isfile(path) and os.path.getsize(path) == 0:
                os.unlink(path)

    def unlock(self) -> None:
        if self._lock >= 0:
            _HELD.discard(self._identity)
            os.close(self._lock)
            self._lock = -1

    def _check(self) -> None:
        names = set(os.listdir(self.root))
        if names and not names & KNOWN:
            raise StoreForeign(
                f"{self.root} is not empty and is not a store: name an empty folder or a store with --store"
            )

    def _check_own(self) -> None:
        """Must precede opening the file: closing any descriptor of it would release a lock of this
        process."""
        try:
            stats = os.stat(self.path("lock"))
        except FileNotFoundError:
            return
        if (stats.st_dev, stats.st_ino) in _HELD:
            raise self._locked()

    def _locked(self) -> StoreLocked:
        return StoreLocked(
            f"{self.root} is used by another broker: stop it, or name another folder with --store"
        )

    def _take_lock(self) -> tuple[int, int]:
        """Returns which file it is, for `_HELD`. StoreLocked."""
        stats = os.fstat(self._lock)
        identity = (stats.st_dev, stats.st_ino)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise self._locked() from None
            raise
        _HELD.add(identity)
        return identity


def _delete_incomplete_files(queue: str) -> None:
    expected, broken = -1, False
    for name in sorted(os.listdir(queue)):
        path = os.path.join(queue, name)
        if not name.isdecimal() or not os.path.isfile(path):
            continue
        size = os.path.getsize(path)
        broken = broken or size == 0 or expected not in (-1, int(name))
        if broken:
            os.unlink(path)
        expected = int(name) + size


def _folders(path: str) -> list[str]:
    if not os.path.isdir(path):
        return []
    with os.scandir(path) as found:
        return sorted(entry.path for entry in found if entry.is_dir())
