from mmap import mmap
from typing import NamedTuple

from firearrow._native.checks.findings import Faults

Window = bytes | bytearray | memoryview | mmap

class EntriesResult(NamedTuple):
    """What a file of a queue holds. Offsets are queue offsets, -1: none."""

    first: int
    """The first entry that shows a place at or above `log_from`."""
    end: int
    """After the last entry that was written, or is a blank."""
    written: int
    within: int
    """Entries that show a place in the log."""
    gone: int
    """… a place before the start of the log."""
    beyond: int
    """… a place after the end of the log."""
    lowest: int
    highest: int
    """Places of the entries within, -1: none."""

def count_entries(
    window: Window, first: int, log_from: int, log_to: int, faults: Faults, owner: int = -1
) -> EntriesResult:
    """Look at the entries of a queue's file, the first of which has queue offset `first`.

    Entries that were never written before others that were are QUEUE_GAP, places that go back are QUEUE_ORDER.
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
    """Compare entries that show a place in [`base`, `until`) with the records of that segment: how many.

    Those that do not fit are LOST_RECORD.

    `is_lmq`: the queue shows records of other queues, so only place and size are compared.
    """

def list_entries(
    window: Window, first: int, *, place_from: int, place_to: int, faults: Faults, owner: int = -1
) -> int:
    """How many entries show a place in [`place_from`, `place_to`), where there are no records: each is LOST_RECORD."""
