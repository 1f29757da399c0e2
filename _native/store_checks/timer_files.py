"""Checks the timer's files: `timerwheel`, `timerlog/`, `config/timercheck`. Reads only.

Slots that were delivered, or that refer to records before the start of the timer log, are history and not
checked.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.segment_files import SegmentFile, missing, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.log.timer_layout import (
    CHECKPOINT,
    CHECKPOINT_BYTES,
    MAGIC_BITS,
    RECORD_LAYOUT,
    SLOT,
    SLOTS,
    WHEEL_BYTES,
    Slot,
    used_slots,
)
from firearrow._native.store_checks.findings import Add, Kind

AddTimer = Callable[[Path, int, str], None]
STEP_MS = 1000
"""Apache's precision; of a wheel with another precision, other slots are checked."""


def check_timer_files(root: Path, add_any: Add, notes: list[str]) -> None:
    add = partial(add_any, Kind.TIMER)
    check, wheel, folder = (root / name for name in ("config/timercheck", "timerwheel", "timerlog"))
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


def _check(path: Path, add: AddTimer) -> int:
    """Check the checkpoint; return the time of the first undelivered slot in ms."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    if not data:  # a broker that stopped before its first write
        return 0
    if len(data) < CHECKPOINT.size or len(data) % CHECKPOINT_BYTES:
        add(path, 0, f"it has {len(data)} bytes, not {CHECKPOINT_BYTES}")
        return 0
    read_ms, flushed, *_ = CHECKPOINT.unpack_from(data)
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


def _wheel(path: Path, read_ms: int, timer_records: TimerRecords, add: AddTimer) -> None:
    size = path.stat().st_size
    if size != WHEEL_BYTES:
        add(path, 0, f"it has {size} bytes, not {WHEEL_BYTES}")
        return
    seen: set[int] = set()
    with path.open("rb") as file:
        for number, slot in used_slots(file.fileno()):
            if slot.time % SLOTS != number:
                text = f"slot {number} has the time {slot.time}, which belongs to another slot"
                add(path, number * SLOT.size, text)
            elif slot.time * STEP_MS >= read_ms and slot.last >= timer_records.start:
                _chain(path, number, slot, timer_records, seen, add)


def _chain(
    path: Path, number: int, slot: Slot, timer_records: TimerRecords, seen: set[int], add: AddTimer
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
