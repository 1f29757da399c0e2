"""History: a ring of one day in the file `history` of the store's folder: a row of numbers every ten seconds.

The file is ours; Apache's broker ignores it. Layout, little-endian, all of fixed size:

    head         32   magic `FAHIST01` · u32 step in ms · u32 rows · u32 series · u32 0 · u32 0 · u32 CRC-32 of these 28
    names     n × 512 i64 time of the first row with this name (ms) · u16 length · name (UTF-8) · u32 CRC-32 at the end
    rows      r × 2048 i64 time (ms), a multiple of the step · u32 CRC-32 of the values · u32 0 · n doubles (NaN: none)

A row's place is its time in steps modulo the rows, so a ring needs no pointer, and a row that a crash tore is a row
without values. Names of series that are not used any more are replaced. The file is sparse and written with pwrite:
on a full disk that returns an error, where a mapping would end the process. A foreign or damaged file is made again.
Loop thread, except `read`.
"""

import math
import os
import struct
import zlib
from array import array
from collections.abc import Mapping
from pathlib import Path

STEP_MS = 10_000
ROWS = 8640
SERIES = 254
HEAD, NAME_BYTES, ROW_BYTES = struct.Struct("<8sIIIIII"), 512, 2048
MAGIC = b"FAHIST01"
_NAME, _ROW_HEAD, _CRC = struct.Struct("<qH"), struct.Struct("<qII"), struct.Struct("<I")
NAME_TEXT_MAX = NAME_BYTES - _NAME.size - _CRC.size
ROWS_AT = HEAD.size + SERIES * NAME_BYTES
FILE_BYTES = ROWS_AT + ROWS * ROW_BYTES
ROWS_READ = 64
"""Rows of one read."""


class History:
    """Opens the file, or makes it. OSError."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            self.was_made = not self._is_ours()
            if self.was_made:
                self._make()
            self._slots: dict[str, int] = {}
            self._since: list[int] = [0] * SERIES
            self._used_ms: list[int] = [0] * SERIES
            self._load_names()
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    def write(self, at_ms: int, values: Mapping[str, float]) -> None:
        """Write the row of the step that has `at_ms`; at most SERIES values, the others are left out. OSError: the row
        may be lost."""
        at_ms -= at_ms % STEP_MS
        row = array("d", [math.nan]) * SERIES
        for name, value in values.items():
            slot = self._slots.get(name)
            if slot is None:
                slot = self._new_slot(name, at_ms, values)
            if slot is not None:
                row[slot] = value
                self._used_ms[slot] = at_ms
        body = row.tobytes()
        data = _ROW_HEAD.pack(at_ms, zlib.crc32(body), 0) + body
        os.pwrite(self._fd, data, ROWS_AT + at_ms // STEP_MS % ROWS * ROW_BYTES)

    def names(self, prefix: str = "") -> dict[str, tuple[int, int]]:
        """Name of a series → its slot and the time of its first row, for `read`."""
        return {
            name: (slot, self._since[slot]) for name, slot in self._slots.items() if name.startswith(prefix)
        }

    def read(
        self, first_ms: int, last_ms: int, names: Mapping[str, tuple[int, int]]
    ) -> dict[str, list[float | None]]:
        """The values of each step from `first_ms` to `last_ms`, None where there is none. Any thread. OSError."""
        first, last = first_ms // STEP_MS, last_ms // STEP_MS
        found: dict[str, list[float | None]] = {name: [] for name in names}
        while first <= last:
            count = min(last - first + 1, ROWS_READ, ROWS - first % ROWS)
            data = os.pread(self._fd, count * ROW_BYTES, ROWS_AT + first % ROWS * ROW_BYTES)
            for number in range(count):
                at_ms = (first + number) * STEP_MS
                row = _values(data[number * ROW_BYTES : (number + 1) * ROW_BYTES], at_ms)
                for name, (slot, since_ms) in names.items():
                    value = None if row is None or at_ms < since_ms else row[slot]
                    found[name].append(None if value is None or math.isnan(value) else value)
            first += count
        return found

    # ---- the file ----

    def _is_ours(self) -> bool:
        if os.fstat(self._fd).st_size != FILE_BYTES:
            return False
        return os.pread(self._fd, HEAD.size, 0) == _head()

    def _make(self) -> None:
        os.ftruncate(self._fd, 0)
        os.ftruncate(self._fd, FILE_BYTES)
        os.pwrite(self._fd, _head(), 0)

    def _load_names(self) -> None:
        data = os.pread(self._fd, SERIES * NAME_BYTES, HEAD.size)
        for slot in range(SERIES):
            entry = data[slot * NAME_BYTES : (slot + 1) * NAME_BYTES]
            since_ms, length = _NAME.unpack_from(entry)
            (crc,) = _CRC.unpack_from(entry, NAME_BYTES - _CRC.size)
            if 0 < length <= NAME_TEXT_MAX and crc == zlib.crc32(entry[: -_CRC.size]):
                name = entry[_NAME.size : _NAME.size + length].decode("utf-8", "replace")
                self._slots[name] = slot
                self._since[slot], self._used_ms[slot] = since_ms, since_ms

    def _new_slot(self, name: str, at_ms: int, values: Mapping[str, float]) -> int | None:
        """A free slot, or that of the series that was not written for the longest time; None: all are in use, or the
        name is too long. OSError."""
        text = name.encode("utf-8", "replace")
        if not 0 < len(text) <= NAME_TEXT_MAX:
            return None
        taken = {slot: known for known, slot in self._slots.items()}
        idle = [slot for slot in range(SERIES) if taken.get(slot, "") not in values]
        if not idle:
            return None
        slot = min(idle, key=lambda each: (each in taken, self._used_ms[each]))
        entry = (_NAME.pack(at_ms, len(text)) + text).ljust(NAME_BYTES - _CRC.size, b"\0")
        os.pwrite(self._fd, entry + _CRC.pack(zlib.crc32(entry)), HEAD.size + slot * NAME_BYTES)
        if slot in taken:
            del self._slots[taken[slot]]
        self._slots[name] = slot
        self._since[slot] = at_ms
        return slot


def _head() -> bytes:
    fields = HEAD.pack(MAGIC, STEP_MS, ROWS, SERIES, 0, 0, 0)[: -_CRC.size]
    return fields + _CRC.pack(zlib.crc32(fields))


def _values(data: bytes, at_ms: int) -> "array[float] | None":
    """The values of the row if it is whole and of this time."""
    if len(data) < ROW_BYTES:
        return None
    row_ms, crc, _ = _ROW_HEAD.unpack_from(data)
    body = data[_ROW_HEAD.size : _ROW_HEAD.size + SERIES * 8]
    if row_ms != at_ms or crc != zlib.crc32(body):
        return None
    row = array("d")
    row.frombytes(body)
    return row
