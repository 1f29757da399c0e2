from typing import final

from firearrow._native.store.files.segment import Segment

@final
class StoreCleaner:
    """Deletes the old files of an open store. `store.cleaner`, made by MessageStore only; the appender's thread."""

    @property
    def flushed_queues(self) -> int:
        """The log's offset up to which queues and index were on the disk when the checkpoint was written."""
    def clean_queue(self, topic: str, queue_id: int, *, at_most: int = 1 << 30) -> tuple[bool, int]:
        """Move the queue's first readable entry to the log's start, delete at most that many files below it: (it moved,
        how many were deleted). The caller syncs the folder before it goes on. OSError: that file is still there."""
    def let_go_index_files(self) -> list[Segment]:
        """Index files whose records are all gone, for the caller to discard."""
    def let_go_segment(self, *, modified_before_ms: int) -> Segment | None:
        """Detach the log's oldest segment if its file was not written to since; the caller discards it, before
        the next one. None: it is too young, or the active one, or not on the disk."""
    def discard_segment(self, segment: Segment, *, reuse: bool) -> None:
        """Delete a detached segment; with `reuse` the log's next file is made of it, if possible.
        Another thread may call it. OSError: the file may still be there; call it again."""
    def drop_spare(self) -> None:
        """Delete the file that waits to be the log's next; the thread of `discard_segment`. OSError."""
