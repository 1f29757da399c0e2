"""Disk errors: the message of a job whose files cannot be written. Finished files are kept."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firearrow.spark_tools.base.errors import WriteFailed

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns an OSError of the block, which writes `path` or makes its folder, into WriteFailed."""
    try:
        yield
    except OSError as error:
        raise WriteFailed(disk_error_text(path, error)) from error


def write_durably(path: Path, data: bytes) -> None:
    """Replace the file, whole or not at all; it is on the disk on return. WriteFailed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with disk_errors(path):
        try:
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def disk_error_text(path: Path, error: OSError) -> str:
    if error.errno in DISK_FULL_ERRNOS:
        return f"{path}: no space ({error.strerror or error}); free some space and run it again, it continues"
    return f"{path}: cannot be written: {error.strerror or error}"
