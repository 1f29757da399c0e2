"""StoreCleaning: what an open store gives up (see cleaning.pxd). Knows no clock, no rule of when."""

import os

from libc.stdint cimport int64_t

from firearrow._native.store.consumequeue cimport ConsumeQueue
from firearrow._native.store.reading cimport StoreReading

from firearrow._native.store.sole import discard


cdef class StoreCleaning(StoreReading):
    @property
    def mappings(self):
        return self.dispatch.mappings

    def queues(self):
        return [(os.fsdecode(topic), number) for topic, number in self.dispatch.queues]

    def clean_queue(self, str topic not None, int64_t queue_id, *, int64_t at_most=1 << 30):
        cdef ConsumeQueue queue = self.queue(topic, queue_id)
        cdef int64_t before
        if queue is None:
            return False, 0
        before = queue.min_entry
        queue.correct_min(self.log.min_offset)
        return queue.min_entry > before, queue.drop_old_files(at_most)

    def let_go_index_files(self):
        return [] if self.index is None else self.index.drop_below(self.log.min_offset)

    def let_go_segment(self, *, int64_t modified_before_ms):
        if len(self.log.bases) < 2 or self.log.bases[1] > min(self.confirmed, self.flushed_queues):
            return None  # a queue may not be on the disk as far as that, and where it ends is told by nothing else
        if self.log.first_modified_ms() > modified_before_ms:
            return None
        return self.log.let_go_first()

    def discard_segment(self, segment, *, bint reuse):
        if reuse:
            self.log.spare.make(segment)
        discard(segment)

    def drop_spare(self):
        self.log.spare.drop()

    def clean_queues(self):
        count = sum(self.clean_queue(topic, number)[1] for topic, number in self.queues())
        for file in self.let_go_index_files():
            discard(file)
            count += 1
        return count

    def drop_segments(self, *, int64_t older_than_ms, int64_t now_ms, bint force=False, int64_t at_most=10):
        cdef int64_t before = (1 << 62) if force else now_ms - older_than_ms
        dropped = 0
        self.flush_queues()
        while dropped < at_most and (segment := self.let_go_segment(modified_before_ms=before)) is not None:
            self.discard_segment(segment, reuse=not force)
            dropped += 1
        if dropped:
            self.clean_queues()
        return dropped
