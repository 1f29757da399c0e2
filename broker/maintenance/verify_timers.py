"""Checks the timer's files: `timerwheel`, `timerlog/`, `config/timercheck`. Reads only; skips the wheel's
holes.

Slots that were delivered, or that refer to records before the start of the timer log, are history and not
checked.
"""

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.segment_files import SegmentFile, missing, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store_checks.findings import Extent, Findings, Kind
from firearrow.broker.timers.checkpoint import FIELDS, PAGE_BYTES
from firearrow.broker.timers.log import MAGIC_BITS, RECORD_LAYOUT
from firearrow.broker.timers.wheel import DATA_BYTES_MAX, SLOT, SLOTS, Slot

STEP_MS = 1000
"""Apache's precision; of a wheel with another precision, other slots are checked."""
Add = Callable[[Path, int, str], None]


def check_timer_files(root: str, findings: Findings, notes: list[str]) -> None:
    def add(path: Path, position: int, text: str) -> None:
        findings.add(Kind.TIMER.finding(Extent(Path(root).name, str(path), position), text))

    check, wheel, folder = (Path(root, name) for name in ("config/timercheck", "timerwheel", "timerlog"))
    try:
        files = rolled_files(str(folder))
        read_ms = _check(check, add)
        if not check.exists() and (files or wheel.exists()):
            add(check, 0, "it is missing: the next start restores pending timer messages from their queue")
        for start, end in missing(files):
            add(folder / f"{start:020d}", 0, f"{end - start} bytes of the timer log are missing")
        if wheel.exists():
            _wheel(wheel, read_ms, TimerRecords(files), add)
        elif files:
            notes.append("there is a timer log, but no timerwheel: the next start rebuilds it")
    except StoreUnreadable as error:
        add(folder, 0, str(error))
    except OSError as error:
        add(Path(error.filename or folder), 0, f"it cannot be read: {error.strerror}")


def _check(path: Path, add: Add) -> int:
    """Check the checkpoint; return the time of the first undelivered slot in ms."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    if not data:  # a broker that stopped before its first write
        return 0
    if len(data) < FIELDS.size or len(data) % PAGE_BYTES:
        add(path, 0, f"it has {len(data)} bytes, not {PAGE_BYTES}")
        return 0
    read_ms, flushed, *_ = FIELDS.unpack_from(data)
    if read_ms < 0 or flushed < 0:
        add(
            path,
            0,
            f"its next slot is {read_ms} and its flushed position {flushed}: neither may be negative",
        )
    return int(read_ms)


class TimerRecords:
    """The records of the timer log by their positions."""

    def __init__(self, files: list[SegmentFile]) -> None:
        self._files, self._maps = files, MappedFiles()

    @property
    def start(self) -> int:
        return self._files[0].base if self._files else 0

    def previous(self, position: int) -> int | None:
        """The position of the previous record in the chain, -1 none; None if no record is at `position`."""
        file = segment_at(self._files, position)
        mapping = self._maps.get(file) if file is not None else None
        if mapping is None or position - mapping.base + RECORD_LAYOUT.size > len(mapping.window):
            return None
        size, prev, magic, _, _, _, length, _, _ = RECORD_LAYOUT.unpack_from(
            mapping.window, position - mapping.base
        )
        whole = size == RECORD_LAYOUT.size and magic | MAGIC_BITS == MAGIC_BITS and length > 0
        return int(prev) if whole and -1 <= prev < position else None


def _wheel(path: Path, read_ms: int, timer_records: TimerRecords, add: Add) -> None:
    size = path.stat().st_size
    if size != SLOTS * SLOT.size:
        add(path, 0, f"it has {size} bytes, not {SLOTS * SLOT.size}")
        return
    seen: set[int] = set()
    for number, slot in _used(path):
        if slot.time % SLOTS != number:
            add(
                path,
                number * SLOT.size,
                f"slot {number} has the time {slot.time}, which belongs to another slot",
            )
        elif slot.time * STEP_MS >= read_ms and slot.last >= timer_records.start:
            _chain(path, number, slot, timer_records, seen, add)


def _chain(
    path: Path, number: int, slot: Slot, timer_records: TimerRecords, seen: set[int], add: Add
) -> None:
    """Check the chain from the slot's last record to its first; no record may be in two chains."""
    at = slot.last
    while at >= timer_records.start and at != -1:
        previous = timer_records.previous(at)
        if previous is None:
            add(
                path,
                number * SLOT.size,
                f"slot {number} refers to position {at} of the timer log, where no record is",
            )
            return
        if at in seen:
            add(
                path,
                number * SLOT.size,
                f"slot {number} refers to the record at {at}, which is in the chain of another slot",
            )
            return
        seen.add(at)
        if at == slot.first:
            return
        at = previous


def _used(path: Path) -> Iterator[tuple[int, Slot]]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = 0
        while (start := _data_from(fd, end)) is not None:
            end = min(os.lseek(fd, start, os.SEEK_HOLE), start + DATA_BYTES_MAX)
            start, end = start // SLOT.size * SLOT.size, -(-end // SLOT.size) * SLOT.size
            data = os.pread(fd, end - start, start)
            whole = data[: len(data) // SLOT.size * SLOT.size]
            for number, fields in enumerate(struct.iter_unpack(SLOT.format, whole), start // SLOT.size):
                if fields[0] and fields[2] >= 0:
                    yield number, Slot(*fields)
            if not whole:
                return
    finally:
        os.close(fd)


def _data_from(fd: int, at: int) -> int | None:
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError:  # ENXIO: no data after this offset
        return None
