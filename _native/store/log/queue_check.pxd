# Comparison: queues against the whole log, record by record; what does not agree is put right. The log is
# believed.
#
# Two records may claim one place: of a topic that was deleted and made again the later one counts. A record
# that claims a place where its queue does not stand is held until another one follows it there: then the
# queue goes on there, or begins there; one that stays alone has a damaged head, and is passed over. Places
# whose records are lost become blanks, which point before the next record, so that the entries of a queue
# stay in the order of the log. `finish`, after the last record, cuts what no record stands for. Thread: the
# appender's, at the open.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue

cdef class QueueRebuild:
    cdef CommitLog log
    cdef object repair_log
    # ConsumeQueue → [first entry, entry behind the last record, mended, lost]
    cdef dict placed
    # ConsumeQueue → records that say it is elsewhere: (entry, physical offset, size, tags)
    cdef dict held
    cdef public int64_t lost_bytes         # of the log, in front of where it is walked

    cdef int place(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
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

cdef bint is_valid_entry(int64_t entry, int64_t physical_offset) noexcept
cdef bint points_to(ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1
cdef bint matches(CommitLog log, ConsumeQueue queue, int64_t entry, bint gone) except -1
