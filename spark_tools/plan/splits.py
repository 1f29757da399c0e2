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
        pieces = self._enough([piece for part, count in times for piece in split_range(part, count)])
        return self._together(pieces)

    def _times(self, part: QueueRange) -> int:
        by_records = math.ceil(len(part) / self.records_max) if self.records_max else 1
        by_bytes = math.ceil(weight(part) / self.bytes_max) if self.bytes_max else 1
        return min(max(1, by_records, by_bytes), len(part))

    def _enough(self, pieces: list[QueueRange]) -> list[QueueRange]:
        """Split the pieces in proportion to their weight until there are `parts_min`, or one for each
        message."""
        wanted = min(self.parts_min, sum(map(len, pieces)))
        if len(pieces) >= wanted:
            return pieces
        times = _shares([weight(piece) for piece in pieces], list(map(len, pieces)), wanted)
        return [
            part for piece, count in zip(pieces, times, strict=True) for part in split_range(piece, count)
        ]

    def bytes_per_split(self, ranges: Iterable[QueueRange]) -> int:
        """Target size of a split that combines several pieces."""
        total = sum(map(weight, ranges))
        return min(self.bytes_max or total, max(SMALL_BYTES, total // SPREAD))

    def _together(self, pieces: list[QueueRange]) -> list[InputSplit]:
        size = self.bytes_per_split(pieces)
        parts: list[list[QueueRange]] = []
        taken = records = 0
        for index, piece in enumerate(pieces):
            taken, records = taken + weight(piece), records + len(piece)
            fits = taken <= size and (not self.records_max or records <= self.records_max)
            if parts and fits and len(parts) + len(pieces) - index > self.parts_min:
                parts[-1].append(piece)
            else:
                parts.append([piece])
                taken, records = weight(piece), len(piece)
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


def _shares(weights: list[int], highest: list[int], wanted: int) -> list[int]:
    """Whole numbers in proportion to `weights`, each from 1 to its `highest`, with the sum `wanted`."""
    total = sum(weights)
    shares = [
        max(1, min(top, weight * wanted // total)) for weight, top in zip(weights, highest, strict=True)
    ]
    while sum(shares) < wanted:
        open_ones = [index for index, share in enumerate(shares) if share < highest[index]]
        open_ones.sort(key=lambda index: shares[index] / weights[index])
        for index in open_ones[: wanted - sum(shares)]:
            shares[index] += 1
    return shares
