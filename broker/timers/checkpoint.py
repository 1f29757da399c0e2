"""The file `config/timercheck`: the progress of the timer (store-and-broker §1.13). Loop thread, except
`sync`.

The first 56 bytes are Apache's. They are written whenever they change, so that they are exact after a kill.
After them, where Apache neither reads nor writes, is a seal: it shows whether we were the last to write the
file, and whether the machine has rebooted since.
"""

import os
import struct
import zlib
from pathlib import Path

from firearrow._native.store.log.timer_layout import CHECKPOINT, CHECKPOINT_BYTES

FLUSHED_AT = 8
SEAL_AT = 64
"""In the same disk sector as the fields: a power cut leaves both or neither."""
SEAL = struct.Struct(">IB36s")
OPEN, CLOSED, SUSPECT, FOLLOWED = range(4)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class TimerCheckpoint:
    """The fields of the file.

    `read_ms`: the first slot that is not delivered. `flushed`: position in the timer log up to which log and
    wheel are durable. `queue_offset`: the first message of the timer's topic that is not enqueued.
    `is_suspect`: wheel or log lack records, so the next start rebuilds them. `is_followed`: so they do, but the
    progress is that of a master whose log the store has up to there. `truncated`: the file was too
    short for the fields.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        page = os.pread(self._fd, CHECKPOINT_BYTES, 0)
        self.truncated = 0 < len(page) < CHECKPOINT.size
        page = page.ljust(CHECKPOINT_BYTES, b"\0")
        self.read_ms: int
        self.flushed: int
        self.queue_offset: int
        self.read_ms, self.flushed, _, self.queue_offset, *version = CHECKPOINT.unpack_from(page)
        self._state_version, self._changed_ms, self._counter = version
        self.is_new = not any(page[: CHECKPOINT.size])
        crc, state, boot = SEAL.unpack_from(page, SEAL_AT)
        self.is_ours = not self.is_new and crc == _fingerprint_of(page)
        self.is_suspect = self.is_ours and state == SUSPECT
        self.is_followed = self.is_ours and state == FOLLOWED
        self._boot = BOOT_ID.read_bytes().strip()[:36] if BOOT_ID.exists() else b""
        self.lost_power = self.is_ours and state != CLOSED and boot.rstrip(b"\0") != self._boot
        """The machine stopped while the broker ran: unflushed writes may be lost, in any order."""

    def write_checkpoint(self, now_ms: int) -> None:
        """Write the fields. Raises OSError."""
        self._changed_ms = now_ms
        self._counter += 1
        self._write(closed=False)

    def follow(self, fields: bytes) -> None:
        """Take the progress of a master from its 56 bytes. ValueError: they are not 56."""
        if len(fields) != CHECKPOINT.size:
            raise ValueError(f"a timer check point has {CHECKPOINT.size} bytes, not {len(fields)}")
        read_ms, _, _, queue_offset, *_ = CHECKPOINT.unpack(fields)
        if read_ms < 0 or queue_offset < 0:
            raise ValueError("the timer check point has a negative field")
        self.read_ms, self.queue_offset = read_ms, queue_offset
        self.is_followed = True

    def further(self, fields: bytes) -> tuple[int, int] | None:
        """`read_ms` and `queue_offset` of another's 56 bytes, if they show that more was delivered than ours.
        ValueError: they are not 56."""
        if len(fields) != CHECKPOINT.size:
            raise ValueError(f"a timer check point has {CHECKPOINT.size} bytes, not {len(fields)}")
        read_ms, _, queue_offset, *_ = CHECKPOINT.unpack(fields)
        return None if read_ms <= self.read_ms else (read_ms, max(queue_offset, 0))

    def sync(self, flushed: int) -> None:
        """State that log and wheel are durable up to `flushed`. May run in another thread. Raises OSError."""
        os.fdatasync(self._fd)
        self.flushed = flushed
        os.pwrite(self._fd, flushed.to_bytes(8, "big"), FLUSHED_AT)
        os.fdatasync(self._fd)

    def seal_closed(self) -> None:
        """Record a clean stop; the last write of a process. Raises OSError."""
        self._write(closed=True)
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def encoded(self) -> bytes:
        """The 56 bytes of Apache's fields."""
        queue = self.queue_offset
        version = (self._state_version, self._changed_ms, self._counter)
        return CHECKPOINT.pack(self.read_ms, self.flushed, queue, queue, *version)

    def _write(self, *, closed: bool) -> None:
        fields = self.encoded()
        known = FOLLOWED if self.is_followed else CLOSED if closed else OPEN
        state = SUSPECT if self.is_suspect else known
        page = fields.ljust(SEAL_AT, b"\0") + SEAL.pack(_fingerprint_of(fields), state, self._boot)
        os.pwrite(self._fd, page.ljust(CHECKPOINT_BYTES, b"\0"), 0)


def _fingerprint_of(page: bytes) -> int:
    """CRC of all fields except `flushed`, which is written separately."""
    return zlib.crc32(page[:FLUSHED_AT] + page[FLUSHED_AT + 8 : CHECKPOINT.size])
