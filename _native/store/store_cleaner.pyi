from typing import final

from firearrow._native.store.files.segment import Segment

@final
class StoreCleaner:
    """Deletes the old files of an open store. Available as `store.cleaner`; the appender's thread."""

    @property
    def flushed_queues(self) -> int:
        """Queues and index are durable up to this offset of the log, as of the last checkpoint."""
    def clean_queue(self, topic: str, queue_id: int, *, at_most: int = 1 << 30) -> tuple[bool, int]:
        """Move the queue's first readable entry to the start of the log and delete at most `at_most` files
        below it: (whether it moved, files deleted). The caller syncs the folder before the next step.
        OSError: the file still exists."""
    def trim_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Make `queue_offset` the queue's first readable entry. Returns the physical offset below which its
        records are hidden from all readers; 0: nothing is before that entry, or it does not exist. OSError."""
    def hide_below(self, topic: str, queue_id: int, physical_offset: int) -> None:
        """Hide the queue's records below a physical offset, as `trim_queue` did in an earlier run. OSError."""
    def forget_trim(self, topic: str, queue_id: int) -> None:
        """The log has none of the hidden records any more."""
    def first_physical(self, topic: str, queue_id: int) -> int:
        """Physical offset of the queue's first readable entry; -1: it has none. OSError."""
    @property
    def knows_all_queues(self) -> bool:
        """False in a store of Apache's that has batch queues, which are not read."""
    def detach_index_files(self) -> list[Segment]:
        """Detach the index files whose records are all deleted, for the caller to discard."""
    def detach_segment(self, *, modified_before_ms: int, until: int = ...) -> Segment | None:
        """Detach the oldest segment if its file was not modified since; the caller discards it before it
        detaches the next one. None: it is too young, active, not flushed, or ends above `until`."""
    def discard_segment(self, segment: Segment, *, reuse: bool) -> None:
        """Delete a detached segment; with `reuse`, recycle it as the log's next segment if possible. One
        other thread may call it. OSError: the file may still exist; call it again."""
    def drop_recycled(self) -> None:
        """Delete the recycled segment; the thread of `discard_segment`. OSError."""
