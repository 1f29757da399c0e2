from collections.abc import Callable, Mapping

from firearrow._native.fastpath.topic_cache import Count
from firearrow._native.store.store_reader import StoreReader

def label_value(text: str) -> bytes:
    """The text as the value of a label: escaped UTF-8."""

class LagTable:
    """One snapshot of how far each group is behind, by topic and queue. At most `rows_max` rows are kept."""

    count: int
    """Rows: pairs of group and topic."""
    queue_count: int
    beyond_count: int
    """Rows that were not kept; their sum is."""
    beyond_queue_count: int
    def __init__(
        self,
        reader: StoreReader,
        *,
        now_ms: int,
        rows_max: int,
        is_system_topic: Callable[[str], bool],
        is_system_group: Callable[[str], bool],
    ) -> None: ...
    def add(
        self,
        keys: list[str],
        start: int,
        end: int,
        committed: Mapping[str, dict[int, int]],
        pulled: Mapping[str, dict[int, int]],
        in_flight: Mapping[tuple[str, str], int],
        gets: Mapping[str, tuple[Count, Count]],
    ) -> None:
        """Add the rows of `keys[start:end]` (`topic@group`). `committed`, `pulled`: key → queue → offset;
        `in_flight`: (group, topic) → popped messages that are not acknowledged; `gets`: key → messages
        and bytes that the group got. Loop thread."""
    def sums(self) -> tuple[int, ...]:
        """Over all rows the values of `lines`: sums, and of ages the highest."""
    def rows_behind(self, least: int = 1) -> list[tuple[str, str, bool, int, int]]:
        """Group, topic, whether that is a retry topic, lag in messages and ms, of each row behind by `least`."""
    def lines(self, value: int, name: bytes, common: bytes, start: int, end: int) -> bytes:
        """Lines of the scrape for these rows. `value`: 0 lag, 1 ready, 2 in flight, 3 age of the lag and 4 of the
        ready ones in ms, 5 messages and 6 bytes got; `common`: the labels of every series. Any thread."""
    def queue_lines(self, ages: bool, name: bytes, common: bytes, start: int, end: int) -> bytes:
        """Lines of the scrape for these rows of queues: messages, or ages in seconds. Any thread."""
    def overflow(self) -> tuple[tuple[int, ...], tuple[int, int]]:
        """The values of all rows that were not kept, and lag and age in ms of all queues that were not."""
