from firearrow._native.store.mappings import Mappings
from firearrow._native.store.reading import StoreReading
from firearrow._native.store.segment import Segment

class StoreCleaning(StoreReading):
    """What an open store gives up; the appender's thread."""

    @property
    def mappings(self) -> Mappings:
        """Of the queues' files."""
    def queues(self) -> list[tuple[str, int]]: ...
    def clean_queue(self, topic: str, queue_id: int, *, at_most: int = 1 << 30) -> tuple[bool, int]:
        """Move the queue's first readable entry to the log's start, delete at most so many files below it: (it moved,
        how many went). The caller syncs the folder before it goes on. OSError: what could not be deleted stands."""
    def let_go_index_files(self) -> list[Segment]:
        """Index files whose records are all gone, for the caller to discard."""
    def let_go_segment(self, *, modified_before_ms: int) -> Segment | None:
        """Take the oldest segment out of the log if its file was not written to since; the caller discards it, before
        the next one. None: it is too young, or the active one, or not on the disk."""
    def discard_segment(self, segment: Segment, *, reuse: bool) -> None:
        """Delete a segment that was let go, for good; with `reuse` the log's next file is made of it, if it can be.
        Another thread may call it. OSError: it may still stand; to be called again."""
    def drop_spare(self) -> None:
        """Delete the file that waits to be the log's next; the thread of `discard_segment`. OSError."""
    def clean_queues(self) -> int:
        """Delete queue files and index files that point only below the log's start; how many. For stores at rest."""
    def drop_segments(
        self, *, older_than_ms: int, now_ms: int, force: bool = False, at_most: int = 10
    ) -> int:
        """Delete the oldest whole log segments whose file was last modified before `now_ms - older_than_ms` (force:
        whatever their age), never the active one; queues and index follow. Returns how many. For stores at rest."""
