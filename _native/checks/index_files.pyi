from collections.abc import Iterable
from mmap import mmap
from typing import NamedTuple

from firearrow._native.checks.findings import Faults
from firearrow._native.checks.log_records import Survey

Window = bytes | bytearray | memoryview | mmap

class IndexHeader(NamedTuple):
    """The head of an index file; times in ms, offsets physical. `next_entry`: its number, 1 in an empty file."""

    begin_ms: int
    end_ms: int
    begin_place: int
    end_place: int
    slots_used: int
    next_entry: int

def head_of(window: Window) -> IndexHeader:
    """ValueError: shorter than a head."""

def slots_of(window: Window) -> int:
    """How many slots the file has, which it does not say: by its size if it is Apache's own, else by its
    first entry. 0: unknown.
    """

def check_chains(window: Window, slots: int, *, growing: bool, faults: Faults, owner: int = -1) -> int:
    """Entries, their chains, and what the slots name: how many entries. `growing`: slots may be newer than the
    count that was read.

    ValueError: the file is too short for its slots and its count.
    """

def covered_by(window: Window, slots: int) -> tuple[int, int]:
    """The first and the last place that the file tells of, as its head says; keys of records between them are in it,
    those of the two may be in its neighbours. Both 0: it has no entries.

    ValueError: the head does not fit the entries or the slots, so the file is damaged.
    """

def find_keys(
    window: Window, slots: int, hashes: Iterable[int], *, place_from: int, place_to: int, most: int
) -> list[tuple[int, int]]:
    """Hash and place of the entries with these hashes (32 bit, not negative) that show a place in [`place_from`,
    `place_to`). It ends when it has more than `most`.

    ValueError: a chain leads where it cannot, so the file is damaged.
    """

def match_keys(
    survey: Survey, window: Window, slots: int, *, place_from: int, place_to: int, owner: int = -1
) -> None:
    """Compare the survey's keys with the file's entries that show a place in [`place_from`, `place_to`).

    An entry that is no key of its record is WRONG_KEY, among the survey's faults.
    """

def settle_keys(survey: Survey, *, covered_from: int, covered_to: int) -> None:
    """Keys of records in [`covered_from`, `covered_to`] that were not found are NO_KEY; keys of others are
    counted as outside.
    """
