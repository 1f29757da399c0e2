# QueueRebuild: compares the queues with the whole log, record by record, and repairs what differs. The log is
# authoritative.
#
# Two records may claim one offset: if a topic was deleted and created again, the later one counts. A lite
# topic that has expired begins again at 0, and what it had before does not count. A record
# that claims an offset out of the sequence is held until a second one follows it there: then the queue
# continues or starts there. One that stays alone has a damaged header and is skipped. Offsets whose records
# are lost get blank entries that point before the next record, so that a queue's entries stay in the order of
# the log. `finish`, after the last record, removes entries without a record. Thread: the appender's, at the
# open.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.record cimport RecordView

# The entries of a batch queue, whose numbers do not follow from their records: all are written again, in
# place. `end`: the queue offset after the last one; -1: there is none yet. `slack`: messages of records that
# were skipped.
cdef class BatchRebuild:
    cdef ConsumeQueue queue
    cdef int64_t end, slack, before, repaired
    cdef tuple held                        # a record that does not continue the queue; None: there is none

    cdef int add(self, tuple record, int64_t lost_bytes) except -1
    cdef int put(self, tuple record) except -1
    cdef int skip(self) except -1
    cdef bint continues(self, int64_t end, int64_t base, int64_t lost_bytes) noexcept
    cdef int finish(self) except -1


cdef class QueueRebuild:
    cdef CommitLog log
    cdef object repair_log
    # ConsumeQueue → [first entry, entry after the last record, repaired, lost]
    cdef dict states
    # ConsumeQueue → records with offsets out of the sequence: (entry, physical offset, size, tags)
    cdef dict held
    cdef dict batches                      # batch queue → BatchRebuild
    cdef public int64_t lost_bytes         # lost bytes of the log before the current position

    cdef int add_record(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1
    cdef int begin_lite(
        self, ConsumeQueue queue, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1
    cdef int add_batch(
        self, ConsumeQueue queue, int64_t base, int64_t count, const RecordView *view, int64_t tags_code
    ) except -1
    cdef bint fits(self, ConsumeQueue queue, list state, int64_t entry, int64_t physical_offset) except -1
    cdef int hold_entry(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1
    cdef object held_before(self, list held, int64_t entry)
    cdef int begin(self, ConsumeQueue queue, int64_t entry) except -1
    cdef int put(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1
    cdef int append_held(self, ConsumeQueue queue) except -1
    cdef int skip_entries(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1
    cdef int64_t blank(
        self, ConsumeQueue queue, int64_t entry, int64_t until, int64_t physical_offset
    ) except -1
    cdef bint holds_valid_entry(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1
    cdef bint is_later(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1
    cdef int append(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1

cdef bint is_valid_batch(int64_t base, int64_t physical_offset) noexcept
cdef int delete_files(ConsumeQueue queue) except -1
cdef bint is_lite(ConsumeQueue queue) except -1
cdef bint is_valid_entry(int64_t entry, int64_t physical_offset) noexcept
cdef bint points_to(ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1
cdef bint matches(CommitLog log, ConsumeQueue queue, int64_t entry, bint gone) except -1
cdef int restart_queue(ConsumeQueue queue, int64_t entry) except -1
