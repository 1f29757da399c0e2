"""A file that one command at a time may have open, and the folder of what commands note between their runs."""

import contextlib
import os
from pathlib import Path
from typing import IO

from firearrow.client.base.errors import ConfigError


def state_folder() -> Path:
    """`~/.local/state/firearrow`, or where XDG_STATE_HOME is."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "firearrow"


def open_locked(path: Path, what: str) -> IO[bytes]:
    """Open a file, made if it is missing, to read it and to append; only its owner may read it. The lock ends with the
    file or the process.

    ConfigError: another command has it, or it cannot be used.
    """
    while True:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+b")
        except OSError as error:
            raise ConfigError(f"cannot use {path}: {error.strerror}") from None
        if not _lock(file):
            file.close()
            raise ConfigError(f"another {what} is running, which has {path} open: wait until it has ended")
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()  # the one that had the lock has deleted it


def is_locked(path: Path) -> bool:
    """Whether a command has it open now, by the kernel's list: to try the lock could refuse it to a command."""
    try:
        inode = str(path.stat().st_ino)
        with open("/proc/locks", encoding="ascii") as file:
            words = [line.split() for line in file]
    except OSError:  # not Linux, or there is no such file
        return False
    return any("FLOCK" in line and line[-3].rpartition(":")[2] == inode for line in words)


def _lock(file: IO[bytes]) -> bool:
    """False: another process has it."""
    try:
        import fcntl  # noqa: PLC0415 (not on Windows)
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
