"""Room: what a job says when a disk takes no more of its files. Everything that is finished stays finished."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firearrow.spark_tools.base.errors import WriteFailed

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """WriteFailed: what the block wrote, or its folder, cannot be."""
    try:
        yield
    except OSError as fault:
        raise WriteFailed(disk_error_text(place, fault)) from fault


def disk_error_text(place: Path, fault: OSError) -> str:
    if fault.errno in DISK_FULL_ERRNOS:
        return f"{place}: no room ({fault.strerror or fault}); make room and run it again, it goes on"
    return f"{place}: cannot be written: {fault.strerror or fault}"
