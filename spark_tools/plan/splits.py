"""Splits ranges into units of work for tasks: none too large, enough of them, small ranges combined.

Pure arithmetic. A queue's ranges keep their order, and each split has adjacent ranges, so that it is read
forwards.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.source import QueueRange

InputSplit = tuple[QueueRange, ...]
"""What one task reads, range after range."""
SMALL_BYTES = 32 << 20
"""Starting a task costs as much as reading half of this, so splits are smaller only if necessary."""
SPREAD = 8
"""Number of splits to aim for if there is enough data, even if fewer would do."""
SPLITS_MAX = 100_000
RECORD_BYTES_GUESSED = 1024


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """0: no limit."""

    parts_min: int = 0
    records_max: int = 0
    bytes_max: int = 128 << 20

    def parts(self, ranges: Sequence[QueueRange]) -> list[InputSplit]:
        """Cover `ranges` exactly once, without empty ranges. InvalidOption: more than SPLITS_MAX."""
        times = [(part, self._times(part)) for part in ranges if len(part)]
        total = sum(count for _, count in times)
        if total > SPLITS_MAX:
            raise InvalidOption(
                f"maxRecordsPerPartition or maxBytesPerPartition: they make {total} partitions, "
                f"at most {SPLITS_MAX} are allowed; set larger values"
            )
        small_ranges = self._split_further(
            [small for part, count in times for small in split_range(part, count)]
        )
        return self._combine(small_ranges)

    def _times(self, part: QueueRange) -> int:
        by_records = math.ceil(len(part) / self.records_max) if self.records_max else 1
        by_bytes = math.ceil(weight(part) / self.bytes_max) if self.bytes_max else 1
        return min(max(1, by_records, by_bytes), len(part))

    def _split_further(self, small_ranges: list[QueueRange]) -> list[QueueRange]:
        """Split the ranges in proportion to their weight until there are `parts_min`, or one for each
        message."""
        count_min = min(self.parts_min, sum(map(len, small_ranges)))
        if len(small_ranges) >= count_min:
            return small_ranges
        times = _shares([weight(small) for small in small_ranges], list(map(len, small_ranges)), count_min)
        return [
            part
            for small, count in zip(small_ranges, times, strict=True)
            for part in split_range(small, count)
        ]

    def bytes_per_split(self, ranges: Iterable[QueueRange]) -> int:
        """Target size of a split that combines several ranges."""
        total = sum(map(weight, ranges))
        return min(self.bytes_max or total, max(SMALL_BYTES, total // SPREAD))

    def _combine(self, small_ranges: list[QueueRange]) -> list[InputSplit]:
        size = self.bytes_per_split(small_ranges)
        parts: list[list[QueueRange]] = []
        taken = records = 0
        for index, small in enumerate(small_ranges):
            taken, records = taken + weight(small), records + len(small)
            fits = taken <= size and (not self.records_max or records <= self.records_max)
            if parts and fits and len(parts) + len(small_ranges) - index > self.parts_min:
                parts[-1].append(small)
            else:
                parts.append([small])
                taken, records = weight(small), len(small)
        return [tuple(part) for part in parts]


def weight(part: QueueRange) -> int:
    """Its size in bytes, or an estimate."""
    return part.size or len(part) * RECORD_BYTES_GUESSED


def split_range(part: QueueRange, times: int) -> list[QueueRange]:
    """Split `part` into `times` ranges of equal length, within one; sizes in proportion."""
    edges = [part.start + len(part) * index // times for index in range(times + 1)]
    return [
        QueueRange(
            part.queue, start, end, part.size * (end - start) // max(1, len(part)) or min(1, part.size)
        )
        for start, end in itertools.pairwise(edges)
        if end > start
    ]


def _shares(weights: list[int], highest: list[int], count_min: int) -> list[int]:
    """Whole numbers in proportion to `weights`, each from 1 to its `highest`, with the sum `count_min`."""
    total = sum(weights)
    shares = [
        max(1, min(top, weight * count_min // total)) for weight, top in zip(weights, highest, strict=True)
    ]
    while sum(shares) < count_min:
        growable = [index for index, share in enumerate(shares) if share < highest[index]]
        growable.sort(key=lambda index: shares[index] / weights[index])
        for index in growable[: count_min - sum(shares)]:
            shares[index] += 1
    return shares
