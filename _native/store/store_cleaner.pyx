"""StoreCleaner: deletes the old files of an open store (see store_cleaner.pxd). The caller decides when."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.base.endian cimport get_i64
from firearrow._native.store.files.layout cimport ENTRY_BYTES
from firearrow._native.store.log.batch_consume_queue cimport entry_with, first_offset, visible_offset
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.store_reader cimport StoreReader

from firearrow._native.store.files.exclusive_file import delete_recycled

ANY_END = (1 << 63) - 1


@cython.final
cdef class StoreCleaner:
    """Deletes the old files of an open store. Available as `store.cleaner`; the appender's thread."""

    def __init__(self, StoreReader reader not None):
        self.reader, self.log, self.index = reader, reader.log, reader.index

    def clean_queue(self, str topic not None, int64_t queue_id, *, int64_t at_most=1 << 30):
        # type: (...) -> tuple[bool, int]
        """Move the queue's first readable entry to the start of the log and delete at most `at_most` files
        below it: (whether it moved, files deleted). The caller syncs the folder before the next step.
        OSError: the file still exists."""
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        cdef int64_t before
        if queue is None:
            return False, 0
        before = queue.min_entry
        trimmed = self.reader.dispatch.trims.get((topic.encode("utf-8", "replace"), queue_id), 0)
        queue.correct_min(max(self.log.min_offset, trimmed))
        return queue.min_entry > before, queue.drop_old_files(at_most)

    def trim_queue(self, str topic not None, int64_t queue_id, int64_t queue_offset):
        # type: (...) -> int
        """Make the entry of `queue_offset` the queue's first readable one. Returns the physical offset below
        which its records are hidden from all readers; 0: nothing is before that entry, or it does not exist.
        OSError."""
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        cdef uint8_t entry[ENTRY_BYTES]
        cdef int64_t physical
        cdef int64_t number
        if queue is None or not first_offset(queue) < queue_offset <= visible_offset(queue):
            return 0
        number = entry_with(queue, queue_offset)
        physical = get_i64(entry) if queue.look(number, entry) else queue.max_physical
        self.hide_below(topic, queue_id, physical)
        return physical

    def hide_below(self, str topic not None, int64_t queue_id, int64_t physical_offset):
        # type: (...) -> None
        """Hide the queue's records below a physical offset, as `trim_queue` did in an earlier run. OSError.
        """
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        key = topic.encode("utf-8", "replace"), queue_id
        trims = self.reader.dispatch.trims
        trims[key] = max(physical_offset, trims.get(key, 0))
        if queue is not None:
            queue.correct_min(physical_offset)

    def forget_trim(self, str topic not None, int64_t queue_id):
        # type: (...) -> None
        """The log has none of the hidden records any more."""
        self.reader.dispatch.trims.pop((topic.encode("utf-8", "replace"), queue_id), None)

    def first_physical(self, str topic not None, int64_t queue_id):
        # type: (...) -> int
        """Physical offset of the queue's first readable entry; -1: it has none. OSError."""
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        cdef uint8_t entry[ENTRY_BYTES]
        if queue is None or queue.min_entry >= queue.end_entry or not queue.look(queue.min_entry, entry):
            return -1
        return get_i64(entry)

    def detach_index_files(self):
        # type: (...) -> list[Segment]
        """Detach the index files whose records are all deleted, for the caller to discard."""
        return [] if self.index is None else self.index.drop_below(self.log.min_offset)

    def detach_segment(self, *, int64_t modified_before_ms, int64_t until=ANY_END):
        # type: (...) -> Segment | None
        """Detach the oldest segment if its file was not modified since; the caller discards it before it
        detaches the next one. None: it is too young, active, not flushed, or ends above `until`."""
        if len(self.log.bases) < 2 or self.log.bases[1] > min(
            until, self.reader.confirmed, self.flushed_queues
        ):
            return None  # after a crash queues may end below it, and only the log shows where they ended
        if self.log.first_modified_ms() > modified_before_ms:
            return None
        return self.log.detach_oldest()

    def discard_segment(self, segment, *, bint reuse):
        # type: (Segment, bool) -> None
        """Delete a detached segment; with `reuse`, recycle it as the log's next segment if possible. One
        other thread may call it. OSError: the file may still exist; call it again."""
        if reuse:
            self.log.recycled.recycle(segment)
        delete_recycled(segment)

    def drop_recycled(self):
        # type: (...) -> None
        """Delete the recycled segment; the thread of `discard_segment`. OSError."""
        self.log.recycled.drop()
