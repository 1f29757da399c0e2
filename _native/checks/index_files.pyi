from collections.abc import Iterable
from mmap import mmap
from typing import NamedTuple

from firearrow._native.checks.findings import Faults
from firearrow._native.checks.log_records import Survey

Window = bytes | bytearray | memoryview | mmap

class IndexHeader(NamedTuple):
    """The header of an index file; times in ms, offsets physical. `next_entry`: its number, 1 in an empty file."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots_used: int
    next_entry: int

def head_of(window: Window) -> IndexHeader:
    """ValueError: shorter than a header."""

def slots_of(window: Window) -> int:
    """The number of slots, which the file does not state: from its size if it has Apache's default size, else from
    its first entry. 0: unknown.
    """

def check_chains(window: Window, slots: int, *, growing: bool, faults: Faults, owner: int = -1) -> int:
    """Check entries, their chains and the slots; returns the number of entries. `growing`: slots may be newer than the
    count that was read.

    ValueError: the file is too short for its slots and its count.
    """

def covered_by(window: Window, slots: int) -> tuple[int, int]:
    """The first and the last physical offset that the file covers, from its header. Keys of records between them are in
    it; keys of these two records may be in neighbour files. Both 0: no entries.

    ValueError: the header does not fit the entries or the slots, so the file is damaged.
    """

def find_keys(
    window: Window, slots: int, hashes: Iterable[int], *, offset_from: int, offset_to: int, most: int
) -> list[tuple[int, int]]:
    """Hash and physical offset of the entries with these hashes (32 bit, not negative) that point into [`offset_from`,
    `offset_to`). Stops when it has more than `most`.

    ValueError: a chain is impossible, so the file is damaged.
    """

def match_keys(
    survey: Survey, window: Window, slots: int, *, offset_from: int, offset_to: int, owner: int = -1
) -> None:
    """Compare the survey's keys with the file's entries that point into [`offset_from`, `offset_to`).

    An entry that is not a key of its record is WRONG_KEY, among the survey's faults.
    """

def settle_keys(survey: Survey, *, covered_from: int, covered_to: int) -> None:
    """Keys of records in [`covered_from`, `covered_to`] that were not found are NO_KEY; keys of others are
    counted as outside.
    """
