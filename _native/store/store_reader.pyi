from collections.abc import Callable
from typing import final

from firearrow._native.store.get_message import GetResult
from firearrow._native.store.log.results import QueueEntry

COMPARED_MAX: int

def memory_bytes(percent: int = 40) -> int:
    """`percent` of the machine's memory."""

@final
class StoreReader:
    """Read access to an open store. Available as `store.reader`; the appender's thread."""

    @property
    def confirmed(self) -> int:
        """Records below this offset of the log are visible."""
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
        """Limits of one `get` (Apache's maxTransfer… and maxFilterMessageSize). Records within
        `in_memory_bytes` of the end of the log count as in memory."""
    def queues(self) -> list[tuple[str, int]]: ...
    def queue_ids(self, topic: str) -> list[int]:
        """The queues of the topic, in order."""
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
        """Apache's getMessage. `tags`: tags codes that match, None for all; `accept` is called with each
        record that passes them (SQL filters). A queue that does not exist counts as empty and is not created.
        OSError."""
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int:
        """Exclusive; confirmed entries only. 0 for an unknown queue."""
    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time (ms) of a message, -1 if it does not exist."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """Queue offset of the first message stored at or after a time; `upper`: of the last one at or before
        it."""
    def record_at(self, physical_offset: int, *, unconfirmed: bool = False) -> bytes | None:
        """The record that starts at an offset, which may come from outside; None if no queue's entry points to one
        there, also if its topic was deleted, or its queue was trimmed of it. `unconfirmed`: also one that readers do
        not see yet."""
    def begins_record(self, physical_offset: int) -> bool | None:
        """Whether a record begins at an offset: True if a queue's entry points to it. None: what looks like one there
        has no entry, as in a body, or of a deleted topic; only a walk to it by `skip_records` can say."""
    def skip_records(self, physical_offset: int, until: int, max_bytes: int) -> int:
        """Walk from a record's start over whole records to `until`, in one file of the log: from the file's first
        record if that comes later. Where the walk ended: at the first record from `until` on, or at least `max_bytes`
        further, or before something that is no record. -1: the log does not have `until`."""
    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueEntry]: ...
    def query(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        tag: bool = False,
        *,
        unconfirmed: bool = False,
    ) -> tuple[list[bytes], int, int]:
        """(the newest `max_count` records with the key, oldest first; the index's last store time; its last
        physical offset). At most COMPARED_MAX records of the key's hash are compared, the newest ones.
        `unconfirmed`: also records that readers do not see yet."""
    def drain_entry_repairs(self) -> list[str]:
        """A line for each wrong queue entry that readers found since the last call. Any thread."""
    def is_near_end(self, physical_offset: int) -> bool:
        """Whether it is within `in_memory_bytes` of the end of the log."""
    def earliest_store_time(self) -> int: ...
