"""Room: what a job says when a disk takes no more of its files. Everything that is finished stays finished."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firearrow.spark_tools.errors import NotWritten

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """NotWritten: what the block wrote, or its folder, cannot be."""
    try:
        yield
    except OSError as fault:
        raise NotWritten(sentence(place, fault)) from fault


def sentence(place: Path, fault: OSError) -> str:
    if fault.errno in NO_ROOM:
        return f"{place}: no room ({fault.strerror or fault}); make room and run it again, it goes on"
    return f"{place}: cannot be written: {fault.strerror or fault}"
