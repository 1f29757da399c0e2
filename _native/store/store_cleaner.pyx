"""StoreCleaner: deletes the old files of an open store (see store_cleaner.pxd). The caller decides when."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.base.endian cimport get_i64
from firearrow._native.store.files.layout cimport ENTRY_BYTES
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.store_reader cimport StoreReader

from firearrow._native.store.files.exclusive_file import delete_recycled

ANY_END = (1 << 63) - 1


@cython.final
cdef class StoreCleaner:
    def __init__(self, StoreReader reader not None):
        self.reader, self.log, self.index = reader, reader.log, reader.index

    def clean_queue(self, str topic not None, int64_t queue_id, *, int64_t at_most=1 << 30):
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        cdef int64_t before
        if queue is None:
            return False, 0
        before = queue.min_entry
        trimmed = self.reader.dispatch.trims.get((topic.encode("utf-8", "replace"), queue_id), 0)
        queue.correct_min(max(self.log.min_offset, trimmed))
        return queue.min_entry > before, queue.drop_old_files(at_most)

    def trim_queue(self, str topic not None, int64_t queue_id, int64_t queue_offset):
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        cdef uint8_t entry[ENTRY_BYTES]
        cdef int64_t physical
        if queue is None or not queue.min_entry < queue_offset <= queue.visible:
            return 0
        physical = get_i64(entry) if queue.look(queue_offset, entry) else queue.max_physical
        self.hide_below(topic, queue_id, physical)
        return physical

    def hide_below(self, str topic not None, int64_t queue_id, int64_t physical_offset):
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        key = topic.encode("utf-8", "replace"), queue_id
        trims = self.reader.dispatch.trims
        trims[key] = max(physical_offset, trims.get(key, 0))
        if queue is not None:
            queue.correct_min(physical_offset)

    def forget_trim(self, str topic not None, int64_t queue_id):
        self.reader.dispatch.trims.pop((topic.encode("utf-8", "replace"), queue_id), None)

    def first_physical(self, str topic not None, int64_t queue_id):
        cdef ConsumeQueue queue = self.reader.queue(topic, queue_id)
        cdef uint8_t entry[ENTRY_BYTES]
        if queue is None or queue.min_entry >= queue.end_entry or not queue.look(queue.min_entry, entry):
            return -1
        return get_i64(entry)

    @property
    def knows_all_queues(self):
        return not self.reader.dispatch.batch_topics

    def detach_index_files(self):
        return [] if self.index is None else self.index.drop_below(self.log.min_offset)

    def detach_segment(self, *, int64_t modified_before_ms, int64_t until=ANY_END):
        if len(self.log.bases) < 2 or self.log.bases[1] > min(
            until, self.reader.confirmed, self.flushed_queues
        ):
            return None  # after a crash queues may end below it, and only the log shows where they ended
        if self.log.first_modified_ms() > modified_before_ms:
            return None
        return self.log.detach_oldest()

    def discard_segment(self, segment, *, bint reuse):
        if reuse:
            self.log.recycled.recycle(segment)
        delete_recycled(segment)

    def drop_recycled(self):
        self.log.recycled.drop()
