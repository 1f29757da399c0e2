from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import final

from firearrow._native.store.files.errors import StoreDamaged as StoreDamaged
from firearrow._native.store.files.errors import StoreError as StoreError
from firearrow._native.store.files.errors import StoreForeign as StoreForeign
from firearrow._native.store.files.errors import StoreLocked as StoreLocked
from firearrow._native.store.files.mmap_budget import Mappings
from firearrow._native.store.get_message import GetResult as GetResult
from firearrow._native.store.get_message import GetStatus as GetStatus
from firearrow._native.store.log.results import PutRefused as PutRefused
from firearrow._native.store.log.results import PutResult as PutResult
from firearrow._native.store.log.results import PutStatus as PutStatus
from firearrow._native.store.log.results import QueueEntry as QueueEntry
from firearrow._native.store.store_cleaner import StoreCleaner
from firearrow._native.store.store_reader import StoreReader

@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How a store is opened (Apache: MessageStoreConfig). File sizes must match those of existing files."""

    commitlog_path: str | None = None
    """Folder of the log; None: `commitlog` in the store folder."""
    segment_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000
    index_enabled: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    max_message_bytes: int = 4 << 20
    check_crc: bool = True
    """Recovery checks the CRC of bodies."""
    sync_flush: bool = False
    """Readers see a message only after `confirm`, which the caller calls after a sync."""
    confirm_later: bool = False
    """Readers see a message only after `confirm`, also without `sync_flush`, and what was not confirmed before a stop
    or a kill only after it is."""
    delay_levels_ms: Sequence[int] = ...
    lmq: bool = False
    """Messages may name LMQs (%LMQ%…) that get an entry, too."""
    truncate_at: int | None = None
    """A record's physical offset, where the log is to end if it is longer: what comes later is kept under
    `damaged/`, queues and index follow. StoreDamaged: no record begins there."""

@final
class InnerMessage:
    """A message or batch to be stored (Apache: MessageExtBrokerInner). Only the store reads it.

    Hosts: 4 or 16 address bytes + i32 port; the store sets the IPv6 bits of `sys_flag`. tagsCode and keys are
    taken from `properties`. A batch has all items in `body`, with their own properties and flags.
    """

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None: ...

class MessageStore:
    """An open store folder. One thread makes all calls but those noted; readers see entries below
    `confirmed`."""

    reader: StoreReader
    cleaner: StoreCleaner
    @staticmethod
    def open(
        root: str | PathLike[str],
        config: StoreConfig = ...,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> MessageStore:
        """Lock the folder, recover it (truncate the torn tail, rebuild queues and index), write `abort`.

        StoreLocked: another broker uses it. StoreForeign: not a store of ours or Apache's, or other file
        sizes. StoreDamaged: damage that recovery must not remove. OSError: disk full, no permission.
        """
    # --- appending (one thread) ---
    def put(self, inner: InnerMessage, *, now_ms: int) -> PutResult:
        """Stage one message. PutRefused."""
    def put_batch(self, inner: InnerMessage, *, now_ms: int) -> PutResult:
        """Stage all items of a batch or none, in one segment. PutRefused."""
    def next_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the next message; -1 if the queue does not exist yet."""
    def queue_ends(self, topic: str) -> dict[int, int]:
        """Queue → offset of its next message, of the topic's queues that exist."""
    def records_end(self, topic: str) -> int:
        """Physical end of the last record in the topic's queues, also of one that readers do not see yet."""
    @property
    def lmq_count(self) -> int:
        """Number of LMQs: queues whose topic starts with %LMQ%."""
    def write(self) -> int:
        """Write all staged messages with one `pwrite`, then queue and index entries; returns the end of the
        log. OSError, MemoryError: the staged messages are dropped, all positions are as before, nothing
        half-written is visible. StoreDamaged: likewise, but the write could not be rolled back, and the store
        refuses further puts."""
    def sync(self) -> int:
        """fdatasync the log up to `written`; returns that offset. Releases the GIL; one other thread may call
        it. OSError."""
    def confirm(self, physical_offset: int) -> None:
        """With `sync_flush` or `confirm_later`: make entries visible whose record ends at or below this
        offset. With `confirm_later`, the file `confirmOffset` keeps what was confirmed: the next open hides the
        rest of the log."""
    def whole_log_visible(self) -> AbstractContextManager[None]:
        """A context in which readers see also what was not confirmed when the store was opened: for services that
        restore their state from the log."""
    def hidden_queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of queues with entries that are not confirmed."""
    def flush_queues(self, seal: bool = False) -> int:
        """Sync queue files and index, write the checkpoint; returns how many queues had unsynced data. One
        other thread may call it; releases the GIL. OSError."""
    def prepare(self) -> None:
        """Call before a sync: create the next segment if the active one is half full, preallocate blocks for
        the writes during the sync. One other thread may call it; releases the GIL. OSError: the segment was
        not created."""
    root: str
    findings: tuple[str, ...]
    """Damage found at the open and what was done about it, a line each."""
    @property
    def staged_bytes(self) -> int: ...
    @property
    def written(self) -> int: ...
    @property
    def flushed(self) -> int: ...
    @property
    def min_physical(self) -> int: ...
    @property
    def mappings(self) -> Mappings:
        """The mapped queue files."""
    def log_bytes(self, physical_offset: int, at_most: int) -> memoryview | None:
        """The log's bytes from an offset on, read only and not copied: `at_most`, to the end of their file, and
        to `written`. None: there are none. Release it soon: its file stays mapped meanwhile, also if it is
        deleted. OSError."""
    @property
    def run(self) -> str:
        """Name of this run: the same after a kill, a new one after a clean stop or a run of Apache's
        broker."""
    @property
    def writable(self) -> bool:
        """False after an I/O error that leaves the disk's content uncertain: puts are refused, reads still
        work."""
    max_message_bytes: int
    confirm_limit: int
    """With `confirm_later`, `confirm` makes nothing visible after this: a slave's master says what is confirmed."""
    follows: bool
    """Whether the log follows a master's (`Follower`): then puts are refused."""
    # --- housekeeping ---
    def drop_topic(self, topic: str, queue_id: int = -1) -> int:
        """Delete the consume queues of a topic, or one of them; returns how many. The log keeps the
        records."""
    full: str | None
    """Set while the disk is too full: why puts are refused (reads still work); otherwise None."""
    stopped: str | None
    """Set while a service thread is missing: why puts and writes are refused, so that nothing more is acknowledged;
    otherwise None. `close` still syncs all that was written."""
    def close(self, clean: bool = True) -> None:
        """Flush everything, write the checkpoint, delete `abort` and the prepared segment, unlock.
        Idempotent. OSError leaves `abort` in place.

        `clean=False`: `abort` stays, so that the next open continues this run and its journal."""
    def abandon(self) -> None:
        """For tests: release files and lock as a killed process would, without a flush; `abort` stays."""
    def __enter__(self) -> MessageStore: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
