"""The records of a log one behind the other, as they were stored: for audits and for exports without order.

What is no record is told and passed over, never believed. One thread, that of the Log.
"""

from collections.abc import Callable, Iterator

from firearrow._native.columnar.record_spans import End, Spans, find, walk
from firearrow._native.columnar.unwritten import first_written
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.mapped_files import MappedFile

Torn = Callable[[int, int, str], None]
"""Told of physical offsets [start, end) that hold no record that can be read, and why."""


class LogReader:
    """One walk over [start, end) of physical offsets, `end` None: as far as something was written.

    `start` is the place of a record (`boundary`). It ends where nothing was written, unless a later file has something.
    Behind bytes that are no record it goes on at the next bytes that are one and know their own place.
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
        """`within_files`: look for records behind what was not written in the same file, too. It reads all of that
        file, so it is not for who comes again and again to a log's end."""
        self._log = log
        self._within_files = within_files
        self._at = start
        self._end = end
        self._torn = torn
        self._check_crc = check_crc
        self._over = False

    def spans(self, bytes_max: int) -> Iterator[Spans]:
        """Each about `bytes_max` at most."""
        while not self._over and (self._end is None or self._at < self._end):
            mapping = self._log.window(self._at)
            if mapping is None:
                self._skip_gap("no file of the log has them")
                continue
            stop = len(mapping.window) if self._end is None else min(mapping.end, self._end) - mapping.base
            place = self._at - mapping.base
            found, behind, why = walk(
                mapping.window, place, stop, base=mapping.base, check_crc=self._check_crc, bytes_max=bytes_max
            )
            if len(found):
                last = len(found) - 1
                place = found.position(last) + found.size(last)
                yield found
            mapping.passed(behind)
            self._go_on(mapping, place, behind, stop, why)

    def _go_on(self, mapping: MappedFile, place: int, behind: int, stop: int, why: End) -> None:
        """From where the last good record ended, `place`, and the walk, `behind`."""
        self._at = mapping.base + behind
        if why is End.BLANK:
            self._at = mapping.end
        elif why is End.BAD_CRC:
            self._torn(mapping.base + place, self._at, "the body of a record does not match its CRC")
        elif why is End.UNWRITTEN and self._within_files and self._skip_to_next(mapping, place, stop):
            pass
        elif why is End.UNWRITTEN:
            self._skip_gap("nothing was written there, but behind")
        elif why is End.TORN:
            found = find(mapping.window, place + 1, stop, base=mapping.base)
            self._at = mapping.base + (stop if found < 0 else found)
            self._torn(mapping.base + place, self._at, "bytes that are no record")

    def _skip_to_next(self, mapping: MappedFile, place: int, stop: int) -> bool:
        """Go on at the next record of this file, if there is one."""
        written = first_written(mapping.window, place, stop)
        found = find(mapping.window, place + 1, stop, base=mapping.base) if written < stop else -1
        if found >= 0:
            self._at = mapping.base + found
            self._torn(mapping.base + place, self._at, "nothing was written there, but behind")
        return found >= 0

    def _skip_gap(self, why: str) -> None:
        """To the next file, if it has something; otherwise this is the end."""
        following = self._log.next_file(self._at)
        if following is None or not self._log.begins(following):
            self._over = True
            return
        if self._end is not None:
            following = min(following, self._end)
        self._torn(self._at, following, why)
        self._at = following


def boundary(log: LogFiles, physical: int) -> int | None:
    """The place of the first record at `physical` or behind; None if there is none. For splitting a log into parts."""
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
