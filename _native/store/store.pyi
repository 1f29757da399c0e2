from collections.abc import Callable, Sequence
from os import PathLike
from types import TracebackType

from firearrow._native.store.faults import StoreDamaged as StoreDamaged
from firearrow._native.store.faults import StoreError as StoreError
from firearrow._native.store.faults import StoreForeign as StoreForeign
from firearrow._native.store.faults import StoreLocked as StoreLocked
from firearrow._native.store.fetch import GetStatus as GetStatus
from firearrow._native.store.fetch import Got as Got
from firearrow._native.store.places import Placed as Placed
from firearrow._native.store.places import PutRefused as PutRefused
from firearrow._native.store.places import PutStatus as PutStatus
from firearrow._native.store.places import QueueEntry as QueueEntry

def memory_bytes(percent: int = 40) -> int:
    """So much of the machine's memory."""

class MessageStore:
    """One open store folder. One thread calls everything but `sync`; readers see entries below `confirmed` only."""

    @staticmethod
    def open(
        root: str | PathLike[str],
        *,
        commitlog_path: str | None = None,
        segment_bytes: int = 1 << 30,
        queue_file_bytes: int = 6_000_000,
        index_enabled: bool = True,
        index_slots: int = 5_000_000,
        index_entries: int = 20_000_000,
        max_message_bytes: int = 4 << 20,
        check_crc: bool = True,
        sync_flush: bool = False,
        delay_levels_ms: Sequence[int] = ...,
        lmq: bool = False,
        in_memory_bytes: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> MessageStore:
        """Lock the folder, recover it (cut the torn tail, rebuild what is behind), write `abort`.

        Raises StoreLocked (another broker has it), StoreForeign (not a store of ours or Apache's, or made with other file sizes),
        StoreDamaged (damage that recovery may not cut), OSError (disk full, no permission).
        """
    # --- appending (one thread) ---
    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        now_ms: int,
    ) -> Placed:
        """Stage one message. Hosts are 4 or 16 address bytes + i32 port; the IPv6 bits of sys_flag are set here; tagsCode and
        keys are read from `properties`. Raises PutRefused."""
    def put_batch(
        self,
        topic: str,
        queue_id: int,
        items: bytes,
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int = 0,
        now_ms: int,
    ) -> Placed:
        """Stage every item of a batch body (wire-protocol §3.4), all or none, contiguous in one segment. Raises PutRefused."""
    def write(self) -> int:
        """One `pwrite` of all that is staged, then queue and index entries; returns the log's end. OSError: nothing staged stays,
        every position is as before, nothing half-written is visible."""
    def sync(self) -> int:
        """fdatasync the log up to what was written when called; returns that offset. Any one other thread; releases the GIL."""
    def confirm(self, physical_offset: int) -> None:
        """Under sync_flush: readers may see entries whose record ends at or below this."""
    def flush_queues(self, seal: bool = False) -> None:
        """Bring queue files, index and checkpoint to disk. Another thread may call it; releases the GIL."""
    def prepare(self) -> None:
        """Create the next segment file if the active one is half full. Another thread may call it; releases the GIL."""
    root: str
    @property
    def staged_bytes(self) -> int: ...
    @property
    def written(self) -> int: ...
    @property
    def flushed(self) -> int: ...
    @property
    def confirmed(self) -> int: ...
    @property
    def min_physical(self) -> int: ...
    @property
    def writable(self) -> bool:
        """False after a broken promise of the store (an I/O error that left a doubt): puts are refused, reads go on."""
    # --- reading ---
    in_memory_bytes: int
    max_message_bytes: int
    def set_limits(
        self, *, bytes_in_memory: int, count_in_memory: int, bytes_on_disk: int, count_on_disk: int, filter_bytes: int
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
        """The whole of Apache's getMessage (store-and-broker §3.1). `tags`: hashes that match, None for all; `accept` is asked with each
        record that passed (SQL filters). Queues that do not exist answer as empty ones and are not created."""
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
    def is_near_end(self, physical_offset: int) -> bool:
        """Within 40 % of memory of the log's end."""
    def earliest_store_time(self) -> int: ...
    # --- house keeping ---
    def queues(self) -> list[tuple[str, int]]: ...
    def drop_topic(self, topic: str) -> int:
        """Delete the consume queues of a topic; returns how many. The log keeps its records."""
    def clean_queues(self) -> int:
        """Delete queue files and index files that point only below the log's start (306)."""
    def drop_segments(self, *, older_than_ms: int, now_ms: int, force: bool = False, at_most: int = 10) -> int:
        """Delete the oldest whole log segments whose file was last modified before `now_ms - older_than_ms` (force: whatever their age),
        never the active one; queues and index follow. Returns how many."""
    def close(self) -> None:
        """Flush everything, write the checkpoint, delete `abort` and the prepared segment, unlock. Idempotent."""
    def abandon(self) -> None:
        """Let go of files and lock as a killed process would: nothing is flushed, `abort` stays. For tests."""
    def __enter__(self) -> MessageStore: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
