"""StoreCleaner: deletes the old files of an open store (see store_cleaner.pxd). The caller decides when."""

cimport cython
from libc.stdint cimport int64_t

from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.store_reader cimport StoreReader

from firearrow._native.store.files.exclusive_file import delete_recycled


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
        queue.correct_min(self.log.min_offset)
        return queue.min_entry > before, queue.drop_old_files(at_most)

    def detach_index_files(self):
        return [] if self.index is None else self.index.drop_below(self.log.min_offset)

    def detach_segment(self, *, int64_t modified_before_ms):
        if len(self.log.bases) < 2 or self.log.bases[1] > min(self.reader.confirmed, self.flushed_queues):
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
