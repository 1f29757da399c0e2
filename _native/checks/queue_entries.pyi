from mmap import mmap
from typing import NamedTuple

from firearrow._native.checks.findings import Faults

Window = bytes | bytearray | memoryview | mmap

class EntriesResult(NamedTuple):
    """What a file of a queue holds. Offsets are queue offsets, -1: none."""

    first: int
    """The first entry that points to `log_from` or higher."""
    end: int
    """After the last entry that was written, or is a blank."""
    written: int
    within: int
    """Entries that point into the log."""
    gone: int
    """… before the start of the log."""
    beyond: int
    """… past the end of the log."""
    lowest: int
    highest: int
    """Physical offsets of the entries within, -1: none."""

def count_entries(
    window: Window, first: int, log_from: int, log_to: int, faults: Faults, owner: int = -1
) -> EntriesResult:
    """Count the entries of a queue's file, the first of which has queue offset `first`.

    Unwritten entries before written ones are QUEUE_GAP, physical offsets that decrease are QUEUE_ORDER.
    """

def check_entries(
    window: Window,
    first: int,
    log: Window,
    *,
    base: int,
    until: int,
    topic: bytes,
    queue_id: int,
    is_lmq: bool,
    faults: Faults,
    owner: int = -1,
) -> int:
    """Compare entries that point into [`base`, `until`) with the records of that segment; returns how many.

    Those that do not fit are LOST_RECORD.

    `is_lmq`: the queue points to records of other queues, so only physical offset and size are compared.
    """

def list_entries(
    window: Window, first: int, *, offset_from: int, offset_to: int, faults: Faults, owner: int = -1
) -> int:
    """How many entries point into [`offset_from`, `offset_to`), where there are no records: each is LOST_RECORD."""
