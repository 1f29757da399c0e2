"""How much of what is there one micro-batch takes: at most so many messages or bytes, or none before there are enough.

Arithmetic on offsets; the clock is passed in. One Limits belongs to one stream, and is used by one thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.plan.offsets import Offsets

CUTS_MAX = 8
SizeOf = Callable[[QueueRange], int]


@dataclass(slots=True)
class RateLimits:
    """0 is no limit."""

    messages_max: int = 0
    bytes_max: int = 0
    messages_min: int = 0
    delay_max_s: float = 900.0
    clock: Callable[[], float] = field(kw_only=True)
    """Seconds, monotonic."""
    _taken_at: float = field(init=False)
    """When messages were taken last."""

    def __post_init__(self) -> None:
        self._taken_at = self.clock()

    def end(
        self,
        starts: Mapping[MessageQueue, int],
        ends: Mapping[MessageQueue, int],
        size_of: SizeOf,
        at_once: bool,
    ) -> Offsets:
        """Where a batch ends that begins at `starts`, of messages up to `ends`; both name the same queues. `at_once`:
        nothing more will come, so nothing is waited for."""
        ranges = [QueueRange(queue, start, ends[queue]) for queue, start in starts.items()]
        waiting = sum(map(len, ranges))
        now = self.clock()
        if not at_once and waiting < self.messages_min and now - self._taken_at < self.delay_max_s:
            return dict(starts)
        self._taken_at = now
        if 0 < self.messages_max < waiting:
            ranges = shared(ranges, self.messages_max)
        if self.bytes_max:
            ranges = within_bytes(ranges, self.bytes_max, size_of)
        return {part.queue: part.end for part in ranges}


def shared(ranges: list[QueueRange], messages: int) -> list[QueueRange]:
    """The beginning of each, in proportion to its length, about `messages` together; who has some gets some."""
    waiting = sum(map(len, ranges))
    cut: list[QueueRange] = []
    for part in sorted(ranges, key=len):  # what small ones take more than their share, large ones have less
        share = min(len(part), max(1, len(part) * messages // max(1, waiting)))
        share = share if len(part) else 0
        waiting, messages = waiting - len(part), max(0, messages - share)
        cut.append(QueueRange(part.queue, part.start, part.start + share))
    return cut


def within_bytes(ranges: list[QueueRange], bytes_max: int, size_of: SizeOf) -> list[QueueRange]:
    """The beginning of each, about `bytes_max` together; none that has some gets nothing. Bodies may differ in size,
    so each is cut again by what its beginning really weighs."""
    sizes = [size_of(part) if len(part) else 0 for part in ranges]
    total = sum(sizes)
    if total <= bytes_max:
        return ranges
    return [
        _cut(part, size * bytes_max // total, size, size_of) for part, size in zip(ranges, sizes, strict=True)
    ]


def _cut(part: QueueRange, room: int, size: int, size_of: SizeOf) -> QueueRange:
    count = len(part)
    for _ in range(CUTS_MAX):
        if size > room and count > 1:
            count = max(1, count * room // size)
            size = size_of(QueueRange(part.queue, part.start, part.start + count))
    return QueueRange(part.queue, part.start, part.start + count)
