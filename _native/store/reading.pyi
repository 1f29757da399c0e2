from collections.abc import Callable

from firearrow._native.store.fetch import Got
from firearrow._native.store.places import QueueEntry

class StoreReading:
    """What an open store answers; the reading half of MessageStore, never made alone."""

    @property
    def confirmed(self) -> int: ...
    in_memory_bytes: int
    def set_limits(
        self,
        *,
        bytes_in_memory: int,
        count_in_memory: int,
        bytes_on_disk: int,
        count_on_disk: int,
        filter_bytes: int,
    ) -> None:
        """What one `get` may give and examine (Apache's maxTransfer… and maxFilterMessageSize)."""
    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int = 134217728,
        tags: frozenset[int] | None = None,
        accept: Callable[[memoryview], bool] | None = None,
    ) -> Got:
        """The whole of Apache's getMessage (store-and-broker §3.1). `tags`: hashes that match, None for all;
        `accept` is asked with each record that passed (SQL filters). Queues that do not exist answer as empty ones and
        are not made."""
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int:
        """Exclusive; counts confirmed entries. 0 for an unknown queue."""
    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store timestamp of that message, -1 if it is not there."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """store-and-broker §3.3."""
    def record_at(self, physical_offset: int) -> bytes | None:
        """The whole record that starts there; None if there is none (every field is checked before it is believed)."""
    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueEntry]: ...
    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, tag: bool = False
    ) -> tuple[list[bytes], int, int]:
        """Records whose key hash matches, oldest first; the index's last store time and last physical offset (§3.4)."""
    def take_strays(self) -> list[str]:
        """Queue entries that led to no good record, met since the last call: a line each. Any thread."""
    def is_near_end(self, physical_offset: int) -> bool:
        """Within 40 % of memory of the log's end."""
    def earliest_store_time(self) -> int: ...
