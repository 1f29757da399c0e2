"""LogReader: reads the records of a log in log order, for audits and unordered exports.

Bytes that are not a record are reported and skipped. One thread, that of the LogFiles.
"""

from collections.abc import Callable, Iterator

from firearrow._native.columnar.record_spans import End, Spans, find, walk
from firearrow._native.columnar.unwritten import first_written
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.mapped_files import MappedFile

HOLE = "nothing was written, but records follow"

Torn = Callable[[int, int, str], None]
"""Called with physical offsets [start, end) that hold no readable record, and the reason."""


class LogReader:
    """One pass over physical offsets [start, end); `end` None: up to the last written byte.

    `start` is the offset of a record (see `boundary`). The pass ends at unwritten bytes, unless a later
    file has data. After bytes that are not a record it resumes at the next whole record that names its own
    offset.
    """

    def __init__(
        self,
        log: LogFiles,
        start: int,
        end: int | None,
        torn: Torn,
        *,
        check_crc: bool,
        within_files: bool = False,
    ) -> None:
        """`within_files`: also look for records after unwritten bytes of the same file. This reads the
        whole file, so do not use it for polling the end of a log."""
        self._log = log
        self._within_files = within_files
        self._at = start
        self._end = end
        self._torn = torn
        self._check_crc = check_crc
        self._over = False

    def spans(self, bytes_max: int) -> Iterator[Spans]:
        """The records, about `bytes_max` bytes at most in each Spans."""
        while not self._over and (self._end is None or self._at < self._end):
            mapping = self._log.window(self._at)
            if mapping is None:
                self._skip_gap("no file of the log has these bytes")
                continue
            stop = len(mapping.window) if self._end is None else min(mapping.end, self._end) - mapping.base
            position = self._at - mapping.base
            found, next_position, why = walk(
                mapping.window,
                position,
                stop,
                base=mapping.base,
                check_crc=self._check_crc,
                bytes_max=bytes_max,
            )
            if len(found):
                last = len(found) - 1
                position = found.position(last) + found.size(last)
                yield found
            mapping.passed(next_position)
            self._resume(mapping, position, next_position, stop, why)

    def _resume(self, mapping: MappedFile, position: int, next_position: int, stop: int, why: End) -> None:
        """Set where to read next. The last good record ended at `position`, the walk at `next_position`."""
        self._at = mapping.base + next_position
        if why is End.BLANK:
            self._at = mapping.end
        elif why is End.BAD_CRC:
            self._torn(mapping.base + position, self._at, "the body of a record does not match its CRC")
        elif why is End.UNWRITTEN and self._within_files and self._skip_to_next(mapping, position, stop):
            pass
        elif why is End.UNWRITTEN:
            self._skip_gap(HOLE)
        elif why is End.TORN:
            found = find(mapping.window, position + 1, stop, base=mapping.base)
            self._at = mapping.base + (stop if found < 0 else found)
            self._torn(mapping.base + position, self._at, "bytes that are not a record")

    def _skip_to_next(self, mapping: MappedFile, position: int, stop: int) -> bool:
        """Resume at the next record of this file, if there is one."""
        written = first_written(mapping.window, position, stop)
        found = find(mapping.window, position + 1, stop, base=mapping.base) if written < stop else -1
        if found >= 0:
            self._at = mapping.base + found
            self._torn(mapping.base + position, self._at, HOLE)
        return found >= 0

    def _skip_gap(self, why: str) -> None:
        """Resume at the next file if it has data; otherwise this is the end of the log."""
        following = self._log.next_file(self._at)
        if following is None or not self._log.begins(following):
            self._over = True
            return
        if self._end is not None:
            following = min(following, self._end)
        self._torn(self._at, following, why)
        self._at = following


def boundary(log: LogFiles, physical: int) -> int | None:
    """The offset of the first record at or after `physical`; None if there is none. Used to split a log
    into parts."""
    at = physical
    while True:
        mapping = log.window(at)
        if mapping is not None:
            found = find(mapping.window, at - mapping.base, len(mapping.window), base=mapping.base)
            if found >= 0:
                return mapping.base + found
        following = log.next_file(at)
        if following is None:
            return None
        at = following
