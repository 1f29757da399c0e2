"""The layout of the timer's files, which are Apache's (store-and-broker §1.13); big-endian.

`timerwheel`: a ring of SLOTS slots, a sparse file. `timerlog/`: files of records, each chained to the previous one of
its slot. `config/timercheck`: one page with the time of the first slot that is not delivered, the flushed position of
the timer log, a reserved number, the next message to be enqueued, and a data version of three numbers.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

CHECKPOINT = struct.Struct(">7q")
CHECKPOINT_BYTES = 4096
RECORD_LAYOUT = struct.Struct(">iqiqiqiiq")
"""Size, previous position, magic, write time, delay, physical offset, size of the message, hash, reserved."""
PREV_AT = 4
MAGIC_BITS = 0xF
BLANK = struct.Struct(">iqi")
"""Ends a file that has no space for another record."""
BLANK_MAGIC = 0xCBD43194 - (1 << 32)
ROUND = 604_800
"""Slots of one round: no slot is filled further ahead than this; the file holds two rounds."""
SLOTS = 2 * ROUND
SLOT = struct.Struct(">qqqii")
WHEEL_BYTES = SLOTS * SLOT.size
DATA_BYTES_MAX = 1 << 20


class Slot(NamedTuple):
    """`time`: in steps of the precision.

    `first`, `last`: positions in the timer log, -1 none. `waiting`: messages of the chain.
    """

    time: int
    first: int = -1
    last: int = -1
    waiting: int = 0
    magic: int = 0


def used_slots(fd: int) -> Iterator[tuple[int, Slot]]:
    """Every slot of an open wheel that was ever filled, with its number; holes of the sparse file are skipped."""
    end = 0
    while (start := _data_from(fd, end)) is not None:
        end = min(os.lseek(fd, start, os.SEEK_HOLE), start + DATA_BYTES_MAX)
        start, end = start // SLOT.size * SLOT.size, -(-end // SLOT.size) * SLOT.size
        data = os.pread(fd, end - start, start)
        whole = data[: len(data) // SLOT.size * SLOT.size]
        for number, fields in enumerate(SLOT.iter_unpack(whole), start // SLOT.size):
            if fields[0] and fields[2] >= 0:
                yield number, Slot(*fields)
        if not whole:
            return


def _data_from(fd: int, at: int) -> int | None:
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError:  # ENXIO: no data after this offset
        return None
