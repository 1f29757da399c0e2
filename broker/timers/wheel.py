"""The file `timerwheel`: a ring of slots, each the head of a chain in the timer log (store-and-broker §1.13).

Written with pwrite, read with pread: on a full disk, a hole of the sparse file gives an OSError at the write.
Through a mapping it would be SIGBUS, on tmpfs even at a read. One byte per slot in memory states which slots
are pending. Loop thread, except `sync`, which may run in another one.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from firearrow._native.store.log.timer_layout import SLOT, SLOTS, WHEEL_BYTES, Slot, used_slots
from firearrow.broker.tables.config_file import set_aside

log = logging.getLogger("firearrow.timers")

BLANK_SLOTS = 60
"""Slots that are kept free."""
PAGE_BYTES = 4096


class TimerWheel:
    """Times are in ms; a slot covers `step_ms`. A file of another size is renamed and rebuilt."""

    def __init__(self, path: Path, step_ms: int) -> None:
        self.step_ms = step_ms
        if path.exists() and path.stat().st_size not in (0, WHEEL_BYTES):
            kept = set_aside(path)
            log.error(
                "%s is not a timer wheel and is rebuilt from the timer log; it is kept as %s", path, kept
            )
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        length = os.fstat(self._fd).st_size
        self.is_new = length == 0
        os.ftruncate(self._fd, WHEEL_BYTES)
        self._pending = bytearray(SLOTS)
        self._allocated = bytearray(WHEEL_BYTES // PAGE_BYTES + 1)
        self.count = 0

    def slot(self, time_ms: int) -> Slot:
        """The slot of that time; an empty one if it was delivered or is used for another time."""
        time = time_ms // self.step_ms
        number = time % SLOTS
        stored = self._stored(number) if self._pending[number] else Slot(time)
        return stored if stored.time == time else Slot(time)

    def reserve(self, time_ms: int) -> None:
        """Allocate disk space for the slot, so that `put` cannot fail. Raises OSError."""
        at = time_ms // self.step_ms % SLOTS * SLOT.size
        if not self._allocated[at // PAGE_BYTES]:
            os.pwrite(self._fd, os.pread(self._fd, SLOT.size, at), at)
            self._allocated[at // PAGE_BYTES] = 1

    def put(self, slot: Slot) -> None:
        number = slot.time % SLOTS
        self.count += slot.waiting - (self._stored(number).waiting if self._pending[number] else 0)
        os.pwrite(self._fd, SLOT.pack(*slot), number * SLOT.size)
        self._pending[number] = 1

    def next(self, from_ms: int) -> int | None:
        """Time in ms of the first pending slot from `from_ms` on; None if there is none."""
        start = from_ms // self.step_ms
        number = self._pending.find(1, start % SLOTS)
        if number < 0:
            number = self._pending.find(1, 0, start % SLOTS)
        return None if number < 0 else (start + (number - start) % SLOTS) * self.step_ms

    def mark_delivered(self, time_ms: int) -> None:
        """Make the slot not pending; the file keeps it, as Apache's does."""
        number = time_ms // self.step_ms % SLOTS
        if self._pending[number]:
            self.count -= self._stored(number).waiting
            self._pending[number] = 0

    def load(self, read_ms: int) -> list[Slot]:
        """Make the slots from `read_ms` on pending; return them."""
        first = read_ms // self.step_ms
        slots = [slot for slot in self.used() if first <= slot.time < first + SLOTS]
        self._pending[:] = bytes(SLOTS)
        for slot in slots:
            self._pending[slot.time % SLOTS] = 1
        self.count = sum(slot.waiting for slot in slots)
        return slots

    def clear(self, time_ms: int) -> None:
        """Empty the slot, because its messages were delivered or no longer exist. Raises OSError."""
        self.mark_delivered(time_ms)
        time = time_ms // self.step_ms
        number = time % SLOTS
        if self._stored(number).time:
            os.pwrite(self._fd, SLOT.pack(*Slot(time)), number * SLOT.size)

    def last(self, time: int) -> int | None:
        """Position of the last record of the slot of `time` (in steps); -1: it was cleared; None: the file has
        another time's slot there.
        """
        slot = self._stored(time % SLOTS)
        return slot.last if slot.time == time else None

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def _stored(self, number: int) -> Slot:
        return Slot(*SLOT.unpack(os.pread(self._fd, SLOT.size, number * SLOT.size)))

    def used(self) -> Iterator[Slot]:
        """Every slot that was ever filled."""
        return (slot for _, slot in used_slots(self._fd))
