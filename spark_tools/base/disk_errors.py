"""Disk errors: the message of a job whose files cannot be written. Finished files are kept."""

import errno
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


def disk_error_text(path: Path, error: OSError) -> str:
    if error.errno in DISK_FULL_ERRNOS:
        return f"{path}: no space ({error.strerror or error}); free some space and run it again, it continues"
    return f"{path}: cannot be written: {error.strerror or error}"
