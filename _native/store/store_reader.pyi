from collections.abc import Callable
from typing import final

from firearrow._native.store.get_message import GetResult
from firearrow._native.store.log.results import QueueEntry

def memory_bytes(percent: int = 40) -> int:
    """That share of the machine's memory."""

@final
class StoreReader:
    """What an open store answers. `store.reader`, made by MessageStore only; the appender's thread."""

    @property
    def confirmed(self) -> int:
        """The log's offset up to which records are visible here."""
    def set_limits(
        self,
        *,
        in_memory_bytes: int,
        bytes_in_memory: int,
        count_in_memory: int,
        bytes_on_disk: int,
        count_on_disk: int,
        filter_bytes: int,
    ) -> None:
        """What one `get` may return and examine (Apache's maxTransfer… and maxFilterMessageSize). A record within
        `in_memory_bytes` of the log's end counts as being in memory."""
    def queues(self) -> list[tuple[str, int]]: ...
    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int = 134217728,
        tags: frozenset[int] | None = None,
        accept: Callable[[memoryview], bool] | None = None,
    ) -> GetResult:
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
        """Within `in_memory_bytes` of the log's end."""
    def earliest_store_time(self) -> int: ...
