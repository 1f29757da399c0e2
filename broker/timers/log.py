"""The files `timerlog/`: one timer record for each pending message, chained by slot (store-and-broker §1.13).

A timer record (Apache: unit) has 52 bytes: size i32, position of the previous record of its slot i64, magic
i32, write time i64, delay i32 (both ms), physical offset i64, size i32, Java hash of the real topic i32,
reserved i64. A file without space for another record and 16 bytes ends with a blank. Written with pwrite, read
with pread: on a full tmpfs, reading a hole through a mapping is SIGBUS. Loop thread, except `sync`, which may
run in another one.
"""

import functools
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow._native.base.hash import java_hash
from firearrow._native.store.log.timer_layout import BLANK, BLANK_MAGIC, MAGIC_BITS, PREV_AT, RECORD_LAYOUT
from firearrow._native.store.recovery.timer_log import TimerLogSurvey

DEFAULT, ROLL, DELETE = 1, 2, 4
WINDOW_BYTES = 8192


@functools.lru_cache(maxsize=256)
def topic_hash(topic: str) -> int:
    """The hash of a real topic, as in a timer record."""
    return java_hash(topic)


class TimerLogDamaged(ValueError):
    """A file does not fit into the sequence of timer log files."""


class TimerRecord(NamedTuple):
    """`prev`: position of the slot's previous record, -1 none. `write_ms`, `delay_ms` in ms."""

    prev: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def time_ms(self) -> int:
        return self.write_ms + self.delay_ms

    @property
    def is_progress(self) -> bool:
        """It refers to no pending message; it only states how far the timer's queue was read."""
        return self.delay_ms < 0

    @property
    def count_delta(self) -> int:
        """What it adds to the number of pending messages."""
        return -1 if self.magic & DELETE else 1


class TimerLogFile:
    """One file; size and name are durable before anything is written. Records are read through a window, since chains
    and slots mostly have them one after the other. Raises OSError."""

    def __init__(self, path: Path, start: int, size: int) -> None:
        self.path = path
        self.start = start
        self._lock = threading.Lock()  # guards `fd` between `sync` and `close`; held briefly
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._window, self._window_at = b"", 0
        try:
            if os.fstat(self.fd).st_size != size:
                os.ftruncate(self.fd, size)
                os.fdatasync(self.fd)
                fsync_dir(str(path.parent))
        except OSError:
            os.close(self.fd)
            raise

    def record(self, at: int) -> tuple[int, ...]:
        """The fields of the record at this place; the caller has checked that the file reaches so far."""
        if not 0 <= at - self._window_at <= len(self._window) - RECORD_LAYOUT.size:
            self._window_at = max(at - WINDOW_BYTES // 2, 0)
            self._window = os.pread(self.fd, WINDOW_BYTES, self._window_at)
        return RECORD_LAYOUT.unpack_from(self._window, at - self._window_at)

    def write(self, data: bytes, at: int) -> int:
        """Returns how many bytes were written."""
        self._window = b""
        return os.pwrite(self.fd, data, at)

    def truncate(self, at: int, size: int) -> None:
        """Zero everything from `at` on."""
        self._window = b""
        os.ftruncate(self.fd, at)
        os.ftruncate(self.fd, size)

    def survey(self, survey: TimerLogSurvey) -> bool:
        """Check its records, up to the first hole; whether the log continues in the next file."""
        size, hole = os.fstat(self.fd).st_size, os.lseek(self.fd, 0, os.SEEK_HOLE)
        if hole == 0:
            return False
        with mmap.mmap(self.fd, hole, prot=mmap.PROT_READ) as window:
            return survey.check_file(window, self.start) and hole == size

    def sync(self) -> None:
        """May run in another thread; a file that was closed needs no sync, and its number may be another's by now."""
        with self._lock:
            if self.fd < 0:
                return
            copy = os.dup(self.fd)
        try:
            os.fdatasync(copy)
        finally:
            os.close(copy)

    def close(self) -> None:
        with self._lock:
            os.close(self.fd)
            self.fd = -1


class TimerLog:
    """All files of the timer log. `end`: the position of the next record.

    The caller that opens the log finds the end with `records` and sets it with `truncate`. Existing files
    keep their size, whatever `file_bytes` is. Raises TimerLogDamaged if the folder holds no timer log.
    """

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        make_dirs(str(folder))
        fsync_dir(str(folder))  # for files that a killed process made
        paths = sorted(path for path in folder.iterdir() if path.name.isdecimal() and path.stat().st_size)
        self.file_bytes = paths[0].stat().st_size if paths else file_bytes
        for previous, path in zip([None, *paths], paths, strict=False):
            follows = previous is None or int(path.name) == int(previous.name) + self.file_bytes
            fits = path.stat().st_size == self.file_bytes >= RECORD_LAYOUT.size + BLANK.size
            if not fits or not follows:
                raise TimerLogDamaged(
                    f"{path} does not fit into a timer log with files of {self.file_bytes} bytes"
                )
        self._full = (self.file_bytes - BLANK.size) // RECORD_LAYOUT.size * RECORD_LAYOUT.size
        """Bytes of records in a full file."""
        self._files = [TimerLogFile(path, int(path.name), self.file_bytes) for path in paths]
        self.end = self.start + len(self._files) * self.file_bytes

    @property
    def start(self) -> int:
        return self._files[0].start if self._files else 0

    def boundary(self, position: int) -> int:
        """`position` if a record ends there, else the start of its file, or of the log."""
        number = (position - self.start) // self.file_bytes
        if not 0 <= number < len(self._files):
            return self.start
        file = self._files[number]
        at = position - file.start
        follows = (
            at % RECORD_LAYOUT.size == 0
            and at > 0
            and self._record_at(file, at - RECORD_LAYOUT.size) is not None
        )
        return position if follows else file.start

    def records(self, position: int) -> Iterator[tuple[int, TimerRecord]]:
        """Yield valid records from `position` on, which is the start of one, up to the first invalid one."""
        for file in self._files:
            if file.start + self.file_bytes <= position:
                continue
            at = max(position - file.start, 0)
            while (timer_record := self._record_at(file, at)) is not None:
                yield file.start + at, timer_record
                at += RECORD_LAYOUT.size
            if not self._is_blank(file, at):
                return

    def last_end(self, position: int) -> int | None:
        """Where the last record before `position` ends; None if no record can begin at `position`."""
        at = (position - self.start) % self.file_bytes
        if (
            not self.start <= position <= self.start + len(self._files) * self.file_bytes
            or at % RECORD_LAYOUT.size
        ):
            return None
        return position - self.file_bytes + self._full if at == 0 and position > self.start else position

    def survey(self, step_ms: int, read_ms: int) -> TimerLogSurvey:
        """Check all records, for slots of `step_ms` from `read_ms` on."""
        survey = TimerLogSurvey(step_ms, read_ms, self.start)
        for file in self._files:
            if not file.survey(survey):
                break
        return survey

    def read(self, position: int) -> TimerRecord | None:
        """The record there; None if there is none."""
        number = (position - self.start) // self.file_bytes
        if not 0 <= number < len(self._files) or position >= self.end:
            return None
        file = self._files[number]
        return self._record_at(file, position - file.start)

    def last(self) -> TimerRecord | None:
        for file in reversed(self._files):
            at = min(self.end - file.start, self._full) - RECORD_LAYOUT.size
            if at >= 0:
                return self._record_at(file, at)
        return None

    def truncate(self, end: int) -> None:
        """Remove everything after `end`. Raises OSError."""
        while self._files and self._files[-1].start > end:
            self._delete(self._files.pop())
        if self._files:
            file = self._files[-1]
            at = end - file.start
            if at < self.file_bytes and any(os.pread(file.fd, RECORD_LAYOUT.size, at)):
                file.truncate(at, self.file_bytes)
        self.end = end

    def capacity(self, count: int) -> int:
        """How many records, at most `count`, fit at the end; starts a new file if needed. Raises OSError."""
        last = self._files[-1] if self._files else None
        at = self.end - last.start if last else 0
        if last is None or self.file_bytes - at < RECORD_LAYOUT.size + BLANK.size:
            if last is not None and at < self.file_bytes:
                last.write(BLANK.pack(self.file_bytes - at, 0, BLANK_MAGIC), at)
            start = last.start + self.file_bytes if last else 0
            self._files.append(TimerLogFile(self._folder / f"{start:020d}", start, self.file_bytes))
            self.end, at = start, 0
        return min((self.file_bytes - at - BLANK.size) // RECORD_LAYOUT.size, count)

    def append(self, records: list[TimerRecord]) -> None:
        """Append all records or none; the caller has checked `capacity`. Raises OSError."""
        data = b"".join(RECORD_LAYOUT.pack(RECORD_LAYOUT.size, *timer_record, 0) for timer_record in records)
        file = self._files[-1]
        written = file.write(data, self.end - file.start)
        if written != len(data):  # the disk is full: the next attempt gets ENOSPC
            file.write(bytes(written), self.end - file.start)
            raise OSError(f"only {written} of {len(data)} bytes could be written to {file.path}")
        self.end += len(data)

    def relink(self, position: int, prev: int) -> None:
        """Set the previous record of the record at `position`. Raises OSError."""
        file = self._files[(position - self.start) // self.file_bytes]
        file.write(prev.to_bytes(8, "big", signed=True), position - file.start + PREV_AT)

    def drop_below(self, physical_offset: int) -> None:
        """Delete the oldest files whose messages are all before `physical_offset`. Raises OSError."""
        while len(self._files) > 1:
            timer_record = self._record_at(self._files[0], self._full - RECORD_LAYOUT.size)
            if timer_record is None or timer_record.physical_offset >= physical_offset:
                return
            self._delete(self._files.pop(0))

    def _delete(self, file: TimerLogFile) -> None:
        """Delete a file; durable before the next one is deleted. Raises OSError."""
        file.close()
        file.path.unlink()
        fsync_dir(str(self._folder))

    def sync(self, position: int) -> None:
        """Sync everything from `position` on. May run in another thread. Raises OSError."""
        for file in self._files[:]:
            if file.start + self.file_bytes > position:
                file.sync()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _record_at(self, file: TimerLogFile, at: int) -> TimerRecord | None:
        if at + RECORD_LAYOUT.size > self.file_bytes:
            return None
        size, prev, magic, write_ms, delay_ms, physical, length, topic_hash, _ = file.record(at)
        if (
            size != RECORD_LAYOUT.size
            or magic | MAGIC_BITS != MAGIC_BITS
            or length <= 0
            or prev >= file.start + at
        ):
            return None
        return TimerRecord(prev, magic, write_ms, delay_ms, physical, length, topic_hash)

    def _is_blank(self, file: TimerLogFile, at: int) -> bool:
        """Whether the log continues in the next file."""
        if at + BLANK.size > self.file_bytes:
            return True
        return int(BLANK.unpack(os.pread(file.fd, BLANK.size, at))[2]) == BLANK_MAGIC
