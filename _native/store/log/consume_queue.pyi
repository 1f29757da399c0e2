from collections.abc import Iterator
from os import PathLike
from types import TracebackType
from typing import Any

from firearrow._native.store.files.mmap_budget import Mappings
from firearrow._native.store.log.commit_log import CommitLog

ENTRY_FIELDS: list[tuple[str, str]]

class ConsumeQueue:
    """The entries of one topic and queue. Offsets count entries; readers see those below `visible`."""

    topic: str
    queue_id: int
    folder: str
    file_bytes: int
    readonly: bool
    min_entry: int
    visible: int
    end_entry: int
    next_entry: int
    max_physical: int
    first_entry: int
    """First entry of the first file."""
    @staticmethod
    def open(
        folder: str | PathLike[str], topic: str, queue_id: int, file_bytes: int, mappings: Mappings
    ) -> ConsumeQueue: ...
    @staticmethod
    def open_readonly(folder: str | PathLike[str], file_bytes: int = 0) -> ConsumeQueue:
        """Open `consumequeue/TOPIC/QUEUE` for reading, also while a broker writes; takes no lock."""
    def close(self) -> None: ...
    def __enter__(self) -> ConsumeQueue: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def entries(self, entry: int, count: int) -> list[tuple[int, int, int]]:
        """(physical offset, record size, tags code) of up to `count` visible entries."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[int, int, int]]: ...
    def arrays(self) -> list[Any]:
        """numpy views of the entries, one structured array per file: big-endian fields, nothing copied."""
    def offset_by_time(self, log: CommitLog, timestamp_ms: int, upper: bool = False) -> int: ...
    def store_time(self, log: CommitLog, entry: int) -> int: ...
    def drop_old_files(self, at_most: int) -> int: ...
    def delete(self) -> None: ...
    def sync(self) -> bool: ...
