"""Checkpoint: how far the store's files are known to be on the disk (Apache's `checkpoint` file).

4096 bytes; the six i64 at its start are in one sector, so a write of them is all or nothing. At byte 2048,
which Apache neither reads nor clears, a clean stop writes a seal: the six numbers again and a fingerprint of
queues and index, so that the next start notices a queue or index that was deleted in between. While the
broker runs, the seal is open: its fingerprint only counts queues and index files. If Apache has written the
file since, the seal is ignored. Owner: MessageStore; written by one thread at a time.
"""

import contextlib
import os
import struct
import zlib
from dataclasses import astuple, dataclass
from typing import NamedTuple

from firearrow._native.base.durable_files import fsync_dir

FILE_BYTES = 4096
NUMBERS = struct.Struct(">6q")
MARGIN_MS = 3000
SEAL_AT = 2048
SEAL = struct.Struct(">8s6q16sI")
SEAL_MAGIC = b"FAseal01"
OPEN_MAGIC = b"FAopen01"
FINGERPRINT_BYTES = 16


class Seal(NamedTuple):
    """`closed`: written by a clean stop; `fingerprint` covers queues and index then, otherwise only their
    number."""

    closed: bool
    fingerprint: bytes


@dataclass(slots=True)
class Checkpoint:
    """Times are the store times (ms) of the newest record in the flushed files; 0: unknown."""

    physic_ms: int = 0
    logics_ms: int = 0
    index_ms: int = 0
    master_flushed: int = 0
    confirm_offset: int = 0
    logics_physical: int = 0

    @staticmethod
    def load(path: str) -> "Checkpoint":
        """Read the file; all zeros if it is missing or truncated. OSError."""
        try:
            with open(path, "rb") as file:
                raw = file.read(NUMBERS.size)
        except FileNotFoundError:
            return Checkpoint()
        return Checkpoint(*NUMBERS.unpack(raw)) if len(raw) == NUMBERS.size else Checkpoint()

    @staticmethod
    def reserve(path: str) -> None:
        """Create the file, without numbers and seal, so that `save` needs no disk space later. On a disk
        without space there is none yet."""
        if os.path.exists(path):
            return
        with contextlib.suppress(OSError), open(path, "xb") as file:
            file.write(bytes(FILE_BYTES))

    @staticmethod
    def revoke(path: str) -> None:
        """Write the numbers of an unknown state: the next start trusts nothing. OSError."""
        try:
            Checkpoint().save(path, b"", closed=False)
        except OSError:
            if Checkpoint.load(path) != Checkpoint() or Checkpoint().seal(path) is not None:
                raise  # else it states nothing that could be trusted

    def seal(self, path: str) -> Seal | None:
        """The seal; None if there is none or Apache wrote the file since. A corrupt one counts as open with
        zeros."""
        try:
            with open(path, "rb") as file:
                file.seek(SEAL_AT)
                raw = file.read(SEAL.size)
        except FileNotFoundError:
            return None
        if len(raw) < SEAL.size:
            return None
        magic, *numbers, fingerprint, crc = SEAL.unpack(raw)
        is_whole = zlib.crc32(raw[:-4]) == crc
        if not any(raw) or (is_whole and tuple(numbers) != astuple(self)):
            return None
        return Seal(magic == SEAL_MAGIC, fingerprint) if is_whole else Seal(False, bytes(FINGERPRINT_BYTES))

    def save(self, path: str, fingerprint: bytes, *, closed: bool) -> None:
        """Write the file with a seal, durable on return. `fingerprint`: at most 16 bytes. OSError."""
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fresh = os.fstat(number).st_size != FILE_BYTES
            if fresh:
                os.ftruncate(number, FILE_BYTES)
            seal = SEAL.pack(SEAL_MAGIC if closed else OPEN_MAGIC, *astuple(self), fingerprint, 0)[:-4]
            seal += zlib.crc32(seal).to_bytes(4, "big")
            os.pwrite(number, seal, SEAL_AT)
            os.pwrite(number, NUMBERS.pack(*astuple(self)), 0)
            os.fdatasync(number)
        finally:
            os.close(number)
        if fresh:
            fsync_dir(os.path.dirname(path))

    @property
    def safe_ms(self) -> int:
        """Log and queues hold all records stored before this time (ms); recovery after a crash starts
        here."""
        return max(min(self.physic_ms, self.logics_ms) - MARGIN_MS, 0)
