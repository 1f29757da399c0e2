"""Finds up to where two logs have the same bytes, by checksums of ranges, in few questions. Pure.

The one that asks runs `find_common_point` and sends what it yields to the other; the other answers with `answer`. A
question is a few ranges, of 16 MiB together, so that neither loop stops for long: one MiB at each power of two back
from the end, then a sixteenth of what is left, then parts of the last MiB. For logs that differ in their last MiBs
these are five questions, for a log of 1 TB at most eleven.

Of a long log only samples are compared, and the last MiBs before the common point. Where bytes differ before equal
samples, they are not found here: epochs state which broker wrote what, the CRC of a frame that it came as it was sent.
"""

from collections.abc import Generator, Iterable
from itertools import pairwise
from typing import NamedTuple, Protocol

from firearrow._native.replication.log_checksums import MIB_BYTES

RANGES_MAX = 256
QUESTION_BYTES_MAX = 16 << 20


class Range(NamedTuple):
    """Physical offsets."""

    start: int
    end: int


class Checksums(Protocol):
    def between(self, start: int, end: int) -> int: ...


class LogsDiffer(Exception):
    """Bytes differ before others that are equal. The text states where."""


Search = Generator[list[Range], list[int], int]
"""Yields questions, is sent the other's checksums of them, returns the common point."""


def checked(ranges: Iterable[tuple[int, int]]) -> list[Range]:
    """A question from outside. ValueError: it asks for too much, or for ranges that are none."""
    taken = [Range(start, end) for start, end in ranges]
    if len(taken) > RANGES_MAX:
        raise ValueError(f"{len(taken)} ranges, at most {RANGES_MAX}")
    if any(not 0 <= each.start <= each.end for each in taken):
        raise ValueError("a range ends before it starts")
    if sum(each.end - each.start for each in taken) > QUESTION_BYTES_MAX:
        raise ValueError(f"more than {QUESTION_BYTES_MAX >> 20} MiB are asked for")
    return taken


def answer(ours: Checksums, ranges: Iterable[tuple[int, int]]) -> list[int]:
    """The checksums of a question. ValueError; LookupError: our log does not have a range; OSError."""
    return [ours.between(start, end) for start, end in checked(ranges)]


def find_common_point(ours: Checksums, first: int, end: int) -> Search:
    """`first`, `end`: what both logs have. Returns `first` if they have no byte in common. LogsDiffer; LookupError,
    OSError."""
    low, high = yield from _last_equal_sample(ours, first, end)
    while high - low > MIB_BYTES:
        low, high = yield from _narrowed(ours, low, high)
    while high > low:
        low, high = yield from _divided(ours, low, high)
    yield from _verify(ours, max(first, low - QUESTION_BYTES_MAX), low)
    return low


def _last_equal_sample(
    ours: Checksums, first: int, end: int
) -> Generator[list[Range], list[int], tuple[int, int]]:
    """Of one MiB at the end, and at 2, 4, 8… MiB before it: the end of the last equal one, and where the first
    different one after it ends."""
    starts = [max(first, end - MIB_BYTES)]
    distance = 2 * MIB_BYTES
    while starts[-1] > first:
        starts.append(max(first, end - distance))
        distance *= 2
    different = end
    for batch in _batches([Range(start, min(start + MIB_BYTES, end)) for start in starts]):
        equal = yield from _compare(ours, batch)
        for sample, same in zip(batch, equal, strict=True):
            if same:
                return sample.end, different
            different = sample.end
    return first, different


def _narrowed(ours: Checksums, low: int, high: int) -> Generator[list[Range], list[int], tuple[int, int]]:
    """Compare MiBs evenly spread over what may differ."""
    count = QUESTION_BYTES_MAX // MIB_BYTES
    step = -(-(high - low) // count // MIB_BYTES) * MIB_BYTES
    ends = [*range(low + step, high, step), high]
    samples = [Range(max(low, each - MIB_BYTES), each) for each in ends]
    equal = yield from _compare(ours, samples)
    for sample, same in zip(samples, equal, strict=True):
        if not same:
            return (
                (low, sample.end)
                if sample.end - low > MIB_BYTES and step > MIB_BYTES
                else (sample.start, sample.end)
            )
        low = sample.end
    return high, high


def _divided(ours: Checksums, low: int, high: int) -> Generator[list[Range], list[int], tuple[int, int]]:
    """Compare the parts of at most one MiB."""
    step = -(-(high - low) // RANGES_MAX)
    borders = [*range(low, high, step), high]
    parts = [Range(*each) for each in pairwise(borders)]
    equal = yield from _compare(ours, parts)
    for part, same in zip(parts, equal, strict=True):
        if not same:
            return part if part.end - part.start > 1 else (part.start, part.start)
    return high, high


def _verify(ours: Checksums, start: int, end: int) -> Generator[list[Range], list[int], None]:
    """LogsDiffer: what comes before the common point is not equal."""
    (same,) = yield from _compare(ours, [Range(start, end)])
    if not same:
        raise LogsDiffer(f"the logs have the same bytes before {end}, but others between {start} and there")


def _compare(ours: Checksums, ranges: list[Range]) -> Generator[list[Range], list[int], list[bool]]:
    theirs = yield ranges
    if len(theirs) != len(ranges):
        raise LogsDiffer(f"{len(theirs)} checksums came for {len(ranges)} ranges")
    return [ours.between(*each) == sum_ for each, sum_ in zip(ranges, theirs, strict=True)]


def _batches(ranges: list[Range]) -> list[list[Range]]:
    size = QUESTION_BYTES_MAX // MIB_BYTES
    return [ranges[at : at + size] for at in range(0, len(ranges), size)]
