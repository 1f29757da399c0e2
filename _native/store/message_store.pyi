from collections.abc import Callable, Sequence
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
    """How a store is opened (Apache: MessageStoreConfig). Sizes of files must be those of the files already there."""

    commitlog_path: str | None = None
    """The log's folder; None: `commitlog` in the store's."""
    segment_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000
    index_enabled: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    max_message_bytes: int = 4 << 20
    check_crc: bool = True
    """Whether recovery checks the bodies' CRC."""
    sync_flush: bool = False
    """Readers see a message only after `confirm`."""
    delay_levels_ms: Sequence[int] = ...
    lmq: bool = False
    """Messages may name light queues (%LMQ%…) that get an entry, too."""

@final
class InnerMessage:
    """A message or a batch, as it goes into the store (Apache: MessageExtBrokerInner). Only the store reads it.

    Hosts are 4 or 16 address bytes + i32 port; the store sets the IPv6 bits of `sys_flag`. tagsCode and keys are read
    from `properties`. Of a batch, `body` has all items, with properties and flags of their own (wire-protocol §3.4).
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
    """One open store folder. One thread calls everything but `sync`; readers see entries below `confirmed` only."""

    reader: StoreReader
    cleaner: StoreCleaner
    @staticmethod
    def open(
        root: str | PathLike[str],
        config: StoreConfig = ...,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> MessageStore:
        """Lock the folder, recover it (cut the torn tail, rebuild queues and index), write `abort`.

        Raises StoreLocked (another broker has it), StoreForeign (no store of ours or Apache's, or other file sizes),
        StoreDamaged (damage that recovery may not cut), OSError (disk full, no permission).
        """
    # --- appending (one thread) ---
    def put(self, given: InnerMessage, *, now_ms: int) -> PutResult:
        """Stage one message. PutRefused."""
    def put_batch(self, given: InnerMessage, *, now_ms: int) -> PutResult:
        """Stage every item of a batch's body, all or none, in one segment. PutRefused."""
    def next_offset(self, topic: str, queue_id: int) -> int:
        """Where the next message that is put will stand in the queue; -1 if there is no such queue yet."""
    @property
    def light_queues(self) -> int:
        """How many queues have a name with %LMQ% in front."""
    def write(self) -> int:
        """One `pwrite` of all that is staged, then queue and index entries; returns the log's end. OSError,
        MemoryError: nothing staged stays, every position is as before, nothing half-written is visible.
        StoreDamaged: the same, but a part could not be taken back, and the store takes no more puts."""
    def sync(self) -> int:
        """fdatasync the log up to what was written when called; returns that offset. Without the GIL; one other
        thread may call it."""
    def confirm(self, physical_offset: int) -> None:
        """Under sync_flush: readers may see entries whose record ends at or below this."""
    def flush_queues(self, seal: bool = False) -> int:
        """Bring queue files, index and checkpoint to disk; how many queues had something. Another thread may call it;
        releases the GIL."""
    def prepare(self) -> None:
        """Create the next segment file if the active one is half full, and give the log disk space for what comes while
        the next sync runs: to be called before it. Another thread may call it; releases the GIL."""
    root: str
    findings: tuple[str, ...]
    """What the open found damaged and did about it, a line each."""
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
        """Of the queues' files."""
    @property
    def run(self) -> str:
        """Name of this run; the same after a kill, another one after a clean stop or when Apache's broker was here."""
    @property
    def writable(self) -> bool:
        """False after a broken promise of the store (an I/O error that left a doubt): puts are refused, reads go on."""
    max_message_bytes: int
    # --- house keeping ---
    def drop_topic(self, topic: str) -> int:
        """Delete the consume queues of a topic; returns how many. The log keeps its records."""
    full: str | None
    """How full the disk is, set while it is too full to take messages: puts are refused, reads go on."""
    def close(self, clean: bool = True) -> None:
        """Flush everything, write the checkpoint, delete `abort` and the prepared segment, unlock. Idempotent.

        `clean=False`: `abort` stays, so that the next opening goes on with this run and its journal."""
    def abandon(self) -> None:
        """Let go of files and lock as a killed process would: nothing is flushed, `abort` stays. For tests."""
    def __enter__(self) -> MessageStore: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
