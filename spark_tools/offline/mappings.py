"""Mapped log files, a few at a time: what has been read goes out of our memory again, however large the store is.

A mapping that is let go lives on for as long as Spans stand on it. Mapped read-only, with the length that the file has
at that moment: a file that is deleted later stays readable, one that grew is mapped anew. One thread.
"""

import mmap
import os
from collections import OrderedDict
from dataclasses import dataclass, field

from firearrow.spark_tools.errors import StoreUnreadable
from firearrow.spark_tools.offline.rolled import Segment

MAPPINGS_MAX = 16
RESIDENT_BYTES_MAX = 32 << 20
"""Of one file, behind the place that is read."""
PAGE = mmap.PAGESIZE


@dataclass(slots=True)
class Mapping:
    """`window` has the whole file; `base`: position of its first byte."""

    window: mmap.mmap
    base: int
    left_behind: int = field(default=0)
    """Pages below are not in our memory."""

    @property
    def end(self) -> int:
        return self.base + len(self.window)

    def passed(self, place: int, *, all_of_it: bool = False) -> None:
        """What lies below `place`, a place in the window, is not needed soon; it can still be read."""
        place -= place % PAGE
        if place < self.left_behind:
            self.left_behind = place
        elif all_of_it or place - self.left_behind >= RESIDENT_BYTES_MAX:
            if place > self.left_behind:
                self.window.madvise(mmap.MADV_DONTNEED, self.left_behind, place - self.left_behind)
            self.left_behind = place


class Mappings:
    """At most `count_max` files at a time, those used last; only the newest one of them keeps its pages."""

    def __init__(self, count_max: int = MAPPINGS_MAX) -> None:
        self._count_max = count_max
        self._open: OrderedDict[str, Mapping] = OrderedDict()
        self._newest: Mapping | None = None

    def __len__(self) -> int:
        return len(self._open)

    def get(self, segment: Segment) -> Mapping | None:
        """None if the file is gone. StoreUnreadable: it may not be read."""
        found = self._open.get(segment.path)
        if found is None or found.end < segment.end:
            mapped = _map(segment)
            if mapped is None:
                return found
            found = self._open[segment.path] = mapped
            if len(self._open) > self._count_max:
                self._open.popitem(last=False)
        self._open.move_to_end(segment.path)
        if found is not self._newest:
            if self._newest is not None:
                self._newest.window.madvise(mmap.MADV_DONTNEED)
                self._newest.left_behind = 0
            self._newest = found
        return found

    def close(self) -> None:
        """Let go of all."""
        self._open.clear()
        self._newest = None


def _map(segment: Segment) -> Mapping | None:
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnreadable(f"{segment.path} cannot be opened: {error.strerror}") from None
    try:
        length = os.fstat(fd).st_size
        return Mapping(mmap.mmap(fd, length, access=mmap.ACCESS_READ), segment.base) if length else None
    except (OSError, ValueError) as error:
        raise StoreUnreadable(f"{segment.path} cannot be mapped: {error}") from None
    finally:
        os.close(fd)
