"""TimerWheel: the file `timerwheel`, a ring of slots, each the head of a chain in the timer log (§1.13).

Written with pwrite, read through a mapping: a hole of the sparse file that cannot be filled is an OSError of the
write, never a fault of memory. One byte a slot in memory tells which slots wait to be fired. Loop thread; `sync` may
run in another one.
"""

import logging
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from firearrow.broker.tables.config_file import set_aside

log = logging.getLogger("firearrow.timers")

ROUND = 604_800
"""Slots of one round; no slot is filled further ahead of now, and the file holds two rounds."""
BLANK_SLOTS = 60
"""So many slots are kept free."""
SLOTS = 2 * ROUND
SLOT = struct.Struct(">qqqii")
PAGE_BYTES = 4096
DATA_BYTES_MAX = 1 << 20


class Slot(NamedTuple):
    """`time` in steps of the precision; `first` and `last` are positions in the timer log, -1 none; `waiting` counts
    the messages of the chain."""

    time: int
    first: int = -1
    last: int = -1
    waiting: int = 0
    magic: int = 0


class TimerWheel:
    """Times are in ms; a slot covers `step_ms`. A file of another length is set aside."""

    def __init__(self, path: Path, step_ms: int) -> None:
        self.step_ms = step_ms
        if path.exists() and path.stat().st_size not in (0, SLOTS * SLOT.size):
            aside = set_aside(path)
            log.error("%s is no timer wheel, it is made anew from the timer log; kept as %s", path, aside)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        length = os.fstat(self._fd).st_size
        self.is_new = length == 0
        os.ftruncate(self._fd, SLOTS * SLOT.size)
        self._map = mmap.mmap(self._fd, SLOTS * SLOT.size, prot=mmap.PROT_READ)
        self._waiting = bytearray(SLOTS)
        self._filled = bytearray(SLOTS * SLOT.size // PAGE_BYTES + 1)
        self.count = 0

    def slot(self, time_ms: int) -> Slot:
        """The slot of that time; an empty one if it holds another time's chain, or one that was fired."""
        time = time_ms // self.step_ms
        number = time % SLOTS
        stored = self._stored(number) if self._waiting[number] else Slot(time)
        return stored if stored.time == time else Slot(time)

    def reserve(self, time_ms: int) -> None:
        """Make room for the slot, so that `put` finds it. OSError."""
        place = time_ms // self.step_ms % SLOTS * SLOT.size
        if not self._filled[place // PAGE_BYTES]:
            os.pwrite(self._fd, self._map[place : place + SLOT.size], place)
            self._filled[place // PAGE_BYTES] = 1

    def put(self, slot: Slot) -> None:
        number = slot.time % SLOTS
        self.count += slot.waiting - (self._stored(number).waiting if self._waiting[number] else 0)
        os.pwrite(self._fd, SLOT.pack(*slot), number * SLOT.size)
        self._waiting[number] = 1

    def next(self, from_ms: int) -> int | None:
        """Time in ms of the first slot at or behind `from_ms` that waits to be fired."""
        start = from_ms // self.step_ms
        number = self._waiting.find(1, start % SLOTS)
        if number < 0:
            number = self._waiting.find(1, 0, start % SLOTS)
        return None if number < 0 else (start + (number - start) % SLOTS) * self.step_ms

    def fired(self, time_ms: int) -> None:
        """The slot waits no more; the file keeps it, as Apache's does."""
        number = time_ms // self.step_ms % SLOTS
        if self._waiting[number]:
            self.count -= self._stored(number).waiting
            self._waiting[number] = 0

    def load(self, read_ms: int) -> list[Slot]:
        """Let the slots at or behind `read_ms` wait; what they are."""
        first = read_ms // self.step_ms
        slots = [slot for slot in self.used() if first <= slot.time < first + SLOTS]
        self._waiting[:] = bytes(SLOTS)
        for slot in slots:
            self._waiting[slot.time % SLOTS] = 1
        self.count = sum(slot.waiting for slot in slots)
        return slots

    def clear(self, time_ms: int) -> None:
        """The slot holds nothing: what it names was fired, or is gone. OSError."""
        self.fired(time_ms)
        time = time_ms // self.step_ms
        number = time % SLOTS
        if self._stored(number).time:
            os.pwrite(self._fd, SLOT.pack(*Slot(time)), number * SLOT.size)

    def last(self, time: int) -> int:
        """Position of the last unit that the file has for the slot of `time` (in steps), -1: it was cleared, -2: it
        knows nothing of it."""
        slot = self._stored(time % SLOTS)
        return slot.last if slot.time == time else -2

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        self._map.close()
        os.close(self._fd)

    def _stored(self, number: int) -> Slot:
        return Slot(*SLOT.unpack_from(self._map, number * SLOT.size))

    def used(self) -> Iterator[Slot]:
        """Every slot of the file that ever was filled; holes of the file are passed over."""
        end = 0
        while (start := self._data_from(end)) is not None:
            end = min(os.lseek(self._fd, start, os.SEEK_HOLE), start + DATA_BYTES_MAX)
            start, end = start // SLOT.size * SLOT.size, -(-end // SLOT.size) * SLOT.size
            for fields in SLOT.iter_unpack(self._map[start:end]):
                if fields[0] and fields[2] >= 0:
                    yield Slot(*fields)

    def _data_from(self, place: int) -> int | None:
        try:
            return os.lseek(self._fd, place, os.SEEK_DATA)
        except OSError:  # ENXIO: no data behind it
            return None
